"""Statistics by name, and what all of them share: reading results, parts of a depth, intervals by the jackknife."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from layerscope.recipes.claims import Statistic
from layerscope.recipes.recipe import REFERENCE, resolved
from layerscope.registry import STATISTICS, UNITS
from layerscope.resampling import jackknifed

Values = Mapping[str, Any]
Range = Sequence[float]  # of depth: 0 is below the first block, 1 the top layer; both ends belong to it
_EPSILON = 1e-9


def register(unit: str) -> Callable[[Callable[..., Statistic]], Callable[..., Statistic]]:
    """Make a function a statistic under its name; `unit` is what its number is a number of."""

    def registered(function: Callable[..., Statistic]) -> Callable[..., Statistic]:
        STATISTICS[function.__name__], UNITS[function.__name__] = function, unit
        return function

    return registered


def result(values: Values, name: str) -> Any:
    """Return the result of a call; what follows a dot is a part of it, as `states.cka`."""
    return resolved(f"{REFERENCE}{name}", values)


def within(numbers: Sequence[int] | np.ndarray, part: Range, top: int) -> np.ndarray:
    """Return which of some layers or blocks lie in a range of depth."""
    depth = np.asarray(numbers, dtype=float) / max(top, 1)
    return (part[0] - _EPSILON <= depth) & (depth <= part[1] + _EPSILON)


def estimated(
    value: float, *left_out: np.ndarray | None, n: int, least: float = 0.0, note: str = "", undefined: str = ""
) -> Statistic:
    """Return a number with its interval, from what it is without each group of texts.

    Several arrays are of several independent sets of texts (those that are learned from, those that are scored): their
    variances add up. `least` is what the half-width is at least. Without groups there is no interval.
    """
    if math.isnan(value):
        return Statistic.missing(undefined or "it is undefined")
    parts = [part for part in left_out if part is not None]
    if not parts or len(parts) < len(left_out) or any(len(part) < 2 for part in parts):
        return Statistic(value, n=n, note=note)
    half = max(math.hypot(*(float(jackknifed(np.asarray(part))) for part in parts)), least)
    return Statistic(value, value - half, value + half, n=n, note=note)


def mean(parts: Sequence[Statistic]) -> Statistic:
    """Return the mean of some statistics of the same texts; half-widths are averaged, as errors may go one way."""
    if not parts:
        return Statistic.missing("there are no such layers")
    low, value, high = (float(np.mean([getattr(p, name) for p in parts])) for name in ("low", "value", "high"))
    return Statistic(value, low, high, n=min(p.n for p in parts))
