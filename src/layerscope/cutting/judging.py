"""What a smaller model changes on the rows that confirm, whatever was asked, and how much of it is tolerated.

Changes of a loss, or of tags, are told by texts: their mean loss, weighed by their tokens. The logarithm of a
perplexity is such a loss, so a share of it is an amount of that. Other changes are told by the answers to each row.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from layerscope.cutting.changes import Changes, of_answers, of_losses
from layerscope.cutting.tolerance import Tolerance
from layerscope.data import metrics
from layerscope.evaluation.sitting import Sitting
from layerscope.evaluation.tokens import COUNT, RIGHT, TokenSitting

_LIKELIHOOD = ("acc", "acc_norm")


class Judge:
    """The plans of an exam on some rows; the first is the whole model."""

    def __init__(self, sitting: Sitting, answers: np.ndarray, rows: np.ndarray, tolerance: Tolerance) -> None:
        self.sitting, self.answers, self.rows, self.tolerance = sitting, answers, rows, tolerance
        self._by_text = isinstance(sitting, TokenSitting) and sitting.metric not in _LIKELIHOOD

    @cached_property
    def _whole(self) -> float:
        return self.sitting.value(self.answers[0], self.rows)

    def changes(self, place: int) -> Changes:
        """What a plan changes, in the units of `limit`; better is positive."""
        if self._by_text:
            (whole, weights), (smaller, _) = (self._losses(self.answers[k]) for k in (0, place))
            return of_losses(whole, smaller, weights=weights)
        labels = self.sitting.labels[self.rows]  # type: ignore[attr-defined]
        whole, smaller = (self.sitting.predictions(self.answers[k])[self.rows] for k in (0, place))  # type: ignore[attr-defined]
        metric = "accuracy" if self.sitting.metric in _LIKELIHOOD else self.sitting.metric
        return of_answers(metric, labels, whole, smaller, self.sitting.task.classes)

    def _losses(self, answers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The mean loss of each text and its weight; of tags and masked tokens the share of wrong ones."""
        assert isinstance(self.sitting, TokenSitting)
        if self.sitting.metric in metrics.LOSSES:
            return self.sitting.losses(answers, self.rows)
        wrong = answers.copy()
        wrong[:, 0] = answers[:, COUNT] - answers[:, RIGHT]
        return self.sitting.losses(wrong, self.rows)

    @property
    def limit(self) -> float:
        """The tolerance, in the units of changes."""
        allowed = self.tolerance.allowed(self._whole)
        if self.sitting.metric == "perplexity":
            return math.log1p(allowed / self._whole)
        return allowed / self._scale

    @property
    def _scale(self) -> float:
        """What one unit of change is in the metric; bits per byte count the same loss in other units."""
        if self.sitting.metric != "bits_per_byte":
            return 1.0
        return self._whole / self.sitting.measured(self.answers[0], self.rows)["nll"]

    def told(self, change: float) -> float:
        """A change in the units of the metric; better is positive."""
        if self.sitting.metric == "perplexity":
            return -self._whole * math.expm1(min(-change, 700.0))
        return change * self._scale
