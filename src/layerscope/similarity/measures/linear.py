"""Measures of second moments: each layer is factored once, and each pair is a small product."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

from layerscope.errors import InputError, LayerscopeWarning, choose
from layerscope.similarity.layer_statistics import RANK_TOLERANCE, LayerStatistics
from layerscope.similarity.registry import SAME, Undefined, register

_KORNBLITH = "Kornblith et al. 2019"
_ONE = 1 - 1e-9  # a correlation above this is 1 up to rounding
_FEW = "High by chance where rows are not far more than the width of a layer"


def gram_cka(products: Tensor, i: int, j: int) -> float:
    """CKA of views i and j from the inner products of their centred n x n Gram matrices."""
    squares = float(products[i, i]), float(products[j, j])
    if not min(squares) > 0 or math.isnan(sum(squares)):
        raise Undefined(SAME)
    return float(products[i, j]) / (squares[0] ** 0.5 * squares[1] ** 0.5)


@register(
    "cka",
    family="representation",
    symmetric=True,
    bounds=(0.0, 1.0),
    invariances=("orthogonal", "scaling", "translation"),
    needs="moments",
    source=_KORNBLITH,
    dual=gram_cka,
    unbiased="cka_debiased",
    caveat=f"{_FEW}, and a few large features can carry it. Compare with cka_debiased, or with the baseline.",
)
def cka(x: LayerStatistics, y: LayerStatistics, cross: Tensor) -> float:
    """Linear CKA with biased HSIC, of centred columns."""
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
    exact=True,
    caveat=f"{_FEW}: compare with the baseline.",
)
def procrustes(x: LayerStatistics, y: LayerStatistics, cross: Tensor) -> float:
    """How near two layers come to one another by a rotation and a scale: 1 if they are equal up to these."""
    scale = (x.trace * y.trace) ** 0.5
    return min(float(singular_values(cross).sum()) / scale, 1.0)


@register(
    "linear_regression",
    family="representation",
    symmetric=False,
    bounds=(0.0, 1.0),
    invariances=("orthogonal", "scaling", "translation"),
    needs="moments",
    source=_KORNBLITH,
    exact=True,
    caveat="In-sample: rises with the width of the rows' layer. Not symmetric.",
)
def linear_regression(
    x: LayerStatistics, y: LayerStatistics, cross: Tensor, *, rank_tolerance: float = RANK_TOLERANCE
) -> float:
    """The share of the variance of Y that X predicts by least squares, in-sample."""
    space = x.whitener(tolerance=rank_tolerance)
    _enough_rows(space.shape[1], x.n, "predicts every Y without error")
    _warn_if_few(space.shape[1], x.n)
    return float((space.T @ cross).pow(2).sum()) / y.trace


def _enough_rows(rank: int, n: float, what: str) -> None:
    """Raise Undefined where a side has so few rows that the result does not depend on the data."""
    if rank >= n - 1:
        raise Undefined(f"a side of rank {rank} with {n:g} rows {what}, whatever the data; use more rows")


def _warn_of_ones(correlations: Tensor, ranks: list[int], n: float) -> None:
    """Warn where some correlations are 1 that would be 1 for other data as well."""
    ones = int((correlations > _ONE).sum())
    if sum(ranks) > n - 1:
        sentence = f"{n:g} rows for ranks {ranks[1]} and {ranks[0]}: some correlations are 1 for lack of rows."
    elif 0 < ones < len(correlations):
        sentence = f"{ones} of {len(correlations)} correlations at 1, as repeated rows or columns in common make them."
    else:
        return
    warnings.warn(sentence, LayerscopeWarning, stacklevel=4)


def _warn_if_few(regressors: int, n: float) -> None:
    """Warn where a regression has fewer than two rows for each regressor."""
    if n < 2 * regressors:
        sentence = f"{n:g} rows for {regressors} regressors: a fit within the sample says little."
        warnings.warn(sentence, LayerscopeWarning, stacklevel=4)


def singular_values(matrix: Tensor) -> Tensor:
    """Singular values through the smaller Gram matrix: several times faster than an SVD, exact to about 1e-8.

    Its eigenvalues below 0 show how large rounding is, and what is no larger than that is 0: the root of rounding would
    be far more than rounding, once for every dimension that the matrix lacks.
    """
    gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    values = torch.linalg.eigvalsh(gram)  # the least first
    return torch.where(values <= -4 * values[:1], 0.0, values).clamp_min(0.0).sqrt()


def _core(
    x: LayerStatistics, y: LayerStatistics, cross: Tensor, keep: float, tolerance: float, allow_trivial: bool
) -> Tensor:
    """(r_x, r_y) the cross scatter of the whitened sides: its singular values are the canonical correlations."""
    spaces = x.whitener(keep, tolerance), y.whitener(keep, tolerance)
    if not allow_trivial:
        _enough_rows(max(space.shape[1] for space in spaces), x.n, "makes every correlation 1")
    return spaces[0].T @ cross @ spaces[1]


def _canonical(
    x: LayerStatistics, y: LayerStatistics, cross: Tensor, keep: float, tolerance: float, allow_trivial: bool
) -> Tensor:
    """The canonical correlations, without their directions."""
    core = _core(x, y, cross, keep, tolerance, allow_trivial)
    correlations = singular_values(core).clamp(0.0, 1.0)
    if not allow_trivial:
        _warn_of_ones(correlations, sorted(core.shape), x.n)
    return correlations


@register(
    "cca",
    family="representation",
    symmetric=True,
    bounds=(0.0, 1.0),
    invariances=("orthogonal", "scaling", "linear", "translation"),
    needs="moments",
    source="Hotelling 1936",
    exact=True,
    caveat=f"{_FEW}: some correlations are then 1 whatever the data are.",
)
def cca(
    x: LayerStatistics,
    y: LayerStatistics,
    cross: Tensor,
    *,
    rank_tolerance: float = RANK_TOLERANCE,
    allow_trivial: bool = False,
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
    exact=True,
    caveat=f"{_FEW}: some correlations are then 1 whatever the data are.",
)
def cca_squared(
    x: LayerStatistics,
    y: LayerStatistics,
    cross: Tensor,
    *,
    rank_tolerance: float = RANK_TOLERANCE,
    allow_trivial: bool = False,
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
    exact=True,
    caveat=f"{_FEW}, and it depends on how much variance is kept.",
)
def svcca(
    x: LayerStatistics,
    y: LayerStatistics,
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
    exact=True,
    caveat=f"{_FEW}. Not symmetric: the rows' layer gives the weights.",
)
def pwcca(
    x: LayerStatistics,
    y: LayerStatistics,
    cross: Tensor,
    *,
    keep: float = 0.99,
    weights: str = "x",
    rank_tolerance: float = RANK_TOLERANCE,
    allow_trivial: bool = False,
) -> float:
    """As svcca, each correlation weighted by how much of the first argument's centred columns its direction holds.

    `keep=1.0` is the definition of Morcos et al.; `weights="y"` weighs by the second argument's columns. Where several
    correlations are 1, their directions could be any in the space that both sides share, and each choice has weights of
    its own: those are taken along which the weighing side's columns vary most, least, and so on in between.
    """
    choose("side for the weights", weights, ("x", "y"))
    core = _core(x, y, cross, keep, rank_tolerance, allow_trivial)
    side, core = (x, core) if weights == "x" else (y, core.T)
    # The left singular vectors through the Gram matrix, as fast as an SVD is slow.
    squares, rotation = torch.linalg.eigh(core @ core.T)
    count = min(core.shape)
    values, rotation = squares[-count:].clamp(0.0, 1.0).sqrt(), rotation[:, -count:]
    if not allow_trivial:
        _warn_of_ones(values, sorted(core.shape), x.n)
    loading = rotation.T @ (side.whitener(keep, rank_tolerance).T @ side.scatter)
    shared = values > _ONE
    if int(shared.sum()) > 1:
        free = loading[shared]  # their directions can be turned within the space that both sides share
        loading[shared] = torch.linalg.eigh(free @ free.T).eigenvectors.T @ free
    loading = loading.abs().sum(dim=1)
    return float((loading * values).sum() / loading.sum())


def _mean_of_best(values: Tensor, top_k: int | None) -> float:
    """The mean of the `top_k` highest values, or of all."""
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
    caveat="Tied to the axes: a rotated copy of a layer scores low. Not symmetric.",
)
def neuron(x: LayerStatistics, y: LayerStatistics, cross: Tensor, *, top_k: int | None = None) -> float:
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
    exact=True,
    caveat="In-sample: rises with the width of the columns' layer. Not symmetric.",
)
def mixed(
    x: LayerStatistics,
    y: LayerStatistics,
    cross: Tensor,
    *,
    top_k: int | None = None,
    rank_tolerance: float = RANK_TOLERANCE,
) -> float:
    """Mean over X's columns of the multiple correlation with all of Y, in-sample: it rises with Y's rank."""
    space = y.whitener(tolerance=rank_tolerance)
    _enough_rows(space.shape[1], y.n, "explains every column of X")
    _warn_if_few(space.shape[1], y.n)
    alive = x.spread > 0
    explained = (cross @ space).pow(2).sum(dim=1).sqrt() * x.scale
    return _mean_of_best(explained[alive].clamp(0.0, 1.0), top_k)
