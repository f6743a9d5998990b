"""Measures that compare a row with the same row in another layer: whether both point the same way."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from layerscope.similarity.registry import register

_NEARLY = 1 - 1e-6  # above this cosine the angle is that of the chord: arccos of a rounded cosine loses its digits
_AT_ONCE = 1 << 22  # numbers of a portion of chords


@register(
    "cosine",
    family="rowwise",
    symmetric=True,
    bounds=(-1.0, 1.0),
    invariances=("scaling",),
    needs="sums",
    source="Men et al. 2024 (ShortGPT)",
    caveat="Nothing is centred: an offset that all rows share, or one runaway neuron, makes every cosine high.",
)
def cosine(left: Tensor, right: Tensor, cosines: Tensor) -> Tensor:
    """Mean over rows of the cosine of a row in one layer and the same row in the other."""
    return cosines


@register(
    "angular",
    family="rowwise",
    symmetric=True,
    bounds=(0.0, 1.0),
    invariances=("scaling",),
    needs="sums",
    source="Gromov et al. 2024",
    distance=True,
    metric=True,
    caveat="A distance: low is alike. Nothing is centred: an offset that all rows share, or one runaway neuron, makes "
    "every angle small.",
)
def angular(left: Tensor, right: Tensor, cosines: Tensor) -> Tensor:
    """Mean over rows of the angle between a row in one layer and the same row in the other, over pi: a distance."""
    return angles(left, right, cosines) / math.pi


def angles(left: Tensor, right: Tensor, cosines: Tensor) -> Tensor:
    """(k, R, C) the angles of unit rows (k, R, d) and (k, C, d) with these cosines, accurate down to tiny ones.

    Near 0 and pi the angle is that of the chord, 2 asin(|u - v| / 2).
    """
    exact = torch.arccos(cosines)
    near, same = cosines.abs() > _NEARLY, left is right
    if same:  # a layer with itself, and every pair twice
        near.triu_(diagonal=1)
        exact.diagonal(dim1=-2, dim2=-1).zero_()
    for k, i, j in (part.T for part in near.nonzero().split(1 + _AT_ONCE // left.shape[-1])):
        sign = cosines[k, i, j].sign()
        chord = (left[k, i] - sign[:, None] * right[k, j]).norm(dim=1)
        small = 2 * torch.asin((chord / 2).clamp(max=1.0))
        exact[k, i, j] = torch.where(sign > 0, small, math.pi - small)
        if same:
            exact[k, j, i] = exact[k, i, j]
    return exact
