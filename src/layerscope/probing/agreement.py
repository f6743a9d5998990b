"""The agreement of two curves over layers, with intervals that allow for neighbouring layers being alike."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from layerscope.errors import InputError, check_level
from layerscope.results import Curve

Interval = tuple[float, float]
_NOISE = 1.5  # steps of independent values are alike with the opposite sign: they count for a third fewer
_LEAST = 4.0  # independent steps below which a correlation has no interval to speak of
_WHOLE: dict[str, Interval] = {
    "pearson": (-1.0, 1.0),
    "spearman": (-1.0, 1.0),
    "slope": (-math.inf, math.inf),
    "r2": (0.0, 1.0),
}


def agreement(curve: Curve, other: Curve, *, ci: float = 0.95) -> dict[str, Any]:
    """Compare two curves over layers 1..L: correlations, and the regression of the second on the first.

    Neighbouring layers are alike, so two curves that have nothing to do with one another often rise or fall together.
    The steps from layer to layer are far less alike: intervals come from those, and are stretched to the value itself
    where it lies outside. Steps that are alike count for fewer.

    Args:
        curve: A curve over layers.
        other: Another one; the layers count at which both have a value that is finite.
        ci: The level of the intervals.

    Returns:
        `pearson`, `spearman`, `slope`, `r2`, `n` (layers), `intervals` with a pair of bounds for each, and `note`: why
        the intervals are without bounds where the layers are too few to tell or a curve is flat, else an empty text.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> one, two = (ls.Curve(n, ["m"] * 5, [0, 1, 2, 3, 4], np.arange(5.0) ** p) for n, p in (("a", 1), ("b", 3)))
        >>> agreed = ls.agreement(one, two)
        >>> agreed["spearman"], agreed["intervals"]["spearman"], agreed["note"]
        (1.0, (-1.0, 1.0), '4 layers are too few to tell how two curves agree: neighbouring layers are alike.')
    """
    check_level(ci)
    pairs = _common(curve, other)
    if len(pairs) < 3:
        raise InputError(f"Two curves agree over at least 3 common layers; these have {len(pairs)}.")
    values = _values(pairs)
    steps = np.diff(pairs, axis=0)
    count = _independent(steps)
    bounded = count >= _LEAST and not math.isnan(values["pearson"])
    bounds = _bounds(steps, count, ci) if bounded else _WHOLE
    intervals = {
        name: (min(bounds[name][0], value), max(bounds[name][1], value)) if not math.isnan(value) else (math.nan,) * 2
        for name, value in values.items()
    }
    note = f"{len(pairs)} layers are too few to tell how two curves agree: neighbouring layers are alike."
    if math.isnan(values["pearson"]):
        note = "One of the curves is flat, so that there is nothing to agree with."
    return {**values, "n": len(pairs), "intervals": intervals, "note": "" if bounded else note}


def correlation(curve: Curve, other: Curve, value: str = "pearson") -> float:
    """One figure of `agreement`, without its interval; NaN with fewer than 3 common layers."""
    pairs = _common(curve, other)
    return _values(pairs)[value] if len(pairs) >= 3 else math.nan


def _common(curve: Curve, other: Curve) -> np.ndarray:
    """(layers, 2) the values of both curves at the layers above 0 at which both are finite."""
    for each in (curve, other):
        if len(models := dict.fromkeys(each.models)) > 1:
            raise InputError(
                f"Curves agree over the layers of one model, and this one of {each.name} has those of {len(models)}: "
                f"{', '.join(models)}."
            )
    layers = [layer for layer in curve.layers if layer in other.layers and layer >= 1]
    pairs = np.asarray([[c.values[c.layers.index(layer)] for c in (curve, other)] for layer in layers]).reshape(-1, 2)
    return pairs[np.isfinite(pairs).all(axis=1)]


def _values(pairs: np.ndarray) -> dict[str, float]:
    """The correlations, the slope and R² of pairs of values; NaN where one curve is flat."""
    x, y = pairs.T
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return dict.fromkeys(_WHOLE, math.nan)
    pearson = _pearson(x, y)
    return {"pearson": pearson, "spearman": _spearman(x, y), "slope": float(np.polyfit(x, y, 1)[0]), "r2": pearson**2}


def _pearson(x: np.ndarray, y: np.ndarray) -> float:
    """Pearson's correlation; 0 where one side is constant."""
    return float(np.clip(np.corrcoef(x, y)[0, 1], -1, 1)) if np.ptp(x) > 0 and np.ptp(y) > 0 else 0.0


def _spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's rank correlation; 0 where one side is constant."""
    from scipy.stats import rankdata

    return _pearson(rankdata(x), rankdata(y))


def _independent(steps: np.ndarray) -> float:
    """The number of independent steps that as many autocorrelated ones (steps, 2) count for.

    The autocorrelation of few steps comes out too low by (1 + 3 phi) / m (Kendall 1954), which is added again.
    """
    m = len(steps)
    alike = 1.0
    for each in (steps - steps.mean(axis=0)).T:
        power = float(each @ each)
        phi = float(each[1:] @ each[:-1]) / power if power > 0 else 1.0
        alike *= min(max(phi + (1 + 3 * phi) / m, 0.0), 0.99)
    return m / max(_NOISE, (1 + alike) / (1 - alike))


def _bounds(steps: np.ndarray, count: float, ci: float) -> dict[str, Interval]:
    """The intervals of the steps' correlations by Fisher's transformation, and of their slope by its standard error."""
    from scipy.special import ndtri, stdtrit

    x, y = steps.T
    width = float(ndtri((1 + ci) / 2))

    def fisher(value: float, variance: float) -> Interval:
        middle = math.atanh(min(max(value, -1 + 1e-12), 1 - 1e-12))
        low, high = (math.tanh(middle + sign * width * math.sqrt(variance / (count - 3))) for sign in (-1, 1))
        return low, high

    pearson = fisher(_pearson(x, y), 1.0)
    spearman = fisher(_spearman(x, y), 1.06)  # Fieller et al. 1957
    r = _pearson(x, y)
    scale = float(y.std() / x.std()) if x.std() > 0 else math.inf
    error = float(stdtrit(count - 2, (1 + ci) / 2)) * scale * math.sqrt(max(1 - r * r, 0.0) / (count - 2))
    squares = sorted((pearson[0] ** 2, pearson[1] ** 2))
    r2 = (0.0 if pearson[0] <= 0 <= pearson[1] else squares[0], squares[1])
    return {"pearson": pearson, "spearman": spearman, "slope": (r * scale - error, r * scale + error), "r2": r2}
