"""Objective of heads with classes, a number or choices: labels, the whole model's logits, or both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from layerscope import metrics
from layerscope.cutting.selection_test import of_answers
from layerscope.data import Examples, Task
from layerscope.evaluation.classification import ClassificationEvaluator
from layerscope.evaluation.label_order import outputs_of
from layerscope.evaluation.score import UNKNOWN, Score
from layerscope.extraction.encoding import encode
from layerscope.extraction.loop import Loop
from layerscope.extraction.pooling import Reading
from layerscope.models import Model
from layerscope.models.architecture import accepted_inputs
from layerscope.models.selfcheck import head_padding, primary
from layerscope.results import provenance_of
from layerscope.tuning.frozen_cache import CHOICES, PrefixedNetwork
from layerscope.tuning.objectives.base import (
    LOST,
    Distillation,
    Gain,
    Objective,
    Part,
    Teacher,
    gain_between,
    gain_of,
    mean_loss,
)
from layerscope.tuning.trainer import Collate, ItemRows

TARGETS = "targets"
_NEVER = -1e4  # the logit of a choice that a text does not have
_TOGETHER = 32  # texts that a teacher answers at once


class ClassificationObjective(Objective):
    """Heals on texts with or without labels; without, the whole model's answers count as right."""

    key: ClassVar[str] = "ClassAim"

    def __init__(
        self, model: Model, task: Task, learned: Examples, scored: Examples, distillation: Distillation, max_length: int
    ) -> None:
        self._loop = Loop.over_tokens([model], Reading("cls", max_length=max_length))
        super().__init__(model, self._part(learned), self._part(scored), distillation)
        self.task, self._max_length = task, max_length
        self.labelled = learned.labels is not None and scored.labels is not None
        self._evaluator = ClassificationEvaluator(model, task, scored, max_length) if self.labelled else None
        self._order = outputs_of(model, task) if self.labelled else None

    def _part(self, examples: Examples) -> Part:
        counts = None if examples.choices is None else [len(choices) for choices in examples.choices]
        return Part(examples, encode, self._loop.reading, self._loop.items(examples)[0], counts)

    @property
    def metric(self) -> str:
        if self._evaluator is not None:
            return self._evaluator.metric
        return "pearson" if self._is_number else "agreement"

    @property
    def majority(self) -> float:
        return float("nan") if self._evaluator is None else self._evaluator.majority

    @property
    def _is_number(self) -> bool:
        return not self.model.multiple_choice and int(self.model.network.config.num_labels) == 1

    def settings(self) -> dict[str, Any]:
        return {"labelled": self.labelled, "max_length": self._max_length}

    def _targets(self, part: Part) -> np.ndarray | None:
        """Return (rows,) the right output of the head, or the right number; None without labels."""
        labels = part.examples.labels
        if not self.labelled or labels is None or self._order is None:
            return None
        if self._is_number or self.model.multiple_choice:
            return labels
        return np.asarray(self._order)[labels]

    def module(self, tuned: Model, frozen: int, trains_embeddings: bool) -> PrefixedNetwork:
        return ClassHealing(tuned, frozen, trains_embeddings, self.distillation, self._is_number)

    def collate(self, tuned: Model) -> Callable[[Sequence[dict[str, Any]]], dict[str, Tensor]]:
        targets = {id(part.items): self._targets(part) for part in (self.learned, self.scored)}
        return _TargetCollate(tuned, accepted_inputs(tuned.network), targets, self._is_number)

    def metrics(self, prediction: Any) -> dict[str, float]:
        logits, lost = prediction.predictions
        if np.isnan(logits).any() or np.isnan(lost).any():
            return {"score": float("nan"), "held_out": float("nan")}
        return {"score": self._value(logits), "held_out": mean_loss(lost)}

    def _value(self, logits: np.ndarray) -> float:
        if self._evaluator is not None:
            return self._evaluator.value(logits if self.model.multiple_choice else logits[..., self._order])
        return metrics.score(*self._beside(logits))

    def _beside(self, logits: np.ndarray) -> tuple[str, np.ndarray, np.ndarray]:
        """Return the metric of answers beside the whole model's, the whole model's answers, and these."""
        both = (self._teachers_answers, logits)
        whole, given = (a[:, 0] if self._is_number else a.argmax(axis=-1) for a in both)
        return "pearson" if self._is_number else "accuracy", whole, given

    @property
    def _teachers_answers(self) -> np.ndarray:
        if not hasattr(self, "_whole"):
            assert self.distillation.teacher is not None
            self._whole = self._logits(self.distillation.teacher, self.scored)
        return self._whole

    def _logits(self, model: Model, part: Part, count: int | None = None) -> np.ndarray:
        """Return (rows, outputs) in the head's own order."""
        rows = self.rows(part)
        collate = Collate(model, False, accepted_inputs(model.network))
        answers: list[list[float]] = []
        last = len(rows) if count is None else min(count, len(rows))
        for start in range(0, last, _TOGETHER):
            batch = collate([rows[place] for place in range(start, min(start + _TOGETHER, last))])
            inputs = {k: v.to(model.device) for k, v in batch.items() if k not in ("labels", CHOICES)}
            logits = Teacher(model)(partial(_primary_output, inputs)).float().cpu()
            real = batch.get(CHOICES)
            answers += (logits if real is None else logits.masked_fill(~real, _NEVER)).numpy().tolist()
        most = max(map(len, answers))
        return np.asarray([[*row, *[_NEVER] * (most - len(row))] for row in answers], dtype=np.float32)

    def answers(self, model: Model, count: int | None = None) -> np.ndarray:
        if self._evaluator is None:
            return self._logits(model, self.scored, count)
        evaluator = self._evaluator if count is None else self._evaluator.subset(slice(count))
        return evaluator.with_model(model).logits(note=False)

    def score(self, model: Model, answers: np.ndarray) -> Score:
        if self._evaluator is not None:
            return self._evaluator.with_model(model).score(answers)
        value, beside = self._value(answers), self._beside(answers)
        defined = not np.isnan(value) and len(answers) > 1
        return Score(
            value,
            metric=self.metric,
            metrics={self.metric: value},
            n=len(answers),
            majority=float("nan"),
            provenance=provenance_of([model], self.scored.examples, {"metric": self.metric}),
            note="beside the answers of the whole model, not beside labels",
            interval=metrics.bootstrap(*beside) if defined else UNKNOWN,
            interval_note="" if defined else "the score is undefined, or of one text alone",
            kind=ClassificationEvaluator.score_kind,
        )

    def gain(self, before: np.ndarray, after: np.ndarray) -> Gain:
        if self._evaluator is not None:
            return gain_between(self._evaluator, before, after)
        (metric, wanted, first), (_, _, second) = self._beside(before), self._beside(after)
        return gain_of(of_answers(metric, wanted, first, second), of_answers(metric, wanted, second, first))


def _primary_output(inputs: dict[str, Tensor], network: Any) -> Tensor:
    return primary(network(**inputs))


class _TargetCollate:
    """Makes batches of texts or choices, with the right answer to each of them where that is known."""

    def __init__(
        self, model: Model, accepted: set[str], targets: dict[int, np.ndarray | None], is_number: bool
    ) -> None:
        self._plain = Collate(model, False, accepted)
        self._targets, self._kind = targets, torch.float32 if is_number else torch.int64

    def __call__(self, entries: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        batch = self._plain(entries)
        rows: ItemRows = entries[0]["rows"]
        targets = self._targets[id(rows.items)]
        if targets is not None:
            batch[TARGETS] = torch.as_tensor(targets[batch["labels"].numpy()]).to(self._kind)
        return batch


class ClassHealing(PrefixedNetwork):
    """A network that gives the loss against labels, against a teacher's logits, or a mixture."""

    def __init__(
        self, model: Model, frozen: int, trains_embeddings: bool, distillation: Distillation, is_number: bool = False
    ) -> None:
        super().__init__(model, frozen, trains_embeddings)
        self._teacher = None if distillation.teacher is None else Teacher(distillation.teacher)
        self._mix, self._is_number = distillation.mix, is_number
        self.padding = head_padding(model)

    def forward(self, **inputs: Any) -> dict[str, Tensor]:
        targets, real, _ = (inputs.pop(name, None) for name in (TARGETS, CHOICES, "labels"))
        given = self.answering_prefix(inputs)
        asked = self._teacher is not None and (self.training or targets is None)
        whole = self._teacher(lambda network: network(**inputs).logits) if asked and self._teacher else None
        with given:
            logits = self.network(**inputs).logits
        if real is not None:
            logits = logits.masked_fill(~real, _NEVER)
            whole = None if whole is None else whole.masked_fill(~real, _NEVER)
        lost = row_losses(logits.float(), targets, whole, self._mix, self._is_number)
        answer = {"loss": lost.mean()}
        return answer if self.training else {**answer, "logits": logits, LOST: lost}


def row_losses(logits: Tensor, targets: Tensor | None, whole: Tensor | None, mix: float, is_number: bool) -> Tensor:
    """Return (rows,) `mix` x the distance from the teacher's answers + (1 - mix) x the loss against labels."""
    mix = 0.0 if whole is None else 1.0 if targets is None else mix
    loss = torch.zeros(len(logits), device=logits.device)
    if whole is not None and is_number:
        loss = loss + mix * (logits - whole.float()).square().mean(dim=-1)
    elif whole is not None:
        logs, wanted = logits.log_softmax(dim=-1), whole.float().log_softmax(dim=-1)
        loss = loss + mix * nn.functional.kl_div(logs, wanted, reduction="none", log_target=True).sum(dim=-1)
    if targets is not None and is_number:
        loss = loss + (1 - mix) * (logits[:, 0] - targets).square()
    elif targets is not None:
        loss = loss + (1 - mix) * nn.functional.cross_entropy(logits, targets, reduction="none")
    return loss
