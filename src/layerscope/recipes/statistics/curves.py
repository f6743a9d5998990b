"""Statistics of curves over layers: nu and other measures against labels, beside the scores of probes.

The layers are all that a model has, so an interval is over texts: those that probes are scored on, and for nu and the
numerical rank those that they are measured on. Probes are not trained anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.evaluation.evaluator import groups_of
from layerscope.probing.label_measures import numerical_rank
from layerscope.probing.robustness import drawn
from layerscope.probing.specialty import smoothness, specialty
from layerscope.recipes.claims import Statistic
from layerscope.recipes.statistics.learning import unread
from layerscope.recipes.statistics.registry import Values, estimated, register, result
from layerscope.results import Curve

if TYPE_CHECKING:
    from layerscope.extraction.representations import Representations


@register("correlation")
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

    With `rows`, the representations that the curves are of, nu and the numerical rank are measured without each group
    of texts; label CCA and mutual information take too long for that and stay as they are, which the note says.
    `scored` are the representations that probes are scored on: where none beats chance, there is nothing to go with.
    """
    curves = [(result(values, name), s) for name, s in ((of, sign), (over, over_sign)) if name is not None]
    scores = result(values, probes)
    if scored is not None and (reason := unread(scores, result(values, scored), _places(scores))):
        return Statistic.missing(reason)

    def value(probed: np.ndarray, *measured: np.ndarray) -> float:
        each = [s * _correlation(m, probed) for m, (_, s) in zip(measured, curves, strict=True)]
        return each[0] - sum(each[1:])

    measured_values = [_above(curve) for curve, _ in curves]
    whole = value(_above(scores), *measured_values)
    left_out = (
        None
        if scores.left_out is None
        else np.asarray([value(part[_places(scores)], *measured_values) for part in scores.left_out])
    )
    learned, fixed = [], [curve.name for curve, _ in curves if curve.name not in _QUICK]
    if rows is not None:
        without = _without_groups(result(values, rows), [curve for curve, _ in curves])
        learned = [np.asarray([value(_above(scores), *parts) for parts in without])]
    n = len(measured_values[0])
    explained = [] if over else [f"R2 = {whole**2:.3g}"]  # of the regression of probes on the curve
    note = "; ".join([f"{n} layers", *explained, *(f"{name} is not resampled" for name in fixed if rows is not None)])
    bound = float(len(curves))  # a correlation lies between -1 and 1
    texts = n if scored is None else len(result(values, scored))
    statistic = estimated(whole, left_out, *learned, n=texts, undefined="one of the curves does not vary", note=note)
    return statistic.within(-bound, bound)


# What can be measured again without each group of texts, by the names of the curves.
_QUICK: dict[str, Callable[[Representations], Curve]] = {
    "nu": lambda reps: specialty(reps, null=0, press=False),
    "numerical_rank": numerical_rank,
}


def _without_groups(reps: Representations, curves: Sequence[Curve]) -> list[list[np.ndarray]]:
    """Return the values of some curves without each group of texts; curves that take long stay as they are with all."""
    group = groups_of(reps.rows.row)
    parts = [reps.select(rows=group != g) for g in range(group.max() + 1)]
    return [[_above(_QUICK[c.name](part) if c.name in _QUICK else c) for c in curves] for part in parts]


def nu_without_groups(reps: Representations) -> list[Curve]:
    """Return nu of the rows without each group of texts."""
    group = groups_of(reps.rows.row)
    return [specialty(reps.select(rows=group != g), null=0, press=False) for g in range(group.max() + 1)]


@register("correlation")
def rises(values: Values, of: str, rows: str) -> Statistic:
    """How nu goes with the number of the layer, 1..L: their correlation; `rows` are what it was measured on."""
    curve: Curve = result(values, of)
    layers = np.asarray(curve.layers, dtype=float)[_places(curve)]
    groups = np.asarray([_correlation(_above(part), layers) for part in nu_without_groups(result(values, rows))])
    statistic = estimated(
        _correlation(_above(curve), layers), groups, n=len(result(values, rows)), undefined="nu does not vary"
    )
    return statistic.within(-1, 1)


@register("zeta")
def rougher(values: Values, of: str, than: str) -> Statistic:
    """How much rougher nu of some rows is than of others: zeta, the sum of squared second differences when z-scored."""
    sides: list[Representations] = [result(values, name) for name in (of, than)]
    whole, groups = [], []
    for reps in sides:
        curve = specialty(reps, null=0, press=False)
        whole.append(smoothness(curve))
        groups.append(np.asarray([smoothness(part) for part in nu_without_groups(reps)]))
    return estimated(
        whole[0] - whole[1],
        groups[0] - groups[1],
        n=len(sides[0]),
        undefined="nu is undefined in some layers",
        note=f"{whole[0]:.3g} and {whole[1]:.3g}",
    )


@register("correlation")
def still_agrees(
    values: Values, of: str, probes: str, setting: int, rows: str | None = None, scored: str | None = None
) -> Statistic:
    """How well nu goes with probes in one setting (by its place), less how well in the first.

    Where it does not surely go with probes in the first, it has nothing to lose. `rows` are the representations that
    the settings were drawn from: nu of what was drawn is measured without each group of texts. `scored` as in
    `goes_with_probes`.
    """
    study, scores = result(values, of), result(values, probes)
    if scored is not None and (reason := unread(scores, result(values, scored), _places(scores))):
        return Statistic.missing(reason)
    frame = study.frame
    names = list(dict.fromkeys(frame["setting"]))
    if not 0 < setting < len(names):
        return Statistic.missing(f"there are only {len(names)} settings")
    chosen = [names[0], names[setting]]
    nu = [_nu(frame[frame["setting"] == name]) for name in chosen]
    scored_without = scores.left_out
    groups = [None if scored_without is None else [_agreeing(nu, part[_places(scores)]) for part in scored_without]]
    if rows is not None:
        groups.append([_agreeing(part, _above(scores)) for part in _drawn(study, result(values, rows), chosen)])
    both, n = _agreeing(nu, _above(scores)), int(frame[frame["setting"] == chosen[1]]["n"].iloc[0])

    def combined(weights: Sequence[int], note: str = "") -> Statistic:
        parts = [None if group is None else np.asarray(group) @ weights for group in groups]
        undefined = "one of the curves does not vary"
        return estimated(float(np.dot(both, weights)), *parts, n=n, note=note, undefined=undefined)

    easy = combined([1, 0]).within(-1, 1)
    if easy.low <= 0:
        bounds = f"{easy.value:.3g}, {easy.low:.3g} to {easy.high:.3g}"
        return Statistic.missing(f"nu does not surely go with probes at {chosen[0]} already ({bounds})")
    return combined([-1, 1], f"{chosen[1]}: {both[1]:.3g}, {chosen[0]}: {both[0]:.3g}").within(-2, 2)


def _agreeing(nu: Sequence[np.ndarray], probed: np.ndarray) -> tuple[float, float]:
    """Return how well nu goes with probes in two settings: low nu, high score."""
    first, second = (-_correlation(each, probed) for each in nu)
    return first, second


def _drawn(study: Any, reps: Representations, settings: Sequence[str]) -> list[list[np.ndarray]]:
    """Return nu of the rows that some settings have drawn, without each group of all texts."""
    settings_of_study = study.provenance["settings"]
    parts = [drawn(reps, settings_of_study["drawn"][name], settings_of_study["seed"]) for name in settings]
    group = dict(zip(reps.rows.row.tolist(), groups_of(reps.rows.row).tolist(), strict=True))
    groups_by_part = [np.asarray([group[text] for text in part.rows.row.tolist()]) for part in parts]
    return [
        [
            _above(specialty(part.select(rows=groups_of_part != g), null=0, press=False))
            for part, groups_of_part in zip(parts, groups_by_part, strict=True)
        ]
        for g in range(max(group.values()) + 1)
    ]


def _nu(part: Any) -> np.ndarray:
    return part[part["layer"] >= 1]["nu"].to_numpy(dtype=float)


def _places(curve: Curve) -> list[int]:
    return [k for k, layer in enumerate(curve.layers) if layer >= 1]


def _above(curve: Curve) -> np.ndarray:
    """Return the values of layers 1..L."""
    return np.asarray(curve.values, dtype=float)[_places(curve)]


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Return Pearson's correlation where both are defined; NaN for fewer than three values, or constant ones."""
    defined = ~np.isnan(x) & ~np.isnan(y)
    x, y = x[defined], y[defined]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    return float(np.corrcoef(x, y)[0, 1])
