"""Measures of who is near whom."""

from __future__ import annotations

import torch
from torch import Tensor

from layerscope.errors import InputError
from layerscope.measures.registry import Undefined, register


def nearest(x: Tensor, k: int) -> Tensor:
    """(n, n) mask: whether row j is among the k nearest of row i by cosine, itself left out."""
    n = len(x)
    if not k >= 1:
        raise InputError(f"k is {k}; at least one neighbour is needed.")
    if k >= n - 1:
        raise Undefined(f"with {n} rows every other row is among the {k} nearest")
    norms = x.norm(dim=1, keepdim=True)
    if not bool((norms > 0).all()):
        raise Undefined("a row is 0, so it has no direction")
    unit = x / norms
    alike = (unit @ unit.T).fill_diagonal_(-torch.inf)
    chosen = alike.topk(k, dim=1).indices
    return torch.zeros_like(alike, dtype=torch.bool).scatter_(1, chosen, True)


_SOURCE = "Huh et al. 2024"


@register(
    "mutual_knn",
    family="neighbours",
    symmetric=True,
    bounds=(0.0, 1.0),
    invariances=("orthogonal", "scaling"),
    needs="rows",
    source=_SOURCE,
)
def mutual_knn(x: Tensor, y: Tensor, *, k: int = 10) -> float:
    """Mean share of the k nearest neighbours by cosine that a row has in both."""
    both = nearest(x, k) & nearest(y, k)
    return float(both.sum(dim=1).double().mean()) / k


@register(
    "jaccard_knn",
    family="neighbours",
    symmetric=True,
    bounds=(0.0, 1.0),
    invariances=("orthogonal", "scaling"),
    needs="rows",
    source="Wang et al. 2020",
)
def jaccard_knn(x: Tensor, y: Tensor, *, k: int = 10) -> float:
    """Mean over rows of the shared neighbours over all neighbours of either (k nearest by cosine)."""
    a, b = nearest(x, k), nearest(y, k)
    return float(((a & b).sum(dim=1) / (a | b).sum(dim=1)).double().mean())


@register(
    "cknna",
    family="neighbours",
    symmetric=True,
    bounds=(-1.0, 1.0),
    invariances=("orthogonal", "scaling"),
    needs="rows",
    source=_SOURCE,
)
def cknna(x: Tensor, y: Tensor, *, k: int = 10) -> float:
    """CKA restricted to pairs of rows that are neighbours in both (k nearest by cosine).

    With the centred kernel entries K and L: sum over mutual neighbours of K L, over the root of the same sums of K K
    and L L, where for K K the neighbours of X alone count.
    """
    grams = [side - side.mean(dim=0) for side in (x, y)]
    kernels = [g @ g.T for g in grams]
    masks = [nearest(side, k) for side in (x, y)]
    own = [float((kernel.pow(2) * mask).sum()) for kernel, mask in zip(kernels, masks, strict=True)]
    if min(own) <= 0:
        raise Undefined("the neighbours of a side do not vary")
    return float((kernels[0] * kernels[1] * (masks[0] & masks[1])).sum()) / (own[0] * own[1]) ** 0.5
