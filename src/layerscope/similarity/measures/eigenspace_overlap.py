"""Eigenspace overlap: how much of the spaces that the columns of two layers span is in common."""

from __future__ import annotations

import torch
from torch import Tensor

from layerscope.similarity.registry import register


def _span(x: Tensor) -> tuple[Tensor, int]:
    """(n, r) an orthonormal basis of the raw columns, and how many columns there are."""
    left, values, _ = torch.linalg.svd(x, full_matrices=False)
    # The same limit as numpy's matrix_rank: what is below it is rounding.
    rank = int((values > values[0] * max(x.shape) * torch.finfo(x.dtype).eps).sum())
    return left[:, :rank], x.shape[1]


def _reordered(span: tuple[Tensor, int], order: Tensor) -> tuple[Tensor, int]:
    return span[0][order], span[1]


@register(
    "eigenspace_overlap",
    family="representation",
    symmetric=True,
    bounds=(0.0, 1.0),
    invariances=("orthogonal", "scaling", "linear"),
    needs="rows",
    source="May et al. 2019",
    factor=_span,
    reorder=_reordered,
    caveat="High by chance where rows are not far more than the width of a layer; directions of little variance count "
    "as much as any.",
)
def eigenspace_overlap(a: tuple[Tensor, int], b: tuple[Tensor, int]) -> float:
    """Squared Frobenius norm of the products of orthonormal bases of the raw columns, over the larger width."""
    (left, width), (right, other) = a, b
    return float((left.T @ right).pow(2).sum()) / max(width, other)
