"""Statistics of curves over layers: nu and other measures against labels, beside the scores of probes.

The layers are all that a model has, so an interval is over texts: those that probes are scored on, and for nu those
that it is measured on. Probes are not trained anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.evaluation.leaving_out import groups_of
from layerscope.probing.variability import smoothness, specialty
from layerscope.recipes.claims import Statistic
from layerscope.recipes.statistics.learning import unread
from layerscope.recipes.statistics.registry import Values, estimated, register, result
from layerscope.results import Curve

if TYPE_CHECKING:
    from layerscope.extraction.representations import Representations


@register
def goes_with_probes(
    values: Values,
    of: str,
    probes: str,
    sign: int = 1,
    rows: str | None = None,
    over: str | None = None,
    over_sign: int = 1,
    scored: str | None = None,
) -> Statistic:
    """How well a curve goes with probes over layers 1..L: their correlation times `sign`; less that of `over`.

    With `rows` (representations) the curve, or else `over`, is nu of those and is measured without each group of texts.
    `scored` are the representations that probes are scored on: where none beats chance, there is nothing to go with.
    """
    curves = [(result(values, name), s) for name, s in ((of, sign), (over, over_sign)) if name is not None]
    scores = result(values, probes)
    if scored is not None and (reason := unread(scores, result(values, scored), _places(scores))):
        return Statistic.missing(reason)

    def value(probed: np.ndarray, *measured: np.ndarray) -> float:
        each = [s * _correlation(m, probed) for m, (_, s) in zip(measured, curves, strict=True)]
        return each[0] - sum(each[1:])

    known = [_above(curve) for curve, _ in curves]
    whole = value(_above(scores), *known)
    left_out = (
        None
        if scores.left_out is None
        else np.asarray([value(part[_places(scores)], *known) for part in scores.left_out])
    )
    learned = [] if rows is None else [_learned(result(values, rows), curves, known, _above(scores), value)]
    n = len(known[0])
    bound = float(len(curves))  # a correlation lies between -1 and 1
    said = estimated(whole, left_out, *learned, n=n, undefined="one of the curves does not vary", note=f"{n} layers")
    return said.within(-bound, bound)


def _learned(
    reps: Representations,
    curves: Sequence[tuple[Curve, int]],
    known: Sequence[np.ndarray],
    probed: np.ndarray,
    value: Callable[..., float],
) -> np.ndarray:
    """The value with nu of the rows without each group of texts."""
    place = next(k for k, (curve, _) in enumerate(curves) if curve.name == "nu")
    without = [_above(curve) for curve in nu_without_groups(reps)]
    return np.asarray([value(probed, *known[:place], part, *known[place + 1 :]) for part in without])


def nu_without_groups(reps: Representations) -> list[Curve]:
    """nu of the rows without each group of texts."""
    group = groups_of(reps.rows.row)
    return [specialty(reps.select(rows=group != g), null=0) for g in range(group.max() + 1)]


@register
def rougher(values: Values, of: str, than: str) -> Statistic:
    """How much rougher nu of some rows is than of others: zeta, the sum of squared second differences when z-scored."""
    sides: list[Representations] = [result(values, name) for name in (of, than)]
    whole, groups = [], []
    for reps in sides:
        curve = specialty(reps, null=0)
        whole.append(smoothness(curve))
        groups.append(np.asarray([smoothness(part) for part in nu_without_groups(reps)]))
    return estimated(
        whole[0] - whole[1],
        groups[0] - groups[1],
        n=len(sides[0]),
        undefined="nu is undefined in some layers",
        note=f"{whole[0]:.3g} and {whole[1]:.3g}",
    )


@register
def still_agrees(values: Values, of: str, probes: str, setting: int, scored: str | None = None) -> Statistic:
    """How well nu goes with probes in one setting (by its place), less how well in the first; rows are drawn once.

    `scored` as in `goes_with_probes`.
    """
    frame, scores = result(values, of).frame, result(values, probes)
    if scored is not None and (reason := unread(scores, result(values, scored), _places(scores))):
        return Statistic.missing(reason)
    names = list(dict.fromkeys(frame["setting"]))
    if not 0 < setting < len(names):
        return Statistic.missing(f"there are only {len(names)} settings")
    easy, hard = (_nu(frame[frame["setting"] == name]) for name in (names[0], names[setting]))

    def value(probed: np.ndarray) -> float:
        return -_correlation(hard, probed) + _correlation(easy, probed)

    left_out = (
        None if scores.left_out is None else np.asarray([value(part[_places(scores)]) for part in scores.left_out])
    )
    now = [-_correlation(nu, _above(scores)) for nu in (hard, easy)]
    note = f"{names[setting]}: {now[0]:.3g}, {names[0]}: {now[1]:.3g}"
    n = int(frame[frame["setting"] == names[setting]]["n"].iloc[0])
    said = estimated(value(_above(scores)), left_out, n=n, note=note, undefined="one of the curves does not vary")
    return said.within(-2, 2)


def _nu(part: Any) -> np.ndarray:
    return part[part["layer"] >= 1]["nu"].to_numpy(dtype=float)


def _places(curve: Curve) -> list[int]:
    return [k for k, layer in enumerate(curve.layers) if layer >= 1]


def _above(curve: Curve) -> np.ndarray:
    """The values of layers 1..L."""
    return np.asarray(curve.values, dtype=float)[_places(curve)]


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    known = ~np.isnan(x) & ~np.isnan(y)
    x, y = x[known], y[known]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    return float(np.corrcoef(x, y)[0, 1])
