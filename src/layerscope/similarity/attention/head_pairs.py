"""Similarity of single attention heads, as sums that add up over stacks of sentences and over processes.

A stack is (heads, sentences, t, t): sentences of equal length, rows that sum to one. For each measure `prepare` turns
one side of a stack into what its pairs need, once; `update` gives the sums of every pair of heads of two sides; `value`
turns the sums of all stacks into similarities. Wu et al. 2020, section 3.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from layerscope.similarity.attention.jensen_shannon import entropies, halved, mixture_sums
from layerscope.similarity.registry import CONSTANT, Undefined

_DISTANCES, _GPU_DISTANCES = 1 << 18, 1 << 22  # pairs of heads x sentences at a time: what stays in a cache, or fills
_SLICES = 2  # of a side's heads: of the pairs of heads of one side three quarters are then computed, half is needed
_NEAR = {torch.float32: 1e-4, torch.float64: 1e-8}  # of the summed squares: below, too few digits are left
_FEW = 0.01  # of the pairs may be near in float32; more, and float64 is faster than to take them one by one


@dataclass(frozen=True)
class Mask:
    """Which rows and entries of a stack count."""

    alive: Tensor  # (sentences, t): rows in which every head of every side attends to something
    causal: bool = False  # only to the word itself and earlier ones

    @staticmethod
    def from_sides(sides: Sequence[Tensor], causal: bool = False) -> Mask:
        """The mask that sides of the same sentences share."""
        alive = []
        for side in sides:
            ones = torch.ones(side.shape[-1], dtype=side.dtype, device=side.device)
            total = (side.tril() if causal else side) @ ones  # much faster than a sum over so few
            alive.append(total.gt(0).all(dim=0).to(sides[0].device))
        return Mask(torch.stack(alive).all(dim=0), causal)

    def whole(self, side: Tensor) -> Tensor:
        """The weights of a side: rows that do not count are 0, and causal rows are scaled to a sum of one."""
        if self.causal:
            side = side.tril()
            side = side / side.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(side.dtype).tiny)
        return side if self.complete else side * self.alive[..., None].to(side.dtype)

    @cached_property
    def complete(self) -> bool:
        """Whether every row counts."""
        return bool(self.alive.all())

    def inside(self, side: Tensor) -> Tensor:
        """(t, t): 1 where a word may be attended to."""
        ones = torch.ones(side.shape[-2:], dtype=side.dtype, device=side.device)
        return ones.tril() if self.causal else ones

    def counted(self, side: Tensor) -> Tensor:
        """(sentences, t, t): 1 where an entry counts."""
        return self.inside(side) * self.alive[..., None].to(side.dtype)

    def entries(self, side: Tensor) -> Tensor:
        """(heads, entries) the weights of a side that count, side by side."""
        whole = self.whole(side)
        if self.complete and not self.causal:
            return whole.flatten(1)
        return whole[:, self.counted(side).bool()]

    @cached_property
    def count(self) -> int:
        """How many rows count."""
        return int(self.alive.sum())


@dataclass(frozen=True)
class HeadMeasure:
    """How a measure of two heads adds up. Its sums are (2, N, M): the sum of the values, and their number."""

    prepare: Callable[[Tensor, Mask], Any]
    update: Callable[[Any, Any], Tensor]
    value: Callable[[Tensor], Tensor]  # from the mean to the similarity
    nothing: str  # why a pair has no value
    over: Literal["words", "sentences"] = "words"  # what is averaged over

    def similarities(self, sums: Tensor) -> Tensor:
        """(N, M) similarities of every pair of heads; NaN where there is nothing to average."""
        return torch.where(sums[1] > 0, self.value(sums[0] / sums[1].clamp_min(1.0)), torch.nan)


@dataclass(frozen=True)
class Flat:
    """Heads as points whose distances are wanted: (sentences, heads, t^2), and the squares of their lengths."""

    points: Tensor
    squares: Tensor

    @staticmethod
    def from_points(points: Tensor) -> Flat:
        """The points with the squares of their lengths."""
        return Flat(points, torch.linalg.vector_norm(points, dim=2).pow_(2))

    def heads(self, chosen: slice) -> Flat:
        """Some of the heads."""
        return Flat(self.points[:, chosen], self.squares[:, chosen])

    def split(self, size: int) -> Iterator[Flat]:
        """The points of `size` sentences at a time."""
        return map(Flat, self.points.split(size), self.squares.split(size))

    def double(self) -> Flat:
        """The same points in float64, with squares of as many digits."""
        return Flat.from_points(self.points.double())

    def to(self, device: torch.device) -> Flat:
        """The same points on a device."""
        return Flat(self.points.to(device), self.squares.to(device))


def prepare_norm(side: Tensor, mask: Mask) -> tuple[Flat, Tensor]:
    """Attention less uniform attention, and how many sentences have a row that counts.

    Distances do not see what is taken from all heads; what is left is about as large as the distances are.
    """
    whole = mask.whole(side)
    moved = whole - mask.inside(whole) / mask.inside(whole).sum(dim=-1, keepdim=True)
    if mask.causal or not mask.complete:
        moved *= mask.counted(moved)
    return Flat.from_points(moved.transpose(0, 1).flatten(2)), mask.alive.any(dim=1).sum().double()


def update_norm(a: tuple[Flat, Tensor], b: tuple[Flat, Tensor]) -> Tensor:
    """Sums of Frobenius distances of A and B."""
    total = _self_distances(a[0]) if b is a else _distances(a[0], b[0].to(a[1].device))
    return torch.stack([total, a[1].expand_as(total)])


def _self_distances(side: Flat) -> Tensor:
    """(N, N) float64: sums over sentences of the distances between the heads of one side.

    Only slices of rows from the diagonal on are computed; the rest is their mirror image.
    """
    heads = side.squares.shape[1]
    total = side.squares.new_zeros(heads, heads, dtype=torch.float64)
    step = -(-heads // _SLICES)
    for start in range(0, heads, step):
        rows = slice(start, start + step)
        total[rows, start:] = _distances(side.heads(rows), side.heads(slice(start, None)), same=True)
    total.triu_(1)
    return total + total.T


def _distances(left: Flat, right: Flat, same: bool = False) -> Tensor:
    """(N, M) float64: sums over sentences of the distances between the heads of two sides.

    They come from the squares and the product of two heads; where these leave too few digits, from their difference.
    `same` says that head i is the same in both, and then its distance to itself is not computed.
    """
    total = left.squares.new_zeros(left.squares.shape[1], right.squares.shape[1], dtype=torch.float64)
    most = _DISTANCES if total.device.type == "cpu" else _GPU_DISTANCES
    size = max(1, most // total.numel())
    for pair in zip(left.split(size), right.split(size), strict=True):
        left_part, right_part = pair
        squares, near = _squares(left_part, right_part, same)
        if squares.dtype == torch.float32 and len(near) > _FEW * squares.numel():
            left_part, right_part = left_part.double(), right_part.double()
            squares, near = _squares(left_part, right_part, same)
        for place in near.split(most // left_part.points.shape[2] + 1) if len(near) else ():
            sentence, i, j = place.unbind(dim=1)
            apart = left_part.points[sentence, i] - right_part.points[sentence, j]
            squares[sentence, i, j] = apart.pow_(2).sum(dim=-1)
        total += squares.sqrt_().sum(dim=0)
    return total


def _squares(left_part: Flat, right_part: Flat, same: bool) -> tuple[Tensor, Tensor]:
    """(sentences, N, M) squared distances, and the places of those that are near 0."""
    scale = left_part.squares[:, :, None] + right_part.squares[:, None, :]
    squares = torch.baddbmm(scale, left_part.points, right_part.points.transpose(1, 2), alpha=-2.0)
    if same:
        squares.diagonal(dim1=1, dim2=2).fill_(torch.inf)
    near = _NEAR[squares.dtype]
    largest = left_part.squares.amax() + right_part.squares.amax()
    if bool(squares.amin() > near * largest):  # the usual case, for which one comparison is enough
        return squares, torch.empty(0, 3, dtype=torch.int64, device=squares.device)
    return squares, (squares <= scale.mul_(near)).nonzero()


def prepare_pearson(side: Tensor, mask: Mask) -> tuple[Tensor, Tensor]:
    """(heads, entries) rows less their means, at unit length, 0 if they do not vary; (heads, rows) whether they do."""
    whole = mask.whole(side)
    inside = mask.inside(whole)
    centred = whole - whole.sum(dim=-1, keepdim=True) / inside.sum(dim=-1, keepdim=True)
    if mask.causal:
        centred *= inside
    spread = torch.linalg.vecdot(centred, centred)[..., None]
    varies = spread > CONSTANT * torch.linalg.vecdot(whole, whole)[..., None]
    centred *= torch.where(varies, spread, torch.inf).rsqrt()
    return centred.flatten(1), varies.flatten(1).to(whole.dtype)


def update_pearson(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> Tensor:
    """Sums of the correlations of rows, and how many rows vary in both heads."""
    return torch.stack([left @ right.to(left.device).T for left, right in zip(a, b, strict=True)]).double()


def prepare_js(side: Tensor, mask: Mask) -> tuple[Tensor, Tensor, int]:
    """The halves (heads, entries) of the weights, the sums of p log p, and how many rows there are."""
    half = halved(mask.entries(side))
    return half, entropies(half), mask.count


def update_js(a: tuple[Tensor, Tensor, int], b: tuple[Tensor, Tensor, int]) -> Tensor:
    """Sums of the Jensen-Shannon divergence: sum p log p / 2 + sum q log q / 2 - sum m log m."""
    half_a, entropy_a, count = a
    half_b, entropy_b = (half_a, entropy_a) if b is a else (part.to(half_a.device) for part in b[:2])
    total = (entropy_a[:, None] + entropy_b[None, :]) / 2 - mixture_sums(half_a, half_b)
    if b is a:
        total.fill_diagonal_(0.0)
    return torch.stack([total.clamp_min_(0.0), torch.full_like(total, count)])


_EMPTY = "no word attends to another one in these sentences"
NORM = HeadMeasure(prepare_norm, update_norm, lambda mean: 1 - mean, _EMPTY, "sentences")
PEARSON = HeadMeasure(
    prepare_pearson,
    update_pearson,
    lambda mean: mean.clamp(-1.0, 1.0),
    "no attention head has a word's row that varies in both layers",
)
JENSEN_SHANNON = HeadMeasure(prepare_js, update_js, lambda mean: 1 - mean, _EMPTY)


def best(heads: Tensor, nothing: str) -> float:
    """A layer's value: the max over the second layer's heads (columns), the mean over the first's (rows).

    Heads without any value (a uniform head has no correlation) are left out.
    """
    highest = torch.where(heads.isnan(), -torch.inf, heads).amax(dim=1)
    highest = highest[highest > -torch.inf]
    if not len(highest):
        raise Undefined(nothing)
    return float(highest.mean())
