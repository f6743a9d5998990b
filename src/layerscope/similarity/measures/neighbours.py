"""Measures that compare which rows are near one another."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from layerscope.errors import InputError, LayerscopeWarning
from layerscope.similarity.registry import Undefined, register

_SOURCE = "Huh et al. 2024"
_EQUAL = 1e-14  # likenesses that differ by less are the same up to rounding
_SOME, _MOST = 0.01, 0.5  # of all neighbours


def nearest(x: Tensor, *, k: int = 10) -> Tensor:
    """(n, k) the k nearest rows of each row by cosine, itself left out."""
    norms = x.norm(dim=1, keepdim=True)
    if not bool((norms > 0).all()):
        raise Undefined("a row is 0, so it has no direction")
    unit = x / norms
    return most_similar(unit @ unit.T, k)


def most_similar(alike: Tensor, k: int) -> Tensor:
    """(n, k) the k rows most like each row, from the likeness of all pairs (n, n), which is at most 1 in size."""
    n = len(alike)
    if not k >= 1:
        raise InputError(f"k is {k}; at least one neighbour is needed.")
    if k >= n - 1:
        raise Undefined(f"with {n} rows every other row is among the {k} nearest")
    values, near = alike.fill_diagonal_(-torch.inf).topk(k + 1, dim=1)
    _require_order(values, k)
    return near[:, :k]


def _require_order(alike: Tensor, k: int) -> None:
    """Raise Undefined where most neighbours are drawn from more rows that are equally near; warn where some are.

    `alike` (n, k + 1) has the likeness of the k nearest rows and of the next one.
    """
    drawn = float((alike[:, :k] - alike[:, k:] <= _EQUAL).double().mean())
    if drawn > _MOST:
        raise Undefined(f"{drawn:.0%} of the {k} nearest are drawn from more rows that are equally near")
    if drawn > _SOME:
        sentence = f"{drawn:.0%} of the {k} nearest drawn from more rows that are equally near, as repeated rows are."
        warnings.warn(sentence, LayerscopeWarning, stacklevel=2)


def reordered(near: Tensor, order: Tensor) -> Tensor:
    """The neighbours of the rows in another order: row i is now what row order[i] was."""
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    return place[near[order]]


def _shared(a: Tensor, b: Tensor) -> Tensor:
    """(n,) how many neighbours a row has in both layers, from (n, k) neighbours of each."""
    return (a[:, :, None] == b[:, None, :]).sum(dim=(1, 2)).double()


@register(
    "mutual_knn",
    family="neighbours",
    symmetric=True,
    bounds=(0.0, 1.0),
    invariances=("orthogonal", "scaling"),
    needs="rows",
    source=_SOURCE,
    factor=nearest,
    reorder=reordered,
    caveat="Depends on k and on the number of rows.",
)
def mutual_knn(a: Tensor, b: Tensor) -> float:
    """Mean share of the k nearest neighbours by cosine that a row has in both."""
    return float(_shared(a, b).mean()) / a.shape[1]


@register(
    "jaccard_knn",
    family="neighbours",
    symmetric=True,
    bounds=(0.0, 1.0),
    invariances=("orthogonal", "scaling"),
    needs="rows",
    source="Wang et al. 2020",
    factor=nearest,
    reorder=reordered,
    caveat="Depends on k and on the number of rows.",
)
def jaccard_knn(a: Tensor, b: Tensor) -> float:
    """Mean over rows of the shared neighbours over all neighbours of either (k nearest by cosine)."""
    shared = _shared(a, b)
    return float((shared / (2 * a.shape[1] - shared)).mean())


def _near_kernel(x: Tensor, *, k: int = 10) -> tuple[Tensor, Tensor]:
    """Each row's neighbours, and the centred linear kernel at those: (n, k) both."""
    near = nearest(x, k=k)
    centred = x - x.mean(dim=0)
    kernel = torch.stack([(centred * centred[neighbour]).sum(dim=1) for neighbour in near.unbind(1)], dim=1)
    if float(kernel.pow(2).sum()) <= 0:
        raise Undefined("the neighbours of a side do not vary")
    return near, kernel


def _reordered_kernel(factor: tuple[Tensor, Tensor], order: Tensor) -> tuple[Tensor, Tensor]:
    """`_near_kernel` of the rows in another order."""
    near, kernel = factor
    return reordered(near, order), kernel[order]


@register(
    "cknna",
    family="neighbours",
    symmetric=True,
    bounds=(-1.0, 1.0),
    invariances=("orthogonal", "scaling"),
    needs="rows",
    source=_SOURCE,
    factor=_near_kernel,
    reorder=_reordered_kernel,
)
def cknna(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> float:
    """CKA restricted to pairs of rows that are neighbours in both (k nearest by cosine).

    With the centred kernel entries K and L: sum over mutual neighbours of K L, over the root of the same sums of K K
    and L L, where for K K the neighbours of X alone count.
    """
    (near_a, kernel_a), (near_b, kernel_b) = a, b
    same = near_a[:, :, None] == near_b[:, None, :]
    together = float((kernel_a[:, :, None] * kernel_b[:, None, :] * same).sum())
    return together / float(kernel_a.norm() * kernel_b.norm())


@register(
    "rank_similarity",
    family="neighbours",
    symmetric=True,
    bounds=(0.0, 1.0),
    invariances=("orthogonal", "scaling"),
    needs="rows",
    source="Wang et al. 2020",
    factor=nearest,
    reorder=reordered,
    caveat="Depends on k and on the number of rows. Neighbours of a row in one layer alone do not count against it.",
)
def rank_similarity(a: Tensor, b: Tensor) -> float:
    """Mean over rows of how alike the ranks of its shared neighbours are, near ones counting most; 0 without any.

    A neighbour at ranks r and s gives 2 / ((1 + |r - s|) (r + s)), and a row the sum of these over 1 + 1/2 + .. + 1/m
    for its m shared neighbours.
    """
    k = a.shape[1]
    same = a[:, :, None] == b[:, None, :]
    ranks = torch.arange(1, k + 1, device=a.device, dtype=torch.float64)
    first, second = ranks[:, None], ranks[None, :]
    score = (same * (2 / ((1 + (first - second).abs()) * (first + second)))).sum(dim=(1, 2))
    most = torch.cat([ranks.new_ones(1), (1 / ranks).cumsum(0)])  # without any the score is 0, over 1
    return float((score / most[same.sum(dim=(1, 2))]).mean())


def _near_cosines(x: Tensor, *, k: int = 10) -> tuple[Tensor, Tensor]:
    """Each row's neighbours (n, k), and the rows at unit length (n, d)."""
    near = nearest(x, k=k)
    return near, x / x.norm(dim=1, keepdim=True)


def _reordered_cosines(factor: tuple[Tensor, Tensor], order: Tensor) -> tuple[Tensor, Tensor]:
    near, unit = factor
    return reordered(near, order), unit[order]


@register(
    "second_order_cosine",
    family="neighbours",
    symmetric=True,
    bounds=(-1.0, 1.0),
    invariances=("orthogonal", "scaling"),
    needs="rows",
    source="Hamilton et al. 2016",
    factor=_near_cosines,
    reorder=_reordered_cosines,
    caveat="Depends on k and on the number of rows, and an offset that all rows share makes it high.",
)
def second_order_cosine(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor], *, distances: bool = False) -> float:
    """Mean over rows of the cosine of its cosines with all rows that are near it in either layer.

    With `distances` the vectors hold 1 - cosine, as published code has it, in place of the cosines of the definition.
    """
    (near_a, unit_a), (near_b, unit_b) = a, b
    either = torch.cat([near_a, near_b], dim=1)
    # A row that is near in both counts once.
    new = torch.cat([torch.ones_like(near_a, dtype=torch.bool), ~(near_b[:, :, None] == near_a[:, None, :]).any(2)], 1)
    sides = []
    for unit in (unit_a, unit_b):
        cosines = torch.stack([(unit * unit[other]).sum(dim=1) for other in either.unbind(1)], dim=1)
        sides.append((1 - cosines if distances else cosines) * new)
    norms = sides[0].norm(dim=1) * sides[1].norm(dim=1)
    if not bool((norms > 0).all()):
        raise Undefined("a row has cosines of 0 with all of its neighbours, or distances of 0")
    return float(((sides[0] * sides[1]).sum(dim=1) / norms).clamp(-1.0, 1.0).mean())
