"""How much of a layer sits in single neurons (Wu et al. 2020, figures 3 and 7)."""

from __future__ import annotations

from typing import Any

import numpy as np

from layerscope.results import Curve
from layerscope.similarity.comparing import compare
from layerscope.similarity.similarity import Similarity

_WORDS = {
    "title": "Localization of every layer",
    "shows": "The mean neuron similarity of a layer to all other layers, minus its mean SVCCA similarity to them.",
    "reading": "High: what the layer holds sits in single neurons, in the same ones elsewhere. Low: it is spread out.",
    "caveat": "Both means depend on the number of rows and on which other layers there are.",
}


def localization(sources: Any, *, standardize: bool = False, **options: Any) -> Curve:
    """Measure how much of each layer sits in single neurons: mean `neuron` minus mean `svcca` similarity to the others.

    Args:
        sources: One model (with `task=`), one set of representations, or a list of either; with several, the other
            layers are those of all of them.
        standardize: Bring both means to mean 0 and standard deviation 1 over all layers before the subtraction, as the
            authors' code does.
        **options: What `ls.compare` takes.

    Returns:
        A `Curve` over the layers of every source.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> rows = np.random.default_rng(0).normal(size=(200, 6))
        >>> reps = ls.Representations.from_arrays([rows, rows[:, ::-1].copy(), rows**3])
        >>> ls.localization(reps).layers
        [0, 1, 2]
    """
    both = compare(sources, measure=["neuron", "svcca"], **options)
    means = {name: mean_to_others(similarity) for name, similarity in both.items()}
    if standardize:
        means = {name: (m - np.nanmean(m)) / np.nanstd(m) for name, m in means.items()}
    axis, provenance = both["neuron"].row_axis, both["neuron"].provenance
    values = means["neuron"] - means["svcca"]
    return Curve("localization", list(axis.models), list(axis.layers), values, provenance, words=_WORDS)


def mean_to_others(similarity: Similarity) -> np.ndarray:
    """The mean of each row without its diagonal cell; undefined cells are left out."""
    values = similarity.values.copy()
    np.fill_diagonal(values, np.nan)
    known = ~np.isnan(values)
    counts = known.sum(axis=1)
    sums = np.where(known, values, 0.0).sum(axis=1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
