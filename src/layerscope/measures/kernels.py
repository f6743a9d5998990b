"""Measures of all pairs of rows: kernels and distances."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from layerscope.errors import InputError, choose
from layerscope.measures.registry import Undefined, register


def distances(x: Tensor) -> Tensor:
    """(n, n) Euclidean distances, without the loss of digits that the product form has near 0."""
    return torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")


def upper(matrix: Tensor) -> Tensor:
    """The entries above the diagonal, one a pair of rows."""
    rows, columns = torch.triu_indices(len(matrix), len(matrix), offset=1, device=matrix.device)
    return matrix[rows, columns]


def double_centred(matrix: Tensor) -> Tensor:
    return matrix - matrix.mean(dim=0) - matrix.mean(dim=1, keepdim=True) + matrix.mean()


def _varying(values: Tensor, what: str) -> None:
    if len(values) < 2 or float(values.max() - values.min()) <= 1e-12 * max(float(values.abs().max()), 1e-300):
        raise Undefined(f"all {what} are the same")


@register(
    "cka_rbf",
    family="representation",
    symmetric=True,
    bounds=(0.0, 1.0),
    invariances=("orthogonal", "scaling", "translation"),
    needs="rows",
    source="Kornblith et al. 2019",
)
def cka_rbf(x: Tensor, y: Tensor, *, bandwidth: float = 1.0) -> float:
    """CKA with a Gaussian kernel whose width is `bandwidth` times the median distance of two rows; biased HSIC."""
    if not bandwidth > 0:
        raise InputError(f"bandwidth is {bandwidth}; it must be above 0.")
    grams = []
    for side in (x, y):
        apart = distances(side)
        median = float(upper(apart).median())
        if median <= 0 or float(apart.max()) <= 1e-6 * float(side.abs().max()):
            raise Undefined("at least half of the pairs of rows are equal, so the median distance is 0")
        grams.append(double_centred(torch.exp(-apart.pow(2) / (2 * (bandwidth * median) ** 2))))
    a, b = grams
    return float((a * b).sum()) / float(torch.linalg.matrix_norm(a) * torch.linalg.matrix_norm(b))


def _correlation_distances(x: Tensor) -> Tensor:
    centred = x - x.mean(dim=1, keepdim=True)
    return _cosine_distances(centred)


def _cosine_distances(x: Tensor) -> Tensor:
    norms = x.norm(dim=1, keepdim=True)
    if bool((norms <= 1e-12 * norms.max()).any()) or not float(norms.max()):
        raise Undefined("a row is constant (or 0), so it has no direction")
    unit = x / norms
    return 1 - unit @ unit.T


_DISTANCES = {"correlation": _correlation_distances, "cosine": _cosine_distances, "euclidean": distances}


@register(
    "rsa",
    family="representation",
    symmetric=True,
    bounds=(-1.0, 1.0),
    invariances=("scaling",),
    needs="rows",
    source="Kriegeskorte et al. 2008",
)
def rsa(x: Tensor, y: Tensor, *, distance: str = "correlation", correlation: str = "spearman") -> float:
    """Correlation of the two vectors of pairwise distances between rows.

    `distance` is correlation, cosine or euclidean; `correlation` is spearman or pearson.
    """
    choose("distance", distance, _DISTANCES)
    choose("correlation", correlation, ("spearman", "pearson"))
    vectors = []
    for side in (x, y):
        pairs = upper(_DISTANCES[distance](side))
        _varying(pairs, "distances between rows")
        values = pairs.cpu().numpy()
        if correlation == "spearman":
            from scipy.stats import rankdata

            values = rankdata(values)
        vectors.append(values)
    return float(np.corrcoef(np.stack(vectors))[0, 1])


@register(
    "distance_correlation",
    family="representation",
    symmetric=True,
    bounds=(0.0, 1.0),
    invariances=("orthogonal", "scaling", "translation"),
    needs="rows",
    source="Szekely et al. 2007",
)
def distance_correlation(x: Tensor, y: Tensor) -> float:
    """Distance correlation, biased sample version."""
    a, b = (double_centred(distances(side)) for side in (x, y))
    variances = float(a.pow(2).mean()), float(b.pow(2).mean())
    scales = float(x.abs().max()), float(y.abs().max())
    if any(v <= 1e-12 * s**2 for v, s in zip(variances, scales, strict=True)):
        raise Undefined("every row is the same, so nothing varies")
    squared = float((a * b).mean()) / (variances[0] * variances[1]) ** 0.5
    return max(squared, 0.0) ** 0.5
