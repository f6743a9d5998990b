"""How much of a layer sits in single neurons (Wu et al. 2020, figures 3 and 7)."""

from __future__ import annotations

from typing import Any

import numpy as np

from layerscope.errors import InputError
from layerscope.results import Curve
from layerscope.similarity.comparing import compare
from layerscope.similarity.similarity import Similarity

_WORDS = {
    "title": "Localization of every layer",
    "shows": "The mean neuron similarity of a layer to all other layers, minus its mean SVCCA similarity to them.",
    "reading": "High: what the layer holds sits in single neurons, in the same ones elsewhere. Low: it is spread out.",
    "caveat": "Both means depend on the number of rows and on which other layers there are.",
}
_OTHERS = {
    "b": "of the layers of all sources, so name them in one list: localization([a, b]).",
    "measure": "a difference of two measures, neuron and svcca.",
    "ci": "a difference of two means, for which no interval is made; leave ci out.",
}
_ROUNDING = 1e-12


def localization(sources: Any, *, standardize: bool = False, **options: Any) -> Curve:
    """Measure how much of each layer sits in single neurons: mean `neuron` minus mean `svcca` similarity to the others.

    Args:
        sources: One model (with `task=`), one set of representations, or a list of either; with several, the other
            layers are those of all of them.
        standardize: Bring both means to mean 0 and standard deviation 1 over all layers before the subtraction, as the
            authors' code does.
        **options: What `ls.compare` takes, except for `b`, `measure` and `ci`.

    Returns:
        A `Curve` over the layers of every source. Both means are over the layers with which both similarities have a
        value; a layer with none has NaN.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> rows = np.random.default_rng(0).normal(size=(200, 6))
        >>> reps = ls.Representations.from_arrays([rows, rows[:, ::-1].copy(), rows**3])
        >>> ls.localization(reps).layers
        [0, 1, 2]
    """
    for name, instead in _OTHERS.items():
        if name in options:
            raise InputError(f"Localization has no {name}: it is {instead}")
    both = compare(sources, measure=["neuron", "svcca"], **options)
    unknown = np.isnan(both["neuron"].values) | np.isnan(both["svcca"].values)
    means = {name: mean_to_others(similarity, unknown) for name, similarity in both.items()}
    if standardize:
        means = {name: _standardized(mean) for name, mean in means.items()}
    axis, provenance = both["neuron"].row_axis, both["neuron"].provenance
    values = means["neuron"] - means["svcca"]
    curve = Curve("localization", list(axis.models), list(axis.layers), values, provenance, words=_WORDS)
    reasons = [reason for similarity in both.values() for reason in similarity.reasons.values()]
    curve.explain_gaps(reasons[0] if reasons else "there are too few layers, or all are equally like the others")
    return curve


def _standardized(means: np.ndarray) -> np.ndarray:
    """Means at mean 0 and standard deviation 1 over the layers; NaN where they are the same up to rounding."""
    known = means[~np.isnan(means)]
    spread = known.std() if len(known) else 0.0
    return (means - known.mean()) / spread if spread > _ROUNDING else np.full_like(means, np.nan)


def mean_to_others(similarity: Similarity, unknown: np.ndarray | bool = False) -> np.ndarray:
    """The mean of each row without its diagonal cell; undefined cells, and those `unknown`, are left out."""
    values = np.where(unknown, np.nan, similarity.values)
    np.fill_diagonal(values, np.nan)
    known = ~np.isnan(values)
    counts = known.sum(axis=1)
    sums = np.where(known, values, 0.0).sum(axis=1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
