"""Embedding models on scored pairs: the cosine of the two texts' embeddings, and how well it orders the pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from layerscope.data import Examples, metrics
from layerscope.errors import DataError
from layerscope.evaluation.sitting import Read, Sitting
from layerscope.extraction.encode import Item, encode
from layerscope.extraction.loop import Window
from layerscope.extraction.reading import Reading
from layerscope.models import Model
from layerscope.models.embedding import Embedding
from layerscope.models.selfcheck import of_base

_MODES = {"mean": "mean", "cls": "cls", "last": "lasttoken"}


class Embeddings(Sitting):
    """Rows are pairs, their number the cosine. Correlations of it with the labels."""

    scores: ClassVar[tuple[str, ...]] = ("spearman", "pearson")

    def __post_init__(self) -> None:
        if self.examples.labels is None or (self.examples.pairs is None and self.examples.choices is None):
            raise DataError(
                f"{self.examples.task} ({self.examples.split}) has no pairs with a score, which embeddings are scored "
                "on; name the columns (text=, text_pair=, label=)."
            )
        self.embedding = embedding_of(self.model, self.task.asking.embedding)
        if self.examples.pairs is not None:  # the two texts are read apart, as choices are
            pairs = list(zip(self.examples.texts, self.examples.pairs, strict=True))
            joined = replace(self.examples, pairs=None, choices=pairs)
            object.__setattr__(joined, "_whole", (self.examples.fingerprint, self.examples.texts_fingerprint))
            self.examples = joined
        super().__post_init__()

    @property
    def subject(self) -> Model:
        return of_base(self.model)

    def _longest(self) -> int:
        if self.max_length is None and self.embedding.max_length:
            return min(self.embedding.max_length, self.model.positions or self.embedding.max_length)
        return super()._longest()

    def _settings(self) -> dict[str, Any]:
        return {"embedding": self.embedding.spec()}

    def _told(self) -> dict[str, Any]:
        return {"embedding": " + ".join(self.embedding.modes)}

    def _encoded(self, model: Model, examples: Examples, reading: Reading) -> list[Item]:
        assert examples.choices is not None
        texts = [self._read_as(text) for pair in examples.choices for text in pair]
        rows = np.repeat(examples.rows, 2)
        return encode(model, replace(examples, texts=texts, rows=rows, choices=None, labels=None), reading)

    def _read_as(self, text: str) -> str:
        text = self.embedding.prompt + text
        return text.lower() if self.embedding.lower_case else text

    @property
    def _prompt_length(self) -> int:
        """Tokens of the prompt, without the one that ends a text."""
        if not self.embedding.prompt or self.embedding.include_prompt:
            return 0
        tokenizer = self.model.require_tokenizer()
        ids = tokenizer(self.embedding.prompt)["input_ids"]
        return len(ids) - (ids[-1] in (tokenizer.sep_token_id, tokenizer.eos_token_id))

    def _reader(self, window: Window, places: np.ndarray, items: Sequence[Item], inputs: dict[str, Tensor]) -> Read:
        mask, prompt = inputs["attention_mask"], self._prompt_length

        def read(output: Any) -> Tensor:
            vectors = self.embedding.pooled(output.last_hidden_state, mask, prompt)
            first, second = vectors.unflatten(0, (-1, 2)).unbind(1)
            return torch.nn.functional.cosine_similarity(first, second, dim=-1)[:, None]

        return read

    @property
    def labels(self) -> np.ndarray:
        assert self.examples.labels is not None
        return self.examples.labels

    def predictions(self, answers: np.ndarray) -> np.ndarray:
        """(.., n) cosines."""
        return answers[..., 0]

    def measured(self, answers: np.ndarray, rows: np.ndarray) -> dict[str, float]:
        cosines = self.predictions(answers)[rows]
        return {name: metrics.score(name, self.labels[rows], cosines) for name in self.scores}

    def interval(self, answers: np.ndarray, rows: Any = None) -> tuple[float, float]:
        at = self._at(rows)
        return metrics.bootstrap(self.metric, self.labels[at], self.predictions(answers)[at])


def embedding_of(model: Model, asked: str | None) -> Embedding:
    """How a model's states become embeddings: as asked for, as sentence-transformers says, or by the mean."""
    if asked is not None:
        own = model.embedding
        return replace(own or Embedding(), modes=(_MODES[asked],), steps=(), files={}, unknown="")
    return model.embedding or Embedding()
