"""The second moments of one layer and what measures derive from them, computed once for all its pairs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.errors import InputError
from layerscope.similarity.moments import Moments, power_of_two
from layerscope.similarity.registry import CONSTANT, SAME, Undefined
from layerscope.similarity.unbiased_hsic import LEAST, NOISE, unbiased_hsic

RANK_TOLERANCE = 1e-7  # singular values below this share of the largest do not count


_ROUNDED = 1e-6  # of the others' scatter: what columns of rounding may add to unbiased HSIC unseen
BLURRED = (
    "columns so far from 0 that they hold nothing but rounding vary too much beside the others, and sums over rows "
    "cannot be freed of them; ls.measure, which takes the rows, can"
)


class LayerStatistics:
    """One layer's centred scatter, the sum of (x - mean)(x - mean)', and what is derived from it, computed once.

    A column whose variance is rounding beside its own squared mean is dead: it counts for nothing.
    """

    def __init__(self, scatter: Tensor, n: float, mean: Tensor, hsic: Callable[[], float] | None = None) -> None:
        self.alive = scatter.diagonal() > CONSTANT * n * mean**2  # (d,)
        self.all_alive = bool(self.alive.all())
        spread = scatter.diagonal()
        self._blurred = not self.all_alive and bool(spread[~self.alive].sum() > _ROUNDED * spread[self.alive].sum())
        self.scatter = scatter if self.all_alive else scatter * torch.outer(self.alive, self.alive)  # (d, d)
        self.n = n
        self._hsic = hsic
        self._varies = bool(self.alive.any())
        self._spaces: dict[tuple[float, float], Tensor] = {}

    def require_variation(self) -> None:
        """Raise Undefined if every row is the same."""
        if not self._varies:
            raise Undefined(SAME)

    @cached_property
    def trace(self) -> float:
        """The sum of squares of the centred rows; raises if every row is the same."""
        self.require_variation()
        return float(torch.trace(self.scatter))

    @cached_property
    def norm(self) -> float:
        """The Frobenius norm of the second moments."""
        self.require_variation()
        return float(torch.linalg.matrix_norm(self.scatter))

    @cached_property
    def _self_hsic(self) -> float:
        """The unbiased HSIC of the layer with itself, whatever its sign."""
        assert self._hsic is not None
        return self._hsic()

    def require_hsic(self) -> None:
        """Raise Undefined where the layer has no unbiased HSIC with itself, or one that is not above 0."""
        if self.n < LEAST:
            raise Undefined(f"unbiased HSIC needs at least {LEAST} rows and there are {self.n:g}")
        self.require_variation()
        if self._blurred:
            raise Undefined(BLURRED)
        if self._self_hsic <= 0:
            raise Undefined(NOISE)

    @property
    def hsic(self) -> float:
        """The unbiased HSIC of the layer with itself, times n (n - 3); raises where it is not above 0."""
        self.require_hsic()
        return self._self_hsic

    @cached_property
    def spread(self) -> Tensor:
        """(d,) the root of each column's sum of squares; 0 for a constant column."""
        self.require_variation()
        return self.scatter.diagonal().clamp_min(0.0).sqrt()

    @cached_property
    def scale(self) -> Tensor:
        """(d,) the factor that brings each column to unit spread; 0 for a constant column."""
        return torch.where(self.alive, 1 / self.spread, torch.zeros_like(self.spread))

    @cached_property
    def standardized(self) -> LayerStatistics:
        """The statistics of the layer with every column at unit variance; constant columns count for nothing."""
        scatter = self.n * self.scatter * torch.outer(self.scale, self.scale)
        return LayerStatistics(scatter, self.n, torch.zeros_like(self.scale))

    @cached_property
    def eigen(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues, largest first, and eigenvectors of the scatter."""
        self.require_variation()
        return _eigen(self.scatter)

    @cached_property
    def _correlation_eigen(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues and eigenvectors of the columns' correlations, which do not depend on the columns' scales."""
        return _eigen(self.scatter * torch.outer(self.scale, self.scale))

    def whitener(self, keep: float = 1.0, tolerance: float = RANK_TOLERANCE) -> Tensor:
        """(d, r) W with (X W)'(X W) = I, over the fewest principal directions that reach `keep` of the variance.

        With all of the variance the space is that of the columns at unit variance, so that the rank, and what
        `tolerance` means for it, is the same however large a column's values are.
        """
        if not 0 < keep <= 1:
            raise InputError(f"keep is {keep}; it must be above 0 and at most 1.")
        if not 0 < tolerance < 1:
            raise InputError(f"rank_tolerance is {tolerance}; it must be above 0 and below 1.")
        if (keep, tolerance) not in self._spaces:
            self._spaces[keep, tolerance] = self._whole_space(tolerance) if keep == 1 else self._top(keep, tolerance)
        return self._spaces[keep, tolerance]

    def _whole_space(self, tolerance: float) -> Tensor:
        """The whitener over all directions of the columns at unit variance."""
        values, vectors = self._correlation_eigen
        rank = _rank(values, tolerance)
        return self.scale[:, None] * vectors[:, :rank] / values[:rank].sqrt()

    def _top(self, keep: float, tolerance: float) -> Tensor:
        """The whitener over the fewest principal directions that reach `keep` of the variance.

        These carry the variance, so inverting them is safe at any scale of the columns.
        """
        values, vectors = self.eigen
        share = values.cumsum(0) / values.sum()
        rank = min(_rank(values, tolerance), int((share < keep * (1 - 1e-12)).sum()) + 1)
        return vectors[:, :rank] / values[:rank].sqrt()


def _eigen(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, largest first and none below 0, and eigenvectors; the matrix is brought near 1 for LAPACK."""
    size = power_of_two(matrix)
    values, vectors = torch.linalg.eigh(matrix / size)
    return values.flip(0).clamp_min(0.0) * size, vectors.flip(1)


def _rank(values: Tensor, tolerance: float) -> int:
    """How many eigenvalues, largest first, count; `tolerance` is a share of the largest singular value."""
    return int((values > tolerance**2 * values[0]).sum())


def pair_of(
    x: Tensor, y: Tensor, cross: str, standardize: bool = False, texts: np.ndarray | None = None
) -> tuple[LayerStatistics, LayerStatistics, Any]:
    """The statistics of two matrices of rows, and their cross scatter (d, d') or their unbiased HSIC.

    `texts` has the text of every row, where some texts have several.
    """
    means = [m.mean(dim=0) for m in (x, y)]
    a, b = (_without_dead_columns(m - mean, mean) for m, mean in zip((x, y), means, strict=True))
    x_side, y_side = (
        LayerStatistics(m.T @ m, len(m), mean, lambda m=m: unbiased_hsic(m, m, texts))  # type: ignore[misc]
        for m, mean in zip((a, b), means, strict=True)
    )
    if cross == "hsic":
        return x_side, y_side, unbiased_hsic(a, b, texts) if len(a) >= LEAST else float("nan")
    return scaled_pair(x_side, y_side, a.T @ b, standardize)


def _without_dead_columns(centred: Tensor, mean: Tensor) -> Tensor:
    """Centred rows with columns that hold nothing but rounding set to 0."""
    alive = centred.pow(2).sum(dim=0) > CONSTANT * len(centred) * mean**2
    return centred if bool(alive.all()) else centred * alive


def side_from(moments: Moments, i: int, hsic: Callable[[], float] | None = None) -> LayerStatistics:
    """The statistics of view i of some moments; `hsic` gives its unbiased HSIC where the moments do not."""
    unbiased = hsic or (lambda: moments.hsic(i, i))
    return LayerStatistics(moments.scatter(i, i), moments.weight, moments.mean(i), unbiased)


def scaled_pair(
    x: LayerStatistics, y: LayerStatistics, cross: Tensor, standardize: bool
) -> tuple[LayerStatistics, LayerStatistics, Tensor]:
    """Two sides and their cross scatter without dead columns; `standardize` brings every column to unit variance."""
    if standardize:
        return x.standardized, y.standardized, (x.n * y.n) ** 0.5 * cross * torch.outer(x.scale, y.scale)
    if x.all_alive and y.all_alive:
        return x, y, cross
    return x, y, cross * torch.outer(x.alive, y.alive)
