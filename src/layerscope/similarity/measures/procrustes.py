"""Distances of shapes: how far apart two layers stay after one is turned, or its columns permuted, onto the other.

The similarity `procrustes` is in `linear`; these are the metrics of Williams et al. 2021 beside it, and two measures
that align raw rows.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from layerscope.similarity.layer_statistics import LayerStatistics
from layerscope.similarity.registry import Undefined, register

_WILLIAMS = "Williams et al. 2021"


def _nuclear_norm(cross: Tensor) -> float:
    """The sum of singular values, by an SVD: a distance of 0 is the root of what a faster way would round."""
    return float(torch.linalg.svdvals(cross).sum())


@register(
    "procrustes_angular",
    family="representation",
    symmetric=True,
    bounds=(0.0, math.pi),
    invariances=("orthogonal", "scaling", "translation"),
    needs="moments",
    source=_WILLIAMS,
    exact=True,
    distance=True,
    metric=True,
    caveat="A distance: low is alike. The arc cosine of procrustes; low by chance where rows are few.",
)
def procrustes_angular(x: LayerStatistics, y: LayerStatistics, cross: Tensor) -> float:
    """The angle between two layers after the best rotation of one: arccos of `procrustes`, a metric on shapes."""
    return math.acos(min(_nuclear_norm(cross) / (x.trace * y.trace) ** 0.5, 1.0))


@register(
    "procrustes_size_and_shape",
    family="representation",
    symmetric=True,
    bounds=(0.0, math.inf),
    invariances=("orthogonal", "translation"),
    needs="moments",
    source=_WILLIAMS,
    exact=True,
    distance=True,
    metric=True,
    growth=0.5,
    caveat="A distance: low is alike. It has the unit of the states and grows with the root of the number of rows.",
)
def procrustes_size_and_shape(x: LayerStatistics, y: LayerStatistics, cross: Tensor) -> float:
    """The Frobenius distance of two centred layers after the best rotation of one, sizes and all."""
    return max(x.trace + y.trace - 2 * _nuclear_norm(cross), 0.0) ** 0.5


def _rows(x: Tensor) -> Tensor:
    """The rows as they are: nothing is centred, and what is aligned depends on the pair."""
    return x


def _reordered(x: Tensor, order: Tensor) -> Tensor:
    return x[order]


@register(
    "permutation_procrustes",
    family="neuron",
    symmetric=True,
    bounds=(0.0, math.inf),
    invariances=(),
    needs="rows",
    source=_WILLIAMS,
    factor=_rows,
    reorder=_reordered,
    distance=True,
    metric=True,
    growth=0.5,
    caveat="A distance: low is alike. Tied to the axes; it has the unit of the states and grows with the root of the "
    "number of rows.",
)
def permutation_procrustes(x: Tensor, y: Tensor) -> float:
    """The Frobenius distance of two raw layers after the best matching of columns; the narrower is filled with 0."""
    from scipy.optimize import linear_sum_assignment

    narrow, wide = (x, y) if x.shape[1] <= y.shape[1] else (y, x)
    # Which order is best does not depend on what all columns share, and products of large numbers would hide the rest.
    # Columns of 0 share nothing, so where the narrower side is filled with them nothing is taken out.
    shared = (x.mean() + y.mean()) / 2 if x.shape[1] == y.shape[1] else 0.0
    products = ((narrow - shared).T @ (wide - shared)).cpu().numpy()
    places = torch.as_tensor(linear_sum_assignment(products, maximize=True)[1], device=x.device)
    # The difference itself: sums of squares less products cancel where an offset is large.
    return float(wide.index_add(1, places, narrow, alpha=-1).norm())


@register(
    "aligned_cosine",
    family="rowwise",
    symmetric=True,
    bounds=(-1.0, 1.0),
    invariances=("orthogonal", "scaling"),
    needs="rows",
    source="Hamilton et al. 2016",
    factor=_rows,
    reorder=_reordered,
    caveat="Nothing is centred: an offset that all rows share makes it high. The rotation is fitted on the same rows, "
    "so it is high by chance where rows are few: compare with the baseline.",
)
def aligned_cosine(x: Tensor, y: Tensor) -> float:
    """Mean over rows of the cosine of a row in both layers after the best rotation of one onto the other."""
    norms = x.norm(dim=1) * y.norm(dim=1)
    if not bool((norms > 0).all()):
        raise Undefined("a row is 0, so it has no direction")
    left, _, right = torch.linalg.svd(x.T @ y, full_matrices=False)
    return float((((x @ left @ right) * y).sum(dim=1) / norms).clamp(-1.0, 1.0).mean())
