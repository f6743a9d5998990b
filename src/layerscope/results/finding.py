"""Findings, which are sentences with their evidence, and the command to run next; both are given by a result.

Also numbers, intervals and names in the form that those sentences have.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from layerscope.models.sources import short_names
from layerscope.resampling import told_apart

if TYPE_CHECKING:
    import numpy as np
    import pandas

ANSWER, SUPPORT, DETAIL = 3, 2, 1  # weights: what was asked for, what it rests on, what is good to know
NO_INTERVAL = "no interval was measured"
SIGNIFICANT = 0.05  # a p-value below this decides
_LEVEL = 0.95  # of the intervals in tables
_HEADS = re.compile(r"For[A-Z]|LMHead")  # in the names of classes whose models have a head


@dataclass(frozen=True)
class Finding:
    """One thing that came out. As text it is its sentence, with the evidence in parentheses where there is any.

    Attributes:
        text: The sentence, with its numbers.
        evidence: What it rests on: an interval, a p-value, how many rows. Empty where the sentence itself says it.
        sure: Whether the comparison that the sentence makes was tested and decided; None where nothing was measured
            that could tell.
        weight: How much it answers of what was asked: `ANSWER`, `SUPPORT` or `DETAIL`.
    """

    text: str
    evidence: str = ""
    sure: bool | None = None
    weight: int = SUPPORT

    @property
    def certainty(self) -> str:
        """How sure it is, in a word or two."""
        return "not tested" if self.sure is None else "sure" if self.sure else "not sure"

    def __str__(self) -> str:
        return f"{self.text.removesuffix('.')} ({self.evidence})." if self.evidence else self.text


@dataclass(frozen=True)
class NextStep:
    """The command that goes on from a result. What reads the record fills in the models and the words of the task.

    Attributes:
        command: The command's name, such as `advise`.
        arguments: What it is given beside the models and the task.
        why: What it is good for.
        models: The names of the models that it is given; those of `saved`, or the record's first one, where empty.
        saved: The folder, inside the one that the command was told to write, that it goes on from; "" is that folder
            itself, and None says that it goes on from the models.
        again: Where the record's own command line is one of this command, that line goes on with these words instead.
        line: The whole command line, where nothing is to be filled in.
    """

    command: str
    arguments: tuple[str, ...] = ()
    why: str = ""
    models: tuple[str, ...] = ()
    saved: str | None = None
    again: tuple[str, ...] = ()
    line: str = ""


def with_head(models: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of the models, as provenance describes them, that have a head by their class."""
    return [str(model.get("name", "")) for model in models if _HEADS.search(str(model.get("class", "")))]


ADVISE = NextStep(
    "advise", ("-o", "advice"), "Test what may go: some rows choose the blocks, and others score the choice"
)
SPECIALTY = NextStep("specialty", ("-o", "specialty"), "See which layers are worth tuning")


def number(value: float) -> str:
    """Return a number with as many digits as a sentence needs."""
    if not math.isfinite(value):
        return "undefined" if math.isnan(value) else "infinite"
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.3f}" if size >= 0.001 or value == 0 else f"{value:.1e}"


def interval(low: float, high: float, level: float = _LEVEL) -> str:
    """Return `95% interval 0.71 to 0.78`, or words for the case that there is none."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return NO_INTERVAL
    return f"{level:.0%} interval {number(low)} to {number(high)}"


def rows(n: Any, noun: str = "n =") -> str:
    """Return `, n = 300`; nothing where the number of rows is unknown."""
    is_number = isinstance(n, Real) and math.isfinite(n)
    return f", {noun} {int(n):,}" if is_number else ""


def over_windows(provenance: Mapping[str, Any]) -> list[Finding]:
    """Return a finding on what intervals are over, where the provenance of a result says that it is not texts."""
    over = provenance.get("settings", {}).get("intervals")
    return [Finding(f"Intervals are {over}.", "", None, DETAIL)] if over else []


def widened(value: float, low: float, high: float, tries: int) -> tuple[float, float]:
    """Return a 95% interval widened for use with the best or the worst of so many values (Bonferroni)."""
    normal = NormalDist()
    factor = normal.inv_cdf(1 - 0.025 / max(tries, 1)) / normal.inv_cdf(0.975)
    return value - factor * (value - low), value + factor * (high - value)


def worse(value: float, other: float, up: bool) -> bool:
    """Return whether a value is worse than another, where up (or down) is better. Nothing is worse than NaN, or NaN."""
    return value < other if up else value > other


def worse_end(low: float, high: float, up: bool) -> float:
    """Return the worse end of an interval."""
    return low if up else high


def better_end(low: float, high: float, up: bool) -> float:
    """Return the better end of an interval."""
    return high if up else low


def extreme(frame: pandas.DataFrame, column: str, most: bool) -> Any:
    """Return the row with the most, or the least, in a column: the first of equals, a defined one if there is any."""
    return frame.sort_values(column, ascending=not most, kind="stable").iloc[0]


def apart(
    part: pandas.DataFrame,
    column: str,
    place: Any,
    left_out: np.ndarray | None = None,
    draws: np.ndarray | None = None,
) -> pandas.Series | None:
    """Return which rows of a part of a table are told apart from one of them, on the same texts.

    None where nothing was measured that could tell.

    Args:
        part: Some rows of the table, whose index counts the table's rows.
        column: The column with the values.
        place: The row that the others are held against, by the index.
        left_out: (groups, rows of the table) the values without one group of texts at a time.
        draws: (resamples, rows of the table) the values of halves of the texts.
    """
    if left_out is None and draws is None:
        return None
    without, halves = (None if each is None else each[:, part.index] for each in (left_out, draws))
    at = part.index.tolist().index(place)
    return part[column].notna() & told_apart(part[column].to_numpy(dtype=float), at, left_out=without, draws=halves)


def label(model: Mapping[str, Any]) -> str:
    """Return what a model of a provenance is called in sentences, which is never a path."""
    return str(model.get("label") or short_names([str(model.get("name", ""))])[0])


def task_name(name: Any) -> str:
    """Return a task's name without the version of its texts."""
    return str(name).split("@")[0]
