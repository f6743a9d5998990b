"""Statistics of aligners' errors: the squared error on held-out rows over the spread of Y."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.recipes.claims import Statistic
from layerscope.recipes.statistics.registry import Range, Values, estimated, mean, register, result, within

if TYPE_CHECKING:
    import pandas

RELATIVE, SQUARED = "relative", "mse"  # the error over the spread of Y, and the mean squared error per entry


@register("relative error")
def error_gap(
    values: Values,
    of: str,
    layers: Range = (0, 1),
    method: str = "linear",
    minus: str | None = None,
    minus_layers: Range | None = None,
    minus_method: str | None = None,
    by: str = RELATIVE,
) -> Statistic:
    """The mean relative error of layers of the same number, less that of another study, other layers or another method.

    Text for text where both are of the same texts, else as if the two were independent. The pairs of models are shown
    one by one in the note.
    """
    studies = result(values, of), result(values, minus or of)
    sides = [(studies[0], layers, method), (studies[1], minus_layers or layers, minus_method or method)]
    chosen = [_same_number(study, part, name) for study, part, name in sides]
    for rows, (_, _, name) in zip(chosen, sides, strict=True):
        if not len(rows):
            return Statistic.missing(f"{name} has no error on these layers")
    by_pair = [rows.groupby(["source", "target"], sort=False)[by].mean() for rows in chosen]
    apart = [f"{by_pair[0][pair] - by_pair[1][pair]:.3g}" for pair in by_pair[0].index if pair in by_pair[1].index]
    gap = _difference(studies, chosen, by)
    return gap if gap.reason or len(apart) < 2 else gap.noted(f"pair by pair {', '.join(apart)}")


@register("squared error")
def squared_error_gap(values: Values, of: str, **options: Any) -> Statistic:
    """As `error_gap`, of the mean squared error per entry, which grows with the scale of what is mapped."""
    return error_gap(values, of, by=SQUARED, **options)


def _same_number(study: Any, layers: Range, method: str) -> pandas.DataFrame:
    """Return the test errors of a method between layers of the same number, in a range of depth."""
    frame = study.frame
    tested = frame[(frame["split"] == "test") & (frame["method"] == method) & (frame["layer"] == frame["target_layer"])]
    return tested[within(tested["layer"].to_numpy(), layers, _top(tested))] if len(tested) else tested


def _difference(studies: tuple[Any, Any], chosen: Sequence[pandas.DataFrame], by: str = RELATIVE) -> Statistic:
    """Return the mean error of some rows less that of others, with its interval.

    Squared errors are not measured without each group of texts; those of two studies are taken as independent.
    """
    groups = [
        _without_groups(study, rows) if by == RELATIVE else None for study, rows in zip(studies, chosen, strict=True)
    ]
    n = [int(rows["n"].min()) for rows in chosen]
    if n[0] != n[1] or any(part is None for part in groups):
        return mean(_each(chosen[0], by)).minus(mean(_each(chosen[1], by)))
    first, second = (float(rows["relative"].mean()) for rows in chosen)
    return estimated(first - second, np.asarray(groups[0]) - np.asarray(groups[1]), n=n[0])


def _without_groups(study: Any, rows: pandas.DataFrame) -> np.ndarray | None:
    """Return (groups,) the mean error of some rows without each group of texts, or None where that was not measured."""
    left_out = getattr(study, "left_out", None)
    if left_out is None:
        return None
    groups = np.asarray(left_out[study.frame.index.get_indexer(rows.index)])
    return np.asarray(groups[:, ~np.isnan(groups).any(axis=0)].mean(axis=0))


@register("relative error")
def distance_gap(values: Values, of: str, method: str = "linear") -> Statistic:
    """The mean relative error between layers half the depth apart or more, less that between neighbours."""
    study = result(values, of)
    frame = study.frame
    rows = frame[(frame["split"] == "test") & (frame["method"] == method)]
    apart = (rows["layer"] - rows["target_layer"]).abs()
    far, near = rows[apart >= max(2, _top(rows) // 2)] if len(rows) else rows, rows[apart == 1]
    if not len(far) or not len(near):
        return Statistic.missing("it takes layers next to each other and layers half the depth apart")
    return _difference((study, study), [far, near])


@register("relative error")
def recovers(values: Values, of: str, truth: str, method: str) -> Statistic:
    """The relative error of a method that has to find a map of a known kind, averaged over repeats without noise.

    The repeats are shown one by one in the note: each is another map.
    """
    frame = result(values, of).frame
    rows = frame[(frame["truth"] == truth) & (frame["method"] == method) & (frame["noise"] == 0)]
    if not len(rows):
        return Statistic.missing(f"{method} was not tried on {truth}")
    each = _each(rows)
    return mean(each).noted(f"repeat by repeat {', '.join(f'{part.value:.3g}' for part in each)}" if each[1:] else "")


def _each(rows: pandas.DataFrame, by: str = RELATIVE) -> list[Statistic]:
    names = (by, f"{by}_low", f"{by}_high")
    bounds = [[float(row[name]) for name in names] for row in rows.to_dict("records")]
    return [Statistic(value, low, high, n=int(n)) for (value, low, high), n in zip(bounds, rows["n"], strict=True)]


def _top(rows: pandas.DataFrame) -> int:
    return int(np.max([rows["layer"].max(), rows["target_layer"].max()])) if len(rows) else 0
