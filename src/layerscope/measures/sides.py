"""One layer's second moments and what follows from them, computed once for all its pairs."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from layerscope.errors import InputError
from layerscope.measures.moments import Moments
from layerscope.measures.registry import CONSTANT, SAME, Undefined

RANK_TOLERANCE = 1e-7  # singular values below this share of the largest do not count


class Side:
    """One layer: its centred scatter sum (x - mean)(x - mean)' and what follows from it, computed once."""

    def __init__(self, scatter: Tensor, n: float, mean_square: float) -> None:
        self.scatter = scatter  # (d, d)
        self.n = n
        self._mean_square = mean_square  # |mean|^2
        self._spaces: dict[tuple[float, float], Tensor] = {}

    @cached_property
    def trace(self) -> float:
        """|X|_F^2 of the centred rows; raises if every row is the same."""
        total = float(torch.trace(self.scatter))
        if total <= CONSTANT * self.n * self._mean_square or total <= 0.0:
            raise Undefined(SAME)
        return total

    @cached_property
    def norm(self) -> float:
        """|X'X|_F."""
        return self.trace and float(torch.linalg.matrix_norm(self.scatter))

    @cached_property
    def spread(self) -> Tensor:
        """(d,) the root of each column's sum of squares; 0 for a constant column."""
        self.trace  # noqa: B018  (raises if nothing varies)
        squares = self.scatter.diagonal().clamp_min(0.0)
        return torch.where(squares > CONSTANT * squares.max(), squares, torch.zeros_like(squares)).sqrt()

    @cached_property
    def eigen(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues, largest first, and eigenvectors of the scatter."""
        self.trace  # noqa: B018
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

    def standardized(self) -> Side:
        """The same with every column at unit spread (constant columns stay out)."""
        scale = self.scale
        return Side(self.scatter * torch.outer(scale, scale), self.n, 0.0)

    @property
    def scale(self) -> Tensor:
        return torch.where(self.spread > 0, 1 / self.spread.clamp_min(1e-300), torch.zeros_like(self.spread))


def sides_of(x: Tensor, y: Tensor, standardize: bool = False) -> tuple[Side, Side, Tensor]:
    """Two matrices of rows as sides and their cross scatter (d, d')."""
    means = [m.mean(dim=0) for m in (x, y)]
    a, b = x - means[0], y - means[1]
    one, two = (Side(m.T @ m, len(m), float(mean @ mean)) for m, mean in zip((a, b), means, strict=True))
    return scaled(one, two, a.T @ b, standardize)


def sides_from(moments: Moments, i: int, j: int, standardize: bool = False) -> tuple[Side, Side, Tensor]:
    """Views i and j of some moments as sides and their cross scatter."""
    return scaled(side_from(moments, i), side_from(moments, j), moments.scatter(i, j), standardize)


def side_from(moments: Moments, i: int) -> Side:
    mean = moments.mean(i)
    return Side(moments.scatter(i, i), moments.weight, float(mean @ mean))


def scaled(x: Side, y: Side, cross: Tensor, standardize: bool) -> tuple[Side, Side, Tensor]:
    if not standardize:
        return x, y, cross
    return x.standardized(), y.standardized(), cross * torch.outer(x.scale, y.scale)
