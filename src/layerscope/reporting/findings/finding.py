"""A finding: a sentence, what it rests on, and how sure it is. And numbers as sentences say them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from pathlib import PurePath
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

ANSWER, SUPPORT, DETAIL = 3, 2, 1  # weights: what was asked for, what it rests on, what is good to know
NO_INTERVAL = "no interval was measured"
_LEVEL = 0.95  # of the intervals in tables


@dataclass(frozen=True)
class Finding:
    """What came out of a table.

    Attributes:
        text: The sentence, with its numbers.
        evidence: What it rests on: an interval, a p-value, how many rows.
        sure: Whether the evidence decides it; None where nothing was measured that could.
        weight: How much it answers of what was asked: `ANSWER`, `SUPPORT` or `DETAIL`.
    """

    text: str
    evidence: str
    sure: bool | None
    weight: int = SUPPORT

    @property
    def certainty(self) -> str:
        """In a word or two."""
        return "not tested" if self.sure is None else "sure" if self.sure else "not sure"


def number(value: float) -> str:
    """A number with as many digits as a sentence needs."""
    if not math.isfinite(value):
        return "undefined" if math.isnan(value) else "infinite"
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.3f}" if size >= 0.001 or value == 0 else f"{value:.1e}"


def interval(low: float, high: float, level: float = _LEVEL) -> str:
    """`95% interval 0.71 to 0.78`, or that there is none."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return NO_INTERVAL
    return f"{level:.0%} interval {number(low)} to {number(high)}"


def rows(n: Any, noun: str = "n =") -> str:
    """`, n = 300`; nothing where the number of rows is unknown."""
    known = isinstance(n, Real) and math.isfinite(n)
    return f", {noun} {int(n):,}" if known else ""


def widened(value: float, low: float, high: float, tries: int) -> tuple[float, float]:
    """A 95% interval made wider, so that it may be used for the best or the worst of so many values (Bonferroni)."""
    normal = NormalDist()
    factor = normal.inv_cdf(1 - 0.025 / max(tries, 1)) / normal.inv_cdf(0.975)
    return value - factor * (value - low), value + factor * (high - value)


def worse(value: float, other: float, up: bool) -> bool:
    """Whether a value is worse than another, where up (or down) is better. Nothing is worse than NaN, or NaN."""
    return value < other if up else value > other


def worse_end(low: float, high: float, up: bool) -> float:
    """The end of an interval that is the worse one."""
    return low if up else high


def better_end(low: float, high: float, up: bool) -> float:
    """The end of an interval that is the better one."""
    return high if up else low


def extreme(frame: pandas.DataFrame, column: str, most: bool) -> Any:
    """The row with the most, or the least, in a column: the first of equals, and a defined one if there is any."""
    return frame.sort_values(column, ascending=not most, kind="stable").iloc[0]


def short(name: str) -> str:
    """The end of a path, which says most; other names as they are."""
    parts = PurePath(name).parts
    return str(PurePath(*parts[-2:])) if name.startswith(("/", "./", "../")) and len(parts) > 3 else name


def task_name(name: Any) -> str:
    """A task without the version of its texts."""
    return str(name).split("@")[0]
