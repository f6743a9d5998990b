"""Other ways to see how a layer fits labels: numerical rank, nuclear norm, mutual information of clusters, label CCA.

Xie et al. 2022, section 4.3 and appendix C.7; the nuclear norm is Ren et al.'s complexity of a layer's space.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from layerscope.analysis.curves import Curve
from layerscope.errors import InputError
from layerscope.extract.representations import Representations

_CONSTANTS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # ridge constants, as shares of a side's mean variance


def numerical_rank(reps: Representations) -> Curve:
    """Mean over classes of |H_y|_*^2 / |H_y|_F^2, H_y a class's rows: low where a class keeps to few directions."""
    labels = _classes(reps)

    def value(x: Tensor) -> float:
        ranks = []
        for label in np.unique(labels):
            s = torch.linalg.svdvals(x[torch.from_numpy(labels == label)])
            ranks.append(float(s.sum() ** 2 / s.pow(2).sum()) if float(s.pow(2).sum()) > 0 else math.nan)
        return float(np.mean(ranks))

    return _curve("numerical_rank", reps, value, best=np.nanargmin)


def nuclear_norm(reps: Representations) -> Curve:
    """|X|_* of the rows: how much space a layer's states take up."""
    return _curve("nuclear_norm", reps, lambda x: float(torch.linalg.svdvals(x).sum()), best=None)


def mutual_information(reps: Representations, *, clusters: int | None = None, folds: int = 10, seed: int = 0) -> Curve:
    """Normalised mutual information of labels and k-means clusters, fitted on nine tenths and scored on the other."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import normalized_mutual_info_score

    labels = _classes(reps)
    count = clusters or len(np.unique(labels))
    order = np.random.default_rng(seed).permutation(len(labels))
    parts = np.array_split(order, folds)

    def value(x: Tensor) -> float:
        rows, scores = x.numpy(), []
        for part in parts:
            rest = np.setdiff1d(order, part)
            fitted = KMeans(count, n_init=3, random_state=seed).fit(rows[rest])
            scores.append(normalized_mutual_info_score(labels[part], fitted.predict(rows[part])))
        return float(np.mean(scores))

    return _curve("mutual_information", reps, value, best=np.nanargmax)


def label_cca(reps: Representations, *, folds: int = 10, seed: int = 0) -> Curve:
    """Mean canonical correlation of states with one-hot labels (or with numbers), on rows that neither fit nor choose.

    Of ten folds eight fit the directions, one chooses the ridge constants and one scores, ten times over. All
    correlations but the last count, since one-hot labels have one direction too many; a single one counts itself.
    """
    if reps.labels is None:
        raise InputError("Label CCA needs labels, and there are none.")
    values = np.asarray(reps.labels)
    y = torch.from_numpy(
        values[:, None].astype(float) if values.dtype.kind == "f" else np.eye(values.max() + 1)[values]
    )
    parts = np.array_split(np.random.default_rng(seed).permutation(len(values)), folds)
    if len(values) < 5 * folds:
        raise InputError(f"Label CCA needs at least {5 * folds} rows for {folds} folds; there are {len(values)}.")

    def value(x: Tensor) -> float:
        scores = []
        for k in range(folds):
            test, choose = parts[k], parts[(k + 1) % folds]
            fit = np.concatenate([parts[j] for j in range(folds) if j not in (k, (k + 1) % folds)])
            maps = [ridge_cca(x[fit], y[fit], a, b) for a in _CONSTANTS for b in _CONSTANTS]
            best = max(maps, key=lambda m: _held_out(m, x[choose], y[choose]))
            scores.append(_held_out(best, x[test], y[test]))
        return float(np.mean(scores))

    return _curve("label_cca", reps, value, best=np.nanargmax)


Map = tuple[Tensor, Tensor, Tensor, Tensor]  # directions of x and y, and their means


def ridge_cca(x: Tensor, y: Tensor, a: float, b: float) -> Map:
    """Canonical directions with ridge constants, shares of each side's mean variance."""
    means = x.mean(dim=0), y.mean(dim=0)
    x, y = x - means[0], y - means[1]
    roots = []
    for side, constant in ((x, a), (y, b)):
        cov = side.T @ side / len(side)
        values, vectors = torch.linalg.eigh(
            cov + constant * cov.diagonal().mean() * torch.eye(len(cov), dtype=cov.dtype)
        )
        roots.append((vectors / values.clamp_min(1e-12).sqrt()) @ vectors.T)
    u, _, vt = torch.linalg.svd(roots[0] @ (x.T @ y / len(x)) @ roots[1], full_matrices=False)
    return roots[0] @ u, roots[1] @ vt.T, *means


def _held_out(found: Map, x: Tensor, y: Tensor) -> float:
    """Mean correlation of the canonical variates on other rows; all but the last where there are several."""
    a, b = (x - found[2]) @ found[0], (y - found[3]) @ found[1]
    a, b = a - a.mean(dim=0), b - b.mean(dim=0)
    scale = (a.pow(2).sum(dim=0) * b.pow(2).sum(dim=0)).sqrt()
    each = torch.where(scale > 0, (a * b).sum(dim=0) / scale.clamp_min(1e-300), torch.zeros_like(scale))
    kept = each[:-1] if len(each) > 1 else each
    return float(kept.mean())


def _classes(reps: Representations) -> np.ndarray:
    if reps.labels is None or np.asarray(reps.labels).dtype.kind == "f":
        raise InputError(
            "This measure compares classes; the rows have none, or numbers as labels (label_cca takes those)."
        )
    return np.asarray(reps.labels)


def _curve(
    name: str, reps: Representations, value: Callable[[Tensor], float], best: Callable[..., int] | None
) -> Curve:
    values = np.asarray([value(reps[layer].double()) for layer in reps.layers])
    above = [k for k, layer in enumerate(reps.layers) if layer >= 1 and not math.isnan(values[k])]
    chosen = reps.layers[above[int(best(values[above]))]] if best is not None and above else None
    model = str(reps.info.get("model", "representations"))
    provenance = {"task": reps.rows.task, "split": reps.rows.split}
    return Curve(name, [model] * len(reps.layers), list(reps.layers), values, provenance, chosen)
