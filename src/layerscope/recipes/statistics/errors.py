"""Statistics of aligners' errors: the squared error on held-out rows over the spread of Y."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from layerscope.recipes.claims import Statistic
from layerscope.recipes.statistics.registry import Range, Values, mean, register, result, within

if TYPE_CHECKING:
    import pandas

_NAMES = ("relative", "relative_low", "relative_high")


@register
def error_gap(
    values: Values,
    of: str,
    layers: Range = (0, 1),
    method: str = "linear",
    minus: str | None = None,
    minus_layers: Range | None = None,
    minus_method: str | None = None,
) -> Statistic:
    """The mean relative error of layers of the same number, less that of another study, other layers or another method.

    The pairs of models are shown one by one in the note.
    """
    frames = result(values, of).frame, result(values, minus or of).frame
    sides = [(frames[0], layers, method), (frames[1], minus_layers or layers, minus_method or method)]
    parts = [_errors(*side) for side in sides]
    gap = parts[0][0].minus(parts[1][0])
    common = [pair for pair in parts[0][1] if pair in parts[1][1]]
    by_pair = ", ".join(f"{parts[0][1][pair] - parts[1][1][pair]:.3g}" for pair in common)
    return gap if gap.reason or len(common) < 2 else gap.noted(f"pair by pair {by_pair}")


def _errors(frame: pandas.DataFrame, layers: Range, method: str) -> tuple[Statistic, dict[tuple[str, str], float]]:
    """The mean error over pairs of models and layers, and that of every pair."""
    known = frame[(frame["split"] == "test") & (frame["method"] == method) & (frame["layer"] == frame["target_layer"])]
    rows = known[within(known["layer"].to_numpy(), layers, _top(known))] if len(known) else known
    if not len(rows):
        return Statistic.missing(f"{method} has no error on these layers"), {}
    pairs = list(zip(rows["source"].map(str), rows["target"].map(str), strict=True))
    errors = rows["relative"].to_numpy(dtype=float)
    by_pair = {pair: float(errors[[each == pair for each in pairs]].mean()) for pair in dict.fromkeys(pairs)}
    return mean(_each(rows)), by_pair


@register
def distance_gap(values: Values, of: str, method: str = "linear") -> Statistic:
    """The mean relative error between layers half the depth apart or more, less that between neighbours."""
    frame = result(values, of).frame
    rows = frame[(frame["split"] == "test") & (frame["method"] == method)]
    apart = (rows["layer"] - rows["target_layer"]).abs()
    far, near = rows[apart >= max(2, _top(rows) // 2)] if len(rows) else rows, rows[apart == 1]
    if not len(far) or not len(near):
        return Statistic.missing("it takes layers next to each other and layers half the depth apart")
    return mean(_each(far)).minus(mean(_each(near)))


@register
def recovers(values: Values, of: str, truth: str, method: str) -> Statistic:
    """The largest relative error, over repeats without noise, of a method that has to find a map of a known kind."""
    frame = result(values, of).frame
    rows = frame[(frame["truth"] == truth) & (frame["method"] == method) & (frame["noise"] == 0)]
    if not len(rows):
        return Statistic.missing(f"{method} was not tried on {truth}")
    return max(_each(rows), key=lambda each: each.value)


def _each(rows: pandas.DataFrame) -> list[Statistic]:
    bounds = [[float(row[name]) for name in _NAMES] for row in rows.to_dict("records")]
    return [Statistic(value, low, high, n=int(n)) for (value, low, high), n in zip(bounds, rows["n"], strict=True)]


def _top(rows: pandas.DataFrame) -> int:
    return int(np.max([rows["layer"].max(), rows["target_layer"].max()])) if len(rows) else 0
