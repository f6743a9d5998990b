"""Evaluation without labels: how far the answers of a changed model are from the model's own, text by text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from layerscope.data import Examples
from layerscope.evaluation.embedding_similarity import embedding_of, prompt_length, read_as, single_texts
from layerscope.evaluation.evaluator import Evaluator, Read
from layerscope.evaluation.token_evaluator import COUNT, LOSS, RIGHT, bootstrap_of_sums
from layerscope.extraction.encoding import encode
from layerscope.extraction.items import Items
from layerscope.extraction.pooling import Reading
from layerscope.models import Model
from layerscope.models.selfcheck import head_padding, primary
from layerscope.models.sentence_embedding import Embedding


class DivergenceEvaluator(Evaluator):
    """Sums, for each text, how far an output is from the first one that was read of its batch.

    Classes, choices and tags: the divergence of the first output's distribution from the other's, in nats; where a text
    may have several classes, the sum of those of each class. Numbers: the squared difference. Embeddings: 1 - cosine.
    The columns are those of evaluators that go token by token: the summed distance, how often the likeliest answer is
    the same, and how many answers there are.
    """

    key: ClassVar[str] = "Divergence"
    score_kind: ClassVar[str] = "divergence from another model"
    scores: ClassVar[tuple[str, ...]] = ("divergence", "agreement")
    embedding: Embedding | None = None  # how the outputs that are read become embeddings, where the model has no head

    def __post_init__(self) -> None:
        self._padding = "right"
        config = self.model.network.config
        self._several = getattr(config, "problem_type", None) == "multi_label_classification"
        if self.model.has_head:
            self._padding = head_padding(self.model)
        else:
            if self.embedding is None:
                self.embedding = embedding_of(self.model, self.task.prompt_options.embedding)
            self.prompt_length = prompt_length(self.model, self.embedding)
            self.examples = single_texts(self.examples)
        self.padding_left = self._padding == "left"  # type: ignore[misc]
        super().__post_init__()

    @property
    def _most(self) -> int | None:
        return 1 if self._padding == "none" else None

    def _longest(self) -> int:
        if self.max_length is None and self.embedding is not None and self.embedding.max_length:
            return min(self.embedding.max_length, self.model.positions or self.embedding.max_length)
        return super()._longest()

    def _settings(self) -> dict[str, Any]:
        if self._several:
            return {"several": True}
        return {} if self.embedding is None else {"embedding": self.embedding.spec()}

    def _encoded(self, model: Model, examples: Examples, reading: Reading) -> Items:
        if self.embedding is not None:
            examples = replace(examples, texts=[read_as(self.embedding, text) for text in examples.texts])
        return encode(model, examples, reading)

    def _shaped(self, inputs: dict[str, Tensor], texts: int, count: int) -> dict[str, Tensor]:
        if self.model.multiple_choice:
            return {name: value.view(texts, count, -1) for name, value in inputs.items()}
        return inputs

    def real(self, items: Items, time: int) -> Tensor:
        """Return (items, time) which places of a padded batch are tokens, special ones too."""
        return real_places(items, time, self.padding_left).to(self.model.device)

    def _reader(self, items: Items, inputs: dict[str, Tensor], more: dict[str, Tensor]) -> Read:
        first: list[Tensor] = []
        real = self.real(items, inputs["input_ids"].shape[-1])

        def read(output: Any) -> Tensor:
            answer = primary(output).float()
            if self.embedding is not None:
                answer = self.embedding.pooled(answer, real, self.prompt_length)
            first.append(answer)
            mask = real if answer.dim() == 3 else None
            return apart(first[0], answer, self.embedding is not None, mask, several=self._several)

        return read

    def measured(self, answers: np.ndarray, rows: np.ndarray) -> dict[str, float]:
        return _shares(answers[rows].astype(float).sum(axis=0))

    def interval(self, answers: np.ndarray, rows: Any = None) -> tuple[float, float]:
        at = self._at(rows)
        return bootstrap_of_sums(answers[at], self.units(at), lambda sums: _shares(sums)[self.metric])


def _shares(sums: np.ndarray) -> dict[str, float]:
    count = float(sums[COUNT]) or float("nan")
    return {"divergence": float(sums[LOSS]) / count, "agreement": float(sums[RIGHT]) / count}


def apart(whole: Tensor, other: Tensor, vectors: bool, mask: Tensor | None = None, *, several: bool = False) -> Tensor:
    """Return (texts, 3): the summed distance of two outputs, in how many answers they agree, and how many there are.

    Outputs are (texts, classes), with one class for a number, or (texts, time, classes) with a mask; or embeddings.
    With `several` each class is a yes or no by itself, and an answer is the same where all classes are.
    """
    if vectors:
        distance = 1 - nn.functional.cosine_similarity(whole, other, dim=-1)
        agrees = torch.ones_like(distance)
    elif several:
        yes = whole.sigmoid() * (logsigmoid(whole) - logsigmoid(other))
        no = (-whole).sigmoid() * (logsigmoid(-whole) - logsigmoid(-other))
        distance = (yes + no).sum(dim=-1)
        agrees = ((whole > 0) == (other > 0)).all(dim=-1).float()
    elif whole.shape[-1] == 1:
        distance = (whole - other).square()[..., 0]
        agrees = torch.ones_like(distance)
    else:
        logs, wanted = other.log_softmax(dim=-1), whole.log_softmax(dim=-1)
        distance = nn.functional.kl_div(logs, wanted, reduction="none", log_target=True).sum(dim=-1)
        agrees = (other.argmax(dim=-1) == whole.argmax(dim=-1)).float()
    if mask is None:
        return torch.stack([distance, agrees, torch.ones_like(distance)], dim=-1)
    real = mask.float()
    return torch.stack([(distance * real).sum(1), (agrees * real).sum(1), real.sum(1)], dim=-1)


def real_places(items: Items, time: int, padding_left: bool) -> Tensor:
    """Return (items, time) which places of a padded batch hold tokens."""
    lengths = torch.as_tensor(np.asarray(items.lengths))[:, None]
    places = torch.arange(time)[None]
    return places >= time - lengths if padding_left else places < lengths
