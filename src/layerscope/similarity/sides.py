"""One layer's second moments and what follows from them, computed once for all its pairs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from layerscope.errors import InputError
from layerscope.similarity.moments import Moments
from layerscope.similarity.registry import CONSTANT, SAME, Undefined

RANK_TOLERANCE = 1e-7  # singular values below this share of the largest do not count
LARGEST = 1e150  # sum of squares whose products with another are still numbers
LEAST = 4  # rows below which unbiased HSIC has no value


class Side:
    """One layer: its centred scatter sum (x - mean)(x - mean)' and what follows from it, computed once."""

    def __init__(self, scatter: Tensor, n: float, mean_square: float, hsic: Callable[[], float] | None = None) -> None:
        self.scatter = scatter  # (d, d)
        self.n = n
        self._mean_square = mean_square  # |mean|^2
        self._hsic = hsic
        self._spaces: dict[tuple[float, float], Tensor] = {}

    @cached_property
    def _total(self) -> float:
        return float(torch.trace(self.scatter))

    def require_variation(self) -> None:
        """Raise if every row is the same, or if the rows are too large to be multiplied."""
        if not self._total < LARGEST:
            raise Undefined("the values of a side are so large that their squares cannot be computed")
        if self._total <= max(CONSTANT * self.n * self._mean_square, 0.0):
            raise Undefined(SAME)

    @property
    def trace(self) -> float:
        """|X|_F^2 of the centred rows; raises if every row is the same."""
        self.require_variation()
        return self._total

    @cached_property
    def norm(self) -> float:
        """|X'X|_F."""
        self.require_variation()
        return float(torch.linalg.matrix_norm(self.scatter))

    @cached_property
    def _own_hsic(self) -> float:
        assert self._hsic is not None
        return self._hsic()

    def require_hsic(self) -> None:
        """Raise where the layer has no unbiased HSIC with itself, or one that is not above 0."""
        if self.n < LEAST:
            raise Undefined(f"unbiased HSIC needs at least {LEAST} rows and there are {self.n:g}")
        self.require_variation()
        if self._own_hsic <= 0:
            raise Undefined(
                "the unbiased variance of a side is not above 0: it is constant, or noise, at this many rows"
            )

    @property
    def hsic(self) -> float:
        """The unbiased HSIC of the layer with itself, times n (n - 3); raises where it is not above 0."""
        self.require_hsic()
        return self._own_hsic

    @cached_property
    def spread(self) -> Tensor:
        """(d,) the root of each column's sum of squares; 0 for a constant column."""
        self.require_variation()
        squares = self.scatter.diagonal().clamp_min(0.0)
        return torch.where(squares > CONSTANT * squares.max(), squares, torch.zeros_like(squares)).sqrt()

    @cached_property
    def eigen(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues, largest first, and eigenvectors of the scatter."""
        self.require_variation()
        values, vectors = torch.linalg.eigh(self.scatter)
        return values.flip(0).clamp_min(0.0), vectors.flip(1)

    def whitener(self, keep: float = 1.0, tolerance: float = RANK_TOLERANCE) -> Tensor:
        """(d, r) W with (X W)'(X W) = I, over the fewest principal directions that reach `keep` of the variance."""
        if not 0 < keep <= 1:
            raise InputError(f"keep is {keep}; it must be above 0 and at most 1.")
        if (keep, tolerance) not in self._spaces:
            values, vectors = self.eigen
            rank = int((values > tolerance**2 * values[0]).sum())
            if keep < 1:
                share = values.cumsum(0) / values.sum()
                rank = min(rank, int((share < keep * (1 - 1e-12)).sum()) + 1)
            self._spaces[keep, tolerance] = vectors[:, :rank] / values[:rank].sqrt()
        return self._spaces[keep, tolerance]

    @cached_property
    def standardized(self) -> Side:
        """The same with every column at unit spread (constant columns stay out)."""
        return Side(self.scatter * torch.outer(self.scale, self.scale), self.n, 0.0)

    @property
    def scale(self) -> Tensor:
        """(d,) what brings each column to unit spread; 0 for a constant column."""
        return torch.where(self.spread > 0, 1 / self.spread.clamp_min(1e-300), torch.zeros_like(self.spread))


def pair_of(x: Tensor, y: Tensor, cross: str, standardize: bool = False) -> tuple[Side, Side, Any]:
    """Two matrices of rows as sides, and their cross scatter (d, d') or their unbiased HSIC."""
    means = [m.mean(dim=0) for m in (x, y)]
    a, b = x - means[0], y - means[1]
    x_side, y_side = (
        Side(m.T @ m, len(m), float(mean @ mean), lambda m=m: unbiased_hsic(m, m))  # type: ignore[misc]
        for m, mean in zip((a, b), means, strict=True)
    )
    if cross == "hsic":
        return x_side, y_side, unbiased_hsic(a, b) if len(a) >= LEAST else float("nan")
    return scaled_pair(x_side, y_side, a.T @ b, standardize)


def unbiased_hsic(x: Tensor, y: Tensor) -> float:
    """The unbiased HSIC of two matrices with linear kernels, times n (n - 3), from their U-centred Gram matrices."""
    n = len(x)
    a, b = (u_centred(m @ m.T) for m in (x, y))
    return float(torch.dot(a.flatten(), b.flatten())) * n * (n - 3)


def u_centred(grams: Tensor) -> Tensor:
    """(..., n, n) U-centred and divided by the root of n (n - 3): inner products of two such are unbiased HSIC."""
    n = grams.shape[-1]
    grams.diagonal(dim1=-2, dim2=-1).zero_()
    sums = grams.sum(dim=-1)
    grams -= (sums / (n - 2))[..., None, :]
    grams -= (sums / (n - 2))[..., :, None]
    grams += (sums.sum(dim=-1) / ((n - 1) * (n - 2)))[..., None, None]
    grams.diagonal(dim1=-2, dim2=-1).zero_()
    return grams.div_((n * (n - 3)) ** 0.5)


def side_from(moments: Moments, i: int) -> Side:
    """View i of some moments as a side."""
    mean = moments.mean(i)
    return Side(moments.scatter(i, i), moments.weight, float(mean @ mean), lambda: moments.hsic(i, i))


def scaled_pair(x: Side, y: Side, cross: Tensor, standardize: bool) -> tuple[Side, Side, Tensor]:
    """The pair as it is, or with every column of both sides at unit spread."""
    if not standardize:
        return x, y, cross
    return x.standardized, y.standardized, cross * torch.outer(x.scale, y.scale)
