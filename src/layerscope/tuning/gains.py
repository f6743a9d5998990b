"""How much better a healed model is than another one, and how sure that is.

Both are scored on the same held-out rows, so what counts is the spread of the differences, row by row, not that of
either score. The interval is Student's, with the rows added of `lower_bound`: it is wide where few rows were held out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from layerscope.cutting.changes import Changes
from layerscope.cutting.decision import lower_bound
from layerscope.cutting.judging import Judge
from layerscope.cutting.tolerance import Tolerance
from layerscope.evaluation.sitting import Sitting

LEVEL = 0.95  # of the intervals
_SIDE = (1 + LEVEL) / 2


@dataclass(frozen=True)
class Gain:
    """What one model scores better than another, in units of the metric; an end that nothing bounds is infinite."""

    value: float
    low: float
    high: float

    @property
    def sure(self) -> bool:
        """Whether the interval tells which of the two is better."""
        return self.low > 0 or self.high < 0

    def spec(self) -> dict[str, Any]:
        """The gain as JSON has it, which knows no infinity."""
        return {name: value if math.isfinite(value) else None for name, value in asdict(self).items()}

    @staticmethod
    def from_spec(value: dict[str, Any]) -> Gain:
        """What `spec` gave."""
        ends = {"value": math.nan, "low": -math.inf, "high": math.inf}
        return Gain(**{name: known if value.get(name) is None else value[name] for name, known in ends.items()})


UNKNOWN = Gain(math.nan, math.nan, math.nan)


def gain_of(forth: Changes, back: Changes, told: Callable[[float], float] = float) -> Gain:
    """The gain of changes `forth`; `back` are those of the other model over the first, for the upper end.

    `told` makes units of the metric of a change.
    """
    low, high = lower_bound(forth, _SIDE), -lower_bound(back, _SIDE)
    ends = [told(end) if math.isfinite(end) else end for end in (low, high)]
    return Gain(told(forth.mean), *ends)


def gain_between(sitting: Sitting, before: np.ndarray, after: np.ndarray, rows: np.ndarray | None = None) -> Gain:
    """What the answers `after` score better than the answers `before` to some rows of an exam, or to all."""
    at = np.arange(len(sitting.examples)) if rows is None else rows
    forth, back = (Judge(sitting, np.stack(pair), at, Tolerance(0.0)) for pair in ((before, after), (after, before)))
    return gain_of(forth.changes(1), back.changes(1), forth.told)
