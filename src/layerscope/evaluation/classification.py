"""Evaluation of heads that give one answer for a text: a class, a number or a choice."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from layerscope import metrics
from layerscope.errors import DataError
from layerscope.evaluation.evaluator import Evaluator, Read, refuse
from layerscope.evaluation.label_order import outputs_of
from layerscope.extraction.items import Items
from layerscope.extraction.loop import Window
from layerscope.models.heads import HEADS
from layerscope.models.selfcheck import head_padding, primary


class ClassificationEvaluator(Evaluator):
    """Scores the logits of a head for classes, a number or choices, in the order of the task's classes."""

    key: ClassVar[str] = "Exam"
    score_kind: ClassVar[str] = "classes"
    outputs: np.ndarray  # the head's output for each class of the task

    def __post_init__(self) -> None:
        if not HEADS[self.model.head].classifier:
            refuse(self.model, self.task, self.task.kind)
        if self.examples.labels is None:
            raise DataError(
                f"{self.examples.task} ({self.examples.split}) has no labels, so nothing can be scored; name the "
                "column that holds them (label=, --label)."
            )
        metrics.check_fits(self.task.metric, self.task.regression, self.task.name)
        self.outputs = outputs_of(self.model, self.task)
        self._padding = head_padding(self.model)
        self.padding_left = self._padding == "left"  # type: ignore[misc]
        super().__post_init__()

    @property
    def allowed(self) -> tuple[str, ...]:
        return metrics.allowed(self.task.regression)

    @property
    def metric(self) -> str:
        return self.task.metric

    @property
    def _most(self) -> int | None:
        return 1 if self._padding == "none" else None

    @property
    def classes(self) -> np.ndarray | None:
        return None if self.task.regression else self.labels

    def _settings(self) -> dict[str, Any]:
        return {"outputs": self.outputs.tolist()}

    @property
    def labels(self) -> np.ndarray:
        assert self.examples.labels is not None
        return self.examples.labels

    def _shaped(self, inputs: dict[str, Tensor], texts: int, count: int) -> dict[str, Tensor]:
        if self.model.multiple_choice:
            return {name: value.view(texts, count, -1) for name, value in inputs.items()}
        return inputs

    def _reader(self, items: Items, inputs: dict[str, Tensor], more: dict[str, Tensor]) -> Read:
        return primary

    def _ordered(self, values: np.ndarray) -> np.ndarray:
        """Return the outputs in the order of the task's classes."""
        return values if self.model.multiple_choice else values[..., self.outputs]

    def _width(self, window: Window, width: int) -> int:
        choices = window.examples.choices
        return width if choices is None else max(map(len, choices))

    def predictions(self, logits: np.ndarray) -> np.ndarray:
        """(.., n) classes, or numbers for a regression."""
        return logits[..., 0] if self.task.regression else logits.argmax(axis=-1)

    def value(self, answers: np.ndarray, rows: Any = None) -> float:
        at = slice(None) if rows is None else rows
        return metrics.score(self.task.metric, self.labels[at], self.predictions(answers)[at], self.task.classes)

    def measured(self, answers: np.ndarray, rows: np.ndarray) -> dict[str, float]:
        labels, guesses = self.labels[rows], self.predictions(answers)[rows]
        names = dict.fromkeys([*metrics.fitting(self.task.regression), self.task.metric])
        return {name: metrics.score(name, labels, guesses, self.task.classes) for name in names}

    def interval(self, answers: np.ndarray, rows: Any = None) -> tuple[float, float]:
        at = self._at(rows)
        return metrics.bootstrap(self.task.metric, self.labels[at], self.predictions(answers)[at], self.task.classes)

    def _majority(self, rows: np.ndarray) -> float:
        return metrics.majority(self.task.metric, self.labels[rows], self.task.classes)
