"""Statistics of one layer, and how far two layers differ in them: row i need not be the same thing in both."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from layerscope.errors import InputError
from layerscope.similarity.measures.kernels import distances
from layerscope.similarity.registry import Undefined, register

_WANG = "Wang et al. 2022"
CAVEAT = (
    "A difference of one number of each layer: 0 does not say that layers are alike, and shuffled texts give the same."
)


def unmoved(value: Any, order: Tensor) -> Any:
    """The statistic of the rows in another order."""
    return value


_OF_ONE: dict[str, Any] = {"symmetric": True, "needs": "rows", "reorder": unmoved, "distance": True, "caveat": CAVEAT}


def _concentricity(x: Tensor) -> float:
    """Mean cosine of the raw rows with their mean."""
    mean = x.mean(dim=0)
    norms = x.norm(dim=1) * mean.norm()
    if not bool((norms > 0).all()):
        raise Undefined("a row, or the mean of all, is 0, so it has no direction")
    return float((x @ mean / norms).mean())


@register(
    "concentricity_difference",
    family="statistic",
    bounds=(0.0, 2.0),
    invariances=("orthogonal", "scaling"),
    source=_WANG,
    factor=_concentricity,
    **_OF_ONE,
)
def concentricity_difference(a: float, b: float) -> float:
    """How much two layers differ in the mean cosine of a raw row with the mean of all rows."""
    return abs(a - b)


def _magnitude(x: Tensor) -> float:
    """The length of the mean raw row."""
    return float(x.mean(dim=0).norm())


@register(
    "magnitude_difference",
    family="statistic",
    bounds=(0.0, math.inf),
    invariances=("orthogonal",),
    source=_WANG,
    factor=_magnitude,
    **_OF_ONE,
)
def magnitude_difference(a: float, b: float) -> float:
    """How much two layers differ in the length of their mean raw row."""
    return abs(a - b)


def _uniformity(x: Tensor, *, t: float = 2.0) -> float:
    """The log of the mean of exp(-t d^2) over all n^2 pairs of rows at distance d, a row with itself among them."""
    if not t > 0:
        raise InputError(f"t is {t}; it must be above 0.")
    return float(torch.logsumexp(-t * distances(x).pow(2).flatten(), dim=0)) - 2 * math.log(len(x))


@register(
    "uniformity_difference",
    family="statistic",
    bounds=(0.0, math.inf),
    invariances=("orthogonal", "translation"),
    source=_WANG,
    factor=_uniformity,
    **_OF_ONE,
)
def uniformity_difference(a: float, b: float) -> float:
    """How much two layers differ in uniformity, the log of the mean Gaussian kernel of two rows (Wang & Isola 2020)."""
    return abs(a - b)
