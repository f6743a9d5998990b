"""Measures of all pairs of rows, by kernels and distances: each side has an n x n matrix, each pair is a product."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from layerscope.errors import InputError, choose
from layerscope.similarity.registry import Undefined, register

_EQUAL = 1e-14  # squared distances below this share of the largest squared norm are rounding: the rows are equal
_ALIKE = "all distances between rows are the same"


def distances(x: Tensor) -> Tensor:
    """(n, n) Euclidean distances of float64 rows, by a product of centred rows; exactly 0 between equal rows."""
    x = x - x.mean(dim=0)
    squares = x.pow(2).sum(dim=1)
    apart = (squares[:, None] + squares[None, :]).addmm_(x, x.T, alpha=-2)
    apart[apart <= _EQUAL * squares.max()] = 0.0
    return apart.fill_diagonal_(0.0).sqrt_()


def upper(matrix: Tensor) -> Tensor:
    """The entries above the diagonal, one per pair of rows."""
    rows, columns = torch.triu_indices(len(matrix), len(matrix), offset=1, device=matrix.device)
    return matrix[rows, columns]


def reordered(matrix: Tensor, order: Tensor) -> Tensor:
    """The (n, n) matrix of the rows in another order."""
    return matrix[order][:, order]


def _reordered_pairs(pairs: Tensor, order: Tensor) -> Tensor:
    """The entries above the diagonal of the rows in another order, from those in the old one."""
    n = len(order)
    rows, columns = torch.triu_indices(n, n, offset=1, device=pairs.device)
    low, high = (pick(order[rows], order[columns]) for pick in (torch.minimum, torch.maximum))
    return pairs[low * (2 * n - low - 1) // 2 + high - low - 1]


def double_centred(matrix: Tensor) -> Tensor:
    """A matrix less the means of its rows and of its columns."""
    return matrix - matrix.mean(dim=0) - matrix.mean(dim=1, keepdim=True) + matrix.mean()


def _inner(a: Tensor, b: Tensor) -> float:
    """The inner product of two tensors of one shape."""
    return float(torch.dot(a.flatten(), b.flatten()))


def _gaussian(x: Tensor, *, bandwidth: float = 1.0) -> Tensor:
    """The centred Gaussian kernel at unit norm."""
    if not bandwidth > 0:
        raise InputError(f"bandwidth is {bandwidth}; it must be above 0.")
    apart = distances(x)
    pairs = upper(apart)
    median = float(pairs.median() - (-pairs).median()) / 2  # torch's median is the lower one of two
    if median <= 0:
        raise Undefined("at least half of the pairs of rows are equal, so the median distance is 0")
    if float(apart.max()) <= 1e-6 * float(x.abs().max()):
        raise Undefined("no two rows differ by a millionth of the largest number, so that all distances are rounding")
    centred = double_centred(torch.exp(-apart.pow(2) / (2 * (bandwidth * median) ** 2)))
    return centred / torch.linalg.matrix_norm(centred)


@register(
    "cka_rbf",
    family="representation",
    symmetric=True,
    bounds=(0.0, 1.0),
    invariances=("orthogonal", "scaling", "translation"),
    needs="rows",
    source="Kornblith et al. 2019",
    factor=_gaussian,
    reorder=reordered,
)
def cka_rbf(a: Tensor, b: Tensor) -> float:
    """CKA with a Gaussian kernel whose width is `bandwidth` times the median distance of two rows; biased HSIC."""
    return _inner(a, b)


def _cosine_distances(x: Tensor) -> Tensor:
    """(n, n) 1 - cosine of every pair of rows; raises Undefined where a row has no direction."""
    norms = x.norm(dim=1, keepdim=True)
    if bool((norms <= 1e-12 * norms.max()).any()) or not float(norms.max()):
        raise Undefined("a row is constant (or 0), so it has no direction")
    unit = x / norms
    return 1 - unit @ unit.T


_DISTANCES = {
    "correlation": lambda x: _cosine_distances(x - x.mean(dim=1, keepdim=True)),
    "cosine": _cosine_distances,
    "euclidean": distances,
}


def _ranks(pairs: Tensor) -> Tensor:
    """The ranks of numbers up to about 1; those that differ by rounding alone are tied."""
    from scipy.stats import rankdata

    values, order = pairs.sort()
    step = torch.cat([values.new_zeros(1), (values.diff() > _EQUAL).double()]).cumsum(dim=0)
    if not float(step[-1]):
        raise Undefined(_ALIKE)
    tied = torch.empty_like(pairs)
    tied[order] = step
    return torch.from_numpy(rankdata(tied.cpu().numpy())).to(pairs.device)


def _dissimilarities(x: Tensor, *, distance: str = "correlation", correlation: str = "spearman") -> Tensor:
    """Distances of all pairs of rows (or their ranks), centred, at unit norm: a correlation is then a dot product."""
    choose("distance", distance, _DISTANCES)
    choose("correlation", correlation, ("spearman", "pearson"))
    pairs = upper(_DISTANCES[distance](x))
    if len(pairs) < 2 or float(pairs.max() - pairs.min()) <= 1e-12 * max(float(pairs.abs().max()), 1e-300):
        raise Undefined(_ALIKE)
    if correlation == "spearman":
        pairs = _ranks(pairs.pow(2) / float(pairs.max()) ** 2 if distance == "euclidean" else pairs)
    pairs = pairs - pairs.mean()
    return pairs / pairs.norm()


@register(
    "rsa",
    family="representation",
    symmetric=True,
    bounds=(-1.0, 1.0),
    invariances=("scaling",),
    needs="rows",
    source="Kriegeskorte et al. 2008",
    factor=_dissimilarities,
    reorder=_reordered_pairs,
)
def rsa(a: Tensor, b: Tensor) -> float:
    """Correlation of the two vectors of pairwise distances between rows.

    `distance` is correlation, cosine or euclidean; `correlation` is spearman or pearson.
    """
    return _inner(a, b)


def _centred_distances(x: Tensor) -> Tensor:
    """Double-centred distances at unit norm."""
    centred = double_centred(distances(x))
    return centred / torch.linalg.matrix_norm(centred)


@register(
    "distance_correlation",
    family="representation",
    symmetric=True,
    bounds=(0.0, 1.0),
    invariances=("orthogonal", "scaling", "translation"),
    needs="rows",
    source="Szekely et al. 2007",
    factor=_centred_distances,
    reorder=reordered,
)
def distance_correlation(a: Tensor, b: Tensor) -> float:
    """Distance correlation, biased sample version."""
    return max(_inner(a, b), 0.0) ** 0.5


@register(
    "rsm_norm_difference",
    family="representation",
    symmetric=True,
    bounds=(0.0, math.inf),
    invariances=("orthogonal", "translation"),
    needs="rows",
    source="Yin & Shen 2018",
    factor=distances,
    reorder=reordered,
    distance=True,
    metric=True,
    growth=1.0,
    caveat="A distance: low is alike. It has the unit of the states and grows with the number of rows.",
)
def rsm_norm_difference(a: Tensor, b: Tensor, *, norm: str = "frobenius") -> float:
    """The norm of the difference of the matrices of Euclidean distances between rows.

    `norm` is frobenius, which takes all entries, or spectral, the largest singular value of the difference.
    """
    choose("norm", norm, ("frobenius", "spectral"))
    if norm == "spectral":  # the difference is symmetric
        return float(torch.linalg.eigvalsh(a - b).abs().max())
    return float(torch.linalg.matrix_norm(a - b))
