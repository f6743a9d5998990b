"""Measures that are functions of second moments: each layer is factored once, each pair is a small product."""

from __future__ import annotations

import warnings
from functools import cached_property

import torch
from torch import Tensor

from layerscope.errors import InputError, LayerscopeWarning, choose
from layerscope.measures.moments import Moments
from layerscope.measures.registry import Undefined, register

RANK_TOLERANCE = 1e-7  # singular values below this share of the largest do not count
CONSTANT = 1e-12  # variance below this share of the squared mean is rounding: all rows are the same


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
            raise Undefined("every row is the same, so nothing varies")
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
    return _scaled(one, two, a.T @ b, standardize)


def sides_from(moments: Moments, i: int, j: int, standardize: bool = False) -> tuple[Side, Side, Tensor]:
    """Views i and j of some moments as sides and their cross scatter."""
    return _scaled(side_from(moments, i), side_from(moments, j), moments.scatter(i, j), standardize)


def side_from(moments: Moments, i: int) -> Side:
    mean = moments.mean(i)
    return Side(moments.scatter(i, i), moments.weight, float(mean @ mean))


def _scaled(x: Side, y: Side, cross: Tensor, standardize: bool) -> tuple[Side, Side, Tensor]:
    if not standardize:
        return x, y, cross
    return x.standardized(), y.standardized(), cross * torch.outer(x.scale, y.scale)


_KORNBLITH = "Kornblith et al. 2019"


@register(
    "cka",
    family="representation",
    symmetric=True,
    bounds=(0.0, 1.0),
    invariances=("orthogonal", "scaling", "translation"),
    needs="moments",
    source=_KORNBLITH,
)
def cka(x: Side, y: Side, cross: Tensor) -> float:
    """Linear CKA, biased HSIC: |X'Y|_F^2 / (|X'X|_F |Y'Y|_F), centred columns."""
    scale = x.norm * y.norm
    return float(cross.pow(2).sum()) / scale


@register(
    "procrustes",
    family="representation",
    symmetric=True,
    bounds=(0.0, 1.0),
    invariances=("orthogonal", "scaling", "translation"),
    needs="moments",
    source="Williams et al. 2021; Ding et al. 2021",
)
def procrustes(x: Side, y: Side, cross: Tensor) -> float:
    """Nuclear norm of X'Y over |X|_F |Y|_F: 1 if equal up to rotation and scale."""
    scale = (x.trace * y.trace) ** 0.5
    return float(singular_values(cross).sum()) / scale


@register(
    "linear_regression",
    family="representation",
    symmetric=False,
    bounds=(0.0, 1.0),
    invariances=("orthogonal", "scaling", "translation"),
    needs="moments",
    source=_KORNBLITH,
    inverts=True,
)
def linear_regression(x: Side, y: Side, cross: Tensor, *, rank_tolerance: float = RANK_TOLERANCE) -> float:
    """R^2 of predicting Y from X: |Q_X'Y|_F^2 / |Y|_F^2, Q_X an orthonormal basis of X."""
    space = x.whitener(tolerance=rank_tolerance)
    _enough_rows(space.shape[1], 0, x.n, "predicts every Y without error")
    return float((space.T @ cross).pow(2).sum()) / y.trace


def correlations(
    x: Side, y: Side, cross: Tensor, keep: float, tolerance: float, allow_trivial: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Canonical correlations, and the rotations (r_x, k), (r_y, k) of the whitened sides that give them."""
    spaces = x.whitener(keep, tolerance), y.whitener(keep, tolerance)
    if not allow_trivial:
        ranks = sorted(space.shape[1] for space in spaces)
        _enough_rows(ranks[1], ranks[0], x.n, "makes every correlation 1")
    core = spaces[0].T @ cross @ spaces[1]
    left, values, right = torch.linalg.svd(core, full_matrices=False)
    return values.clamp(0.0, 1.0), left, right.T


def _enough_rows(rank: int, other: int, n: float, what: str) -> None:
    if rank >= n - 1:
        raise Undefined(f"a side of rank {rank} with {n:g} rows {what}, whatever the data; use more rows")
    if other and rank + other > n - 1:
        warnings.warn(
            f"{n:g} rows for ranks {rank} and {other}: some correlations are 1 for lack of rows.",
            LayerscopeWarning,
            stacklevel=3,
        )


def singular_values(matrix: Tensor) -> Tensor:
    """Singular values through the smaller Gram matrix: several times faster than an SVD, exact to about 1e-8."""
    gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    return torch.linalg.eigvalsh(gram).clamp_min(0.0).sqrt()


def _canonical(x: Side, y: Side, cross: Tensor, keep: float, tolerance: float, allow_trivial: bool) -> Tensor:
    """Canonical correlations alone, without the directions."""
    spaces = x.whitener(keep, tolerance), y.whitener(keep, tolerance)
    if not allow_trivial:
        ranks = sorted(space.shape[1] for space in spaces)
        _enough_rows(ranks[1], ranks[0], x.n, "makes every correlation 1")
    return singular_values(spaces[0].T @ cross @ spaces[1]).clamp(0.0, 1.0)


@register(
    "cca",
    family="representation",
    symmetric=True,
    bounds=(0.0, 1.0),
    invariances=("orthogonal", "scaling", "linear", "translation"),
    needs="moments",
    source="Hotelling 1936",
    inverts=True,
)
def cca(
    x: Side, y: Side, cross: Tensor, *, rank_tolerance: float = RANK_TOLERANCE, allow_trivial: bool = False
) -> float:
    """Mean canonical correlation over min(rank X, rank Y)."""
    return float(_canonical(x, y, cross, 1.0, rank_tolerance, allow_trivial).mean())


@register(
    "cca_squared",
    family="representation",
    symmetric=True,
    bounds=(0.0, 1.0),
    invariances=("orthogonal", "scaling", "linear", "translation"),
    needs="moments",
    source="Hotelling 1936",
    inverts=True,
)
def cca_squared(
    x: Side, y: Side, cross: Tensor, *, rank_tolerance: float = RANK_TOLERANCE, allow_trivial: bool = False
) -> float:
    """Mean squared canonical correlation over min(rank X, rank Y)."""
    return float(_canonical(x, y, cross, 1.0, rank_tolerance, allow_trivial).pow(2).mean())


@register(
    "svcca",
    family="representation",
    symmetric=True,
    bounds=(0.0, 1.0),
    invariances=("orthogonal", "scaling", "translation"),
    needs="moments",
    source="Raghu et al. 2017",
    inverts=True,
)
def svcca(
    x: Side,
    y: Side,
    cross: Tensor,
    *,
    keep: float = 0.99,
    rank_tolerance: float = RANK_TOLERANCE,
    allow_trivial: bool = False,
) -> float:
    """Mean canonical correlation after keeping the fewest principal directions that reach `keep` of the variance."""
    return float(_canonical(x, y, cross, keep, rank_tolerance, allow_trivial).mean())


@register(
    "pwcca",
    family="representation",
    symmetric=False,
    bounds=(0.0, 1.0),
    invariances=("scaling", "translation"),
    needs="moments",
    source="Morcos et al. 2018",
    inverts=True,
)
def pwcca(
    x: Side,
    y: Side,
    cross: Tensor,
    *,
    keep: float = 0.99,
    weights: str = "x",
    rank_tolerance: float = RANK_TOLERANCE,
    allow_trivial: bool = False,
) -> float:
    """As svcca, each correlation weighted by sum_j |<h_i, x_j>| over the first argument's centred columns.

    `keep=1.0` is the definition of Morcos et al.; `weights="y"` weighs by the second argument's columns.
    """
    choose("side for the weights", weights, ("x", "y"))
    values, left, right = correlations(x, y, cross, keep, rank_tolerance, allow_trivial)
    side, rotation = (x, left) if weights == "x" else (y, right)
    loading = (rotation.T @ side.whitener(keep, rank_tolerance).T @ side.scatter).abs().sum(dim=1)
    return float((loading * values).sum() / loading.sum())


def _mean_of_best(values: Tensor, top_k: int | None) -> float:
    if top_k is None:
        return float(values.mean())
    if top_k < 1:
        raise InputError(f"top_k is {top_k}; it must be at least 1.")
    return float(values.topk(min(top_k, len(values))).values.mean())


@register(
    "neuron",
    family="neuron",
    symmetric=False,
    bounds=(0.0, 1.0),
    invariances=("scaling", "translation"),
    needs="moments",
    source="Bau et al. 2019; Wu et al. 2020",
)
def neuron(x: Side, y: Side, cross: Tensor, *, top_k: int | None = None) -> float:
    """Mean over X's columns of the max over Y's columns of |Pearson|; constant columns are left out."""
    alive = x.spread > 0
    best = (cross * torch.outer(x.scale, y.scale)).abs().amax(dim=1)
    return _mean_of_best(best[alive].clamp(0.0, 1.0), top_k)


@register(
    "mixed",
    family="mixed",
    symmetric=False,
    bounds=(0.0, 1.0),
    invariances=("scaling", "translation"),
    needs="moments",
    source="Bau et al. 2019; Wu et al. 2020",
    inverts=True,
)
def mixed(
    x: Side, y: Side, cross: Tensor, *, top_k: int | None = None, rank_tolerance: float = RANK_TOLERANCE
) -> float:
    """Mean over X's columns of the multiple correlation with all of Y, in-sample: it rises with Y's rank."""
    space = y.whitener(tolerance=rank_tolerance)
    _enough_rows(space.shape[1], 0, y.n, "explains every column of X")
    if y.n < 2 * space.shape[1]:
        warnings.warn(
            f"{y.n:g} rows for {space.shape[1]} regressors: the multiple correlation says little.",
            LayerscopeWarning,
            stacklevel=3,
        )
    alive = x.spread > 0
    explained = (cross @ space).pow(2).sum(dim=1).sqrt() * x.scale
    return _mean_of_best(explained[alive].clamp(0.0, 1.0), top_k)
