"""Other ways to see how a layer fits labels: numerical rank, nuclear norm, mutual information of clusters, label CCA.

Xie et al. 2022, section 4.3 and appendix C.7; the nuclear norm is Ren et al.'s complexity of a layer's space. Every one
takes `ci=0.95` for intervals and `wins` over halves of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from layerscope.analysis.curves import Curve
from layerscope.analysis.labelled import Values, classes_of, curve_of, several_classes
from layerscope.errors import InputError
from layerscope.extract.representations import Representations

_CONSTANTS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # ridge constants, as shares of a side's mean variance
_FEW = 10  # subsamples where one value takes ten fits


def numerical_rank(reps: Representations, *, ci: float | None = None, seed: int = 0) -> Curve:
    """Mean over classes of |H_y|_*^2 / |H_y|_F^2, H_y a class's rows: low where a class keeps to few directions."""
    classes_of(reps.labels, "Numerical rank")

    def rank(x: Tensor) -> float:
        s = torch.linalg.svdvals(x)
        total = float(s.pow(2).sum())
        return float(s.sum()) ** 2 / total if total > 0 else math.nan

    def value(x: Tensor, labels: np.ndarray) -> float:
        return float(np.mean([rank(x[torch.from_numpy(labels == label)]) for label in np.unique(labels)]))

    return curve_of("numerical_rank", _by_layer(value), reps, least=True, ci=ci, seed=seed)


def nuclear_norm(reps: Representations, *, ci: float | None = None, seed: int = 0) -> Curve:
    """|X|_* of the rows: how much space a layer's states take up."""
    n = len(reps)

    def value(x: Tensor, _: np.ndarray) -> float:
        return float(torch.linalg.svdvals(x).sum()) * (n / len(x)) ** 0.5  # it grows with the square root of the rows

    return curve_of("nuclear_norm", _by_layer(value), reps, least=None, ci=ci, seed=seed)


def mutual_information(
    reps: Representations,
    *,
    clusters: int | None = None,
    folds: int = 10,
    ci: float | None = None,
    subsamples: int = _FEW,
    seed: int = 0,
) -> Curve:
    """Normalised mutual information of labels and k-means clusters, fitted on nine tenths and scored on the other."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import normalized_mutual_info_score

    count = clusters or int(several_classes(reps.labels, "Mutual information").max()) + 1
    _enough(reps, folds, ci, "Mutual information", count)

    def value(x: Tensor, labels: np.ndarray) -> float:
        rows, scores = x.numpy(), []
        if np.ptp(rows, axis=0).max() == 0:
            return math.nan  # nothing varies: there are no clusters
        order = np.random.default_rng(seed).permutation(len(labels))
        for part in np.array_split(order, folds):
            rest = np.setdiff1d(order, part)
            fitted = KMeans(count, n_init=3, random_state=seed).fit(rows[rest])
            scores.append(normalized_mutual_info_score(labels[part], fitted.predict(rows[part])))
        return float(np.mean(scores))

    return curve_of("mutual_information", _by_layer(value), reps, least=False, ci=ci, subsamples=subsamples, seed=seed)


def label_cca(
    reps: Representations, *, folds: int = 10, ci: float | None = None, subsamples: int = _FEW, seed: int = 0
) -> Curve:
    """Mean canonical correlation of states with one-hot labels (or with numbers), on rows that neither fit nor choose.

    Of ten folds eight fit the directions, one chooses the ridge constants and one scores, ten times over. All
    correlations but the last count, since one-hot labels have one direction too many; a single one counts itself.
    """
    if reps.labels is None:
        raise InputError("Label CCA needs labels, and there are none.")
    numbers = np.asarray(reps.labels).dtype.kind == "f"
    if not numbers:
        several_classes(reps.labels, "Label CCA")
    _enough(reps, folds, ci, "Label CCA")

    def value(x: Tensor, labels: np.ndarray) -> float:
        if np.ptp(x.numpy(), axis=0).max() == 0:
            return math.nan  # nothing varies: there is nothing to correlate
        values = labels if numbers else np.unique(labels, return_inverse=True)[1]
        y = torch.from_numpy(values[:, None].astype(float) if numbers else np.eye(int(values.max()) + 1)[values])
        parts = np.array_split(np.random.default_rng(seed).permutation(len(labels)), folds)
        scores = []
        for k in range(folds):
            test, choose = parts[k], parts[(k + 1) % folds]
            fit = np.concatenate([parts[j] for j in range(folds) if j not in (k, (k + 1) % folds)])
            cca = RidgeCCA(x[fit], y[fit])
            maps = [cca.directions(a, b) for a in _CONSTANTS for b in _CONSTANTS]
            best = max(maps, key=lambda m: cca.score(m, x[choose], y[choose]))
            scores.append(cca.score(best, x[test], y[test]))
        return float(np.mean(scores))

    return curve_of("label_cca", _by_layer(value), reps, least=False, ci=ci, subsamples=subsamples, seed=seed)


Directions = tuple[Tensor, Tensor]  # of x and of y, a column each


class RidgeCCA:
    """Canonical directions of two sides for any ridge constants, from one eigendecomposition a side."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.means = x.mean(dim=0), y.mean(dim=0)
        x, y = x - self.means[0], y - self.means[1]
        (self.x_values, self.x_vectors), (self.y_values, self.y_vectors) = (
            torch.linalg.eigh(side.T @ side / len(side)) for side in (x, y)
        )
        self.cross = self.x_vectors.T @ (x.T @ y / len(x)) @ self.y_vectors  # a ridge only scales it

    def directions(self, a: float, b: float) -> Directions:
        """With ridge constants that are shares of each side's mean variance."""
        x_scale, y_scale = (
            (values + constant * values.mean()).clamp_min(1e-12).rsqrt()[:, None]
            for values, constant in ((self.x_values, a), (self.y_values, b))
        )
        u, _, vt = torch.linalg.svd(x_scale * self.cross * y_scale.T, full_matrices=False)
        return self.x_vectors @ (x_scale * u), self.y_vectors @ (y_scale * vt.T)

    def score(self, found: Directions, x: Tensor, y: Tensor) -> float:
        """Mean correlation of the canonical variates on other rows; all but the last where there are several."""
        a, b = (x - self.means[0]) @ found[0], (y - self.means[1]) @ found[1]
        a, b = a - a.mean(dim=0), b - b.mean(dim=0)
        scale = (a.pow(2).sum(dim=0) * b.pow(2).sum(dim=0)).sqrt()
        each = torch.where(scale > 0, (a * b).sum(dim=0) / scale.clamp_min(1e-300), torch.zeros_like(scale))
        kept = each[:-1] if len(each) > 1 else each
        return float(kept.mean())


def _by_layer(value: Callable[[Tensor, np.ndarray], float]) -> Values:
    """A number a layer, from a function of its rows and their labels."""

    def values(reps: Representations) -> np.ndarray:
        labels = np.asarray(reps.labels)
        return np.asarray([value(reps[layer].double(), labels) for layer in reps.layers])

    return values


def _enough(reps: Representations, folds: int, ci: float | None, measure: str, clusters: int = 1) -> None:
    """Raise a sentence unless every fold has rows enough, in halves of the rows too where there are to be intervals."""
    if folds < 3:
        raise InputError(f"folds is {folds}; there must be at least 3.")
    least = max(5 * folds, 2 * clusters) * (1 if ci is None else 2)
    if len(reps) < least:
        said = "" if ci is None else " and intervals"
        raise InputError(f"{measure} needs at least {least} rows for {folds} folds{said}; there are {len(reps)}.")
