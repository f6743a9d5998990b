"""GULP: how differently linear predictors on two layers behave, over all targets at once."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from layerscope.errors import InputError
from layerscope.similarity.layer_statistics import RANK_TOLERANCE, LayerStatistics
from layerscope.similarity.registry import Undefined, register


def _inverse_root(side: LayerStatistics, *, ridge: float = 0.0, rank_tolerance: float = RANK_TOLERANCE) -> _Prepared:
    """R with R R' = (S + ridge)^-1 for the covariance S of a side at total variance 1; also tr((R R' S)^2)."""
    if not ridge >= 0:
        raise InputError(f"ridge is {ridge}; it must be 0 or more.")
    if ridge == 0:
        space = side.whitener(tolerance=rank_tolerance)
        if space.shape[1] >= side.n - 1:
            raise Undefined(
                f"a side of rank {space.shape[1]} with {side.n:g} rows predicts every target, whatever the data; use "
                "more rows, or a ridge"
            )
        return space * side.trace**0.5, float(space.shape[1]), side.trace
    values, vectors = side.eigen
    values = values / side.trace
    return vectors / (values + ridge).sqrt(), float((values / (values + ridge)).pow(2).sum()), side.trace


_Prepared = tuple[Tensor, float, float]


@register(
    "gulp",
    family="representation",
    symmetric=True,
    bounds=(0.0, math.inf),
    invariances=("orthogonal", "scaling", "linear", "translation"),
    needs="moments",
    source="Boix-Adsera et al. 2022",
    exact=True,
    factor=_inverse_root,
    distance=True,
    metric=True,
    caveat="A distance: low is alike. Without a ridge it is that of canonical correlations, and layers of other ranks "
    "are apart; with few rows it is low by chance.",
)
def gulp(x: _Prepared, y: _Prepared, cross: Tensor) -> float:
    """The largest difference between the predictions of ridge regressions on two layers, over all targets of size 1.

    Sides are at total variance 1. `ridge=0` is invariant to any linear map, a larger one to rotations alone.
    """
    (left, own, size), (right, other, others) = x, y
    shared = left.T @ (cross / (size * others) ** 0.5) @ right
    return max(own + other - 2 * float(torch.linalg.matrix_norm(shared)) ** 2, 0.0) ** 0.5
