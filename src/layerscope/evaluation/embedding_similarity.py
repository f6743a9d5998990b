"""Evaluation of embedding models on scored pairs: how well the cosine of two texts' embeddings orders the pairs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from layerscope import metrics
from layerscope.data import Examples, Task
from layerscope.errors import DataError
from layerscope.evaluation.evaluator import Evaluator, Read
from layerscope.extraction.encoding import encode
from layerscope.extraction.items import Items
from layerscope.extraction.pooling import Reading
from layerscope.models import Model
from layerscope.models.selfcheck import without_head
from layerscope.models.sentence_embedding import Embedding

_MODES = {"mean": "mean", "cls": "cls", "last": "lasttoken"}


class EmbeddingSimilarityEvaluator(Evaluator):
    """Scores the cosines of pairs by their correlation with the labels. A row is a pair, its number the cosine."""

    key: ClassVar[str] = "Embeddings"
    score_kind: ClassVar[str] = "similarity of embeddings"
    scores: ClassVar[tuple[str, ...]] = ("spearman", "pearson")

    @classmethod
    def fits(cls, task: Task) -> bool:
        return task.regression

    def __post_init__(self) -> None:
        if self.examples.labels is None or (self.examples.pairs is None and self.examples.choices is None):
            raise DataError(
                f"{self.examples.task} ({self.examples.split}) has no pairs with a score, which embeddings are scored "
                "on; name the columns (text=, text_pair=, label=)."
            )
        self.embedding = embedding_of(self.model, self.task.prompt_options.embedding)
        # The two texts of a pair are encoded one by one, as choices are. The identity of the examples stays that of the
        # pairs, so that answers in the store are found again.
        if self.examples.pairs is not None:
            pairs = list(zip(self.examples.texts, self.examples.pairs, strict=True))
            self.examples = replace(self.examples, pairs=None, choices=pairs).known_as(self.examples)
        # The prompt is tokenized here because the tokenizer is used by another thread once the loop runs.
        self._prompt_length = prompt_length(self.model, self.embedding)
        super().__post_init__()

    @property
    def subject(self) -> Model:
        return without_head(self.model)

    def _longest(self) -> int:
        if self.max_length is None and self.embedding.max_length:
            return min(self.embedding.max_length, self.model.positions or self.embedding.max_length)
        return super()._longest()

    def _settings(self) -> dict[str, Any]:
        return {"embedding": self.embedding.spec()}

    def _provenance_settings(self) -> dict[str, Any]:
        return {"embedding": " + ".join(self.embedding.modes)}

    def _encoded(self, model: Model, examples: Examples, reading: Reading) -> Items:
        assert examples.choices is not None
        texts = [read_as(self.embedding, text) for pair in examples.choices for text in pair]
        rows = np.repeat(examples.rows, 2)
        return encode(model, replace(examples, texts=texts, rows=rows, choices=None, labels=None), reading)

    def _reader(self, items: Items, inputs: dict[str, Tensor], more: dict[str, Tensor]) -> Read:
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


def read_as(embedding: Embedding, text: str) -> str:
    """Return a text as an embedding model reads it: after its prompt, and in lower case where the model wants that."""
    text = embedding.prompt + text
    return text.lower() if embedding.lower_case else text


def prompt_length(model: Model, embedding: Embedding) -> int:
    """Return how many tokens of the prompt are left out of pooling, without the token that ends a text."""
    if not embedding.prompt or embedding.include_prompt:
        return 0
    tokenizer = model.require_tokenizer()
    ids = tokenizer(embedding.prompt)["input_ids"]
    return len(ids) - (ids[-1] in (tokenizer.sep_token_id, tokenizer.eos_token_id))


def embedding_of(model: Model, asked: str | None) -> Embedding:
    """Return how a model's states become embeddings: as asked for, as its files say, or by the mean."""
    if asked is not None:
        embedding = model.embedding or Embedding()
        return replace(embedding, modes=(_MODES[asked],), steps=(), files={}, unknown="")
    return model.embedding or Embedding()


def single_texts(examples: Examples) -> Examples:
    """Return every text of the examples as a row of its own: both of a pair, and all choices."""
    texts, at = list(examples.texts), list(range(len(examples)))
    if examples.pairs is not None:
        texts, at = [*texts, *examples.pairs], [*at, *at]
    if examples.choices is not None:
        texts += [choice for choices in examples.choices for choice in choices]
        at += [place for place, choices in enumerate(examples.choices) for _ in choices]
    lines = None if examples.lines is None else examples.lines[at]
    single = replace(examples, texts=texts, rows=examples.rows[at], lines=lines, labels=None, label_names=None)
    single = replace(single, pairs=None, choices=None, prompts=None, tags=None, words=None, words_by=None)
    return single.known_as(examples)
