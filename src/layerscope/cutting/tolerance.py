"""How much of a score may be lost: an amount of the metric, or a share of the whole model's score."""

from __future__ import annotations

import math
from dataclasses import dataclass

from layerscope.data import metrics
from layerscope.errors import InputError


@dataclass(frozen=True)
class Tolerance:
    """An amount of the metric, or a share of the whole model's score."""

    amount: float
    relative: bool = False

    @staticmethod
    def parse(value: float | str, metric: str) -> Tolerance:
        """`0.01`, or `5%` of the whole model's score. Of a loss or a perplexity every tolerance is a share."""
        text = str(value).strip()
        share = text.endswith("%")
        try:
            amount = float(text.removesuffix("%")) / (100 if share else 1)
        except ValueError:
            amount = math.nan
        if not 0 <= amount < math.inf:
            raise InputError(f"tolerance is {value}; it must be 0 or more, such as 0.01, or a share, such as 5%.")
        return Tolerance(amount, share or metric in metrics.LOSSES)

    def allowed(self, whole: float) -> float:
        """How much worse than the whole model's score a score may be."""
        return self.amount * abs(whole) if self.relative else self.amount

    def holds(self, metric: str, whole: float, score: float) -> bool:
        """Whether a score is within the tolerance of the whole model's."""
        return metrics.upward(metric, score) >= metrics.upward(metric, whole) - self.allowed(whole)

    def __str__(self) -> str:
        return f"{100 * self.amount:g} %" if self.relative else f"{self.amount:g}"
