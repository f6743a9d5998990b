"""How much of a layer sits in single neurons (Wu et al. 2020, figures 3 and 7)."""

from __future__ import annotations

from typing import Any

import numpy as np

from layerscope.analysis.curves import Curve
from layerscope.measures import Similarity, compare


def localization(sources: Any, *, standardize: bool = False, **options: Any) -> Curve:
    """Per layer: its mean `neuron` similarity to all other layers minus its mean `svcca` similarity to them.

    `sources` is one model (with `task=`), one set of representations, or a list of either; with several, the other
    layers are those of all of them. `standardize=True` brings both means to mean 0 and standard deviation 1 over all
    layers before the subtraction, as the authors' code does. `options` go to `ls.compare`.
    """
    found = compare(sources, measure=["neuron", "svcca"], **options)
    means = {name: mean_to_others(similarity) for name, similarity in found.items()}
    if standardize:
        means = {name: (m - np.nanmean(m)) / np.nanstd(m) for name, m in means.items()}
    axis = found["neuron"].row_axis
    values = means["neuron"] - means["svcca"]
    return Curve("localization", list(axis.models), list(axis.layers), values, found["neuron"].provenance)


def mean_to_others(similarity: Similarity) -> np.ndarray:
    """The mean of each row without its diagonal cell; undefined cells are left out."""
    values = similarity.values.copy()
    np.fill_diagonal(values, np.nan)
    known = ~np.isnan(values)
    counts = known.sum(axis=1)
    sums = np.where(known, values, 0.0).sum(axis=1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
