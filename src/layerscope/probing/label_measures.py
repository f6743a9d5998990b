"""Measures of how a layer fits labels, beside nu: numerical rank, nuclear norm, mutual information, label CCA.

Xie et al. 2022, section 4.3 and appendix C.7; the nuclear norm is Ren et al.'s complexity of a layer's space. Each
takes `ci=0.95` for intervals and `wins` over halves of the texts. Rows of one text are never on both sides of a split.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from layerscope.errors import InputError, check_count, check_seed
from layerscope.extraction.representations import Representations, check_finite
from layerscope.probing.labelled_rows import (
    balanced,
    check_choices,
    check_numbers,
    classes_of,
    curve_of,
    several_classes,
)
from layerscope.resampling import folds as folds_of
from layerscope.results import Curve
from layerscope.similarity.registry import varies

_CONSTANTS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # ridge constants, as shares of a side's mean variance
_FEW = 10  # subsamples where one value takes ten fits
LayerValue = Callable[[Tensor, np.ndarray, np.ndarray], float]  # from a layer's rows, their labels and their texts
_INFORMATION = "Of labels and k-means clusters, on held-out texts,"


class _Description(NamedTuple):
    """The words of a measure's figure, and what its values mean."""

    title: str
    shows: str
    reading: str
    least: bool | None  # whether the best layer has the least value, or the greatest; None where none is best
    within: tuple[float, float]  # the least and the greatest value that there can be


_MEASURES = {
    "numerical_rank": _Description(
        "Numerical rank of classes",
        r"Mean over classes of $\frac{\lVert H_y \rVert_*^2}{\lVert H_y \rVert_F^2}$, with H_y the rows of a class",
        "Low: few directions.",
        True,
        (1.0, math.inf),
    ),
    "nuclear_norm": _Description(
        "Nuclear norm",
        r"$\lVert X \rVert_*$, the sum of the singular values of the rows,",
        "High: the states take up more space.",
        None,
        (0.0, math.inf),
    ),
    "mutual_information": _Description(
        "Mutual information", f"{_INFORMATION} in nats,", "Higher is better separated.", False, (0.0, math.inf)
    ),
    "normalized_mutual_information": _Description(
        "Normalized mutual information",
        f"{_INFORMATION} from 0 to 1,",
        "Higher is better separated.",
        False,
        (0.0, 1.0),
    ),
    "label_cca": _Description(
        "CCA with labels",
        "Mean canonical correlation with the labels, on held-out texts",
        "Higher is better.",
        False,
        (-1.0, 1.0),
    ),
}


def numerical_rank(reps: Representations, *, ci: float | None = None, seed: int = 0) -> Curve:
    """Measure the numerical rank of classes: the squared sum of the singular values of a class's rows over the sum of
    their squares, averaged over classes. Low where a class keeps to few directions (Xie et al. 2022, section 4.3).

    Args:
        reps: Representations with labels.
        ci: Add intervals of this level, such as 0.95, and `wins`, over halves of the texts.
        seed: Decides the halves.

    Returns:
        A `Curve`; `best` is its least layer.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> rows, labels = np.random.default_rng(0).normal(size=(200, 4)), np.arange(200) % 2
        >>> reps = ls.Representations.from_arrays([rows, rows + 5 * labels[:, None]], labels)
        >>> ls.numerical_rank(reps).layers
        [0, 1]
    """
    classes_of(reps.labels, "Numerical rank")
    check_choices(reps, "Numerical rank")
    check_finite(reps)

    def rank(x: Tensor) -> float:
        s = torch.linalg.svdvals(x)
        total = float(s.pow(2).sum())
        return float(s.sum()) ** 2 / total if total > 0 else math.nan

    def value(x: Tensor, labels: np.ndarray, _: np.ndarray) -> float:
        return float(np.mean([rank(x[torch.from_numpy(labels == label)]) for label in np.unique(labels)]))

    return _curve("numerical_rank", value, reps, ci=ci, seed=seed, undefined="all rows of a class are 0 there")


def nuclear_norm(reps: Representations, *, ci: float | None = None, seed: int = 0) -> Curve:
    """Measure the sum of the singular values of the rows: how much space a layer's states take up (Ren et al. 2023).

    Args:
        reps: Representations.
        ci: Add intervals of this level, such as 0.95, over halves of the texts.
        seed: Decides the halves.

    Returns:
        A `Curve`.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> rows, labels = np.random.default_rng(0).normal(size=(200, 4)), np.arange(200) % 2
        >>> reps = ls.Representations.from_arrays([rows, rows + 5 * labels[:, None]], labels)
        >>> ls.nuclear_norm(reps).layers
        [0, 1]
    """
    check_finite(reps)
    n = len(reps)

    def value(x: Tensor, _: np.ndarray, __: np.ndarray) -> float:
        return float(torch.linalg.svdvals(x).sum()) * (n / len(x)) ** 0.5  # it grows with the square root of the rows

    return _curve("nuclear_norm", value, reps, ci=ci, seed=seed)


def mutual_information(
    reps: Representations,
    *,
    clusters: int | None = None,
    normalized: bool = False,
    balance: bool = True,
    folds: int = 10,
    ci: float | None = None,
    subsamples: int = _FEW,
    seed: int = 0,
) -> Curve:
    """Measure the mutual information of labels and k-means clusters, fitted on nine tenths of the texts and scored on
    the other, in nats as in Xie et al. 2022, or normalised.

    Of few texts it is above 0 by chance: by about (classes - 1) (clusters - 1) / 2 over the texts of a fold, in nats.

    Args:
        reps: Representations with labels.
        clusters: How many clusters; as many as there are classes if not given.
        normalized: Divide by the mean of the two entropies, so that 1 is the most; the curve is then called
            `normalized_mutual_information`.
        balance: Take as many rows of every class as the smallest has, as the paper does.
        folds: How many parts the texts are split into.
        ci: Add intervals of this level, such as 0.95, and `wins`, over halves of the texts.
        subsamples: How many halves are drawn for an interval.
        seed: Decides the rows that are drawn, the halves and the folds.

    Returns:
        A `Curve`; `best` is its greatest layer.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> rows, labels = np.random.default_rng(0).normal(size=(200, 4)), np.arange(200) % 2
        >>> reps = ls.Representations.from_arrays([rows, rows + 5 * labels[:, None]], labels)
        >>> ls.mutual_information(reps).name, ls.mutual_information(reps, normalized=True).name
        ('mutual_information', 'normalized_mutual_information')
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import mutual_info_score, normalized_mutual_info_score

    check_choices(reps, "Mutual information")
    check_seed(seed)
    check_count(clusters, "clusters")
    count = clusters or int(several_classes(reps.labels, "Mutual information").max()) + 1
    drawn = balanced(reps, seed) if balance else reps
    _enough(drawn, folds, ci, "Mutual information", count)
    information = normalized_mutual_info_score if normalized else mutual_info_score

    def value(x: Tensor, labels: np.ndarray, texts: np.ndarray) -> float:
        rows, scores = x.numpy(), []
        if not varies(x):
            return math.nan  # nothing varies: there are no clusters
        fold = folds_of(texts, folds, seed=seed, labels=labels)
        for k in range(folds):
            fitted = KMeans(count, n_init=3, random_state=seed).fit(rows[fold != k])
            scores.append(information(labels[fold == k], fitted.predict(rows[fold == k])))
        return float(np.mean(scores))

    name = "normalized_mutual_information" if normalized else "mutual_information"
    return _curve(name, value, drawn, ci=ci, subsamples=subsamples, seed=seed, balance=balance)


def label_cca(
    reps: Representations,
    *,
    balance: bool = True,
    folds: int = 10,
    ci: float | None = None,
    subsamples: int = _FEW,
    seed: int = 0,
) -> Curve:
    """Measure the mean canonical correlation of states with labels, on texts that neither fit nor choose.

    Labels are one-hot classes, or numbers. Of ten folds eight fit the directions, one chooses the ridge constants and
    one scores, ten times over. All correlations but the last count, since one-hot labels have one direction too many; a
    single one counts itself.

    Args:
        reps: Representations with labels.
        balance: Take as many rows of every class as the smallest has, as Xie et al. do; numbers stay as they are.
        folds: How many parts the texts are split into.
        ci: Add intervals of this level, such as 0.95, and `wins`, over halves of the texts.
        subsamples: How many halves are drawn for an interval.
        seed: Decides the rows that are drawn, the halves and the folds.

    Returns:
        A `Curve`; `best` is its greatest layer.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> rows, labels = np.random.default_rng(0).normal(size=(200, 4)), np.arange(200) % 2
        >>> reps = ls.Representations.from_arrays([rows, rows + 5 * labels[:, None]], labels)
        >>> ls.label_cca(reps).layers
        [0, 1]
    """
    if reps.labels is None:
        raise InputError("Label CCA needs labels, and there are none.")
    check_choices(reps, "Label CCA")
    check_seed(seed)
    numbers = np.asarray(reps.labels).dtype.kind == "f"
    if numbers:
        check_numbers(reps.labels, "Label CCA")
    else:
        several_classes(reps.labels, "Label CCA")
    drawn = balanced(reps, seed) if balance else reps
    _enough(drawn, folds, ci, "Label CCA")

    def value(x: Tensor, labels: np.ndarray, texts: np.ndarray) -> float:
        if not varies(x):
            return math.nan  # nothing varies: there is nothing to correlate
        values = labels if numbers else np.unique(labels, return_inverse=True)[1]
        y = torch.from_numpy(values[:, None].astype(float) if numbers else np.eye(int(values.max()) + 1)[values])
        fold = torch.from_numpy(folds_of(texts, folds, seed=seed, labels=None if numbers else values))
        scores = []
        for k in range(folds):
            test, choose = fold == k, fold == (k + 1) % folds
            fit = ~(test | choose)
            cca = RidgeCCA(x[fit], y[fit])
            maps = [cca.directions(a, b) for a in _CONSTANTS for b in _CONSTANTS]
            best = max(maps, key=lambda m: cca.score(m, x[choose], y[choose]))
            scores.append(cca.score(best, x[test], y[test]))
        return float(np.mean(scores))

    return _curve("label_cca", value, drawn, ci=ci, subsamples=subsamples, seed=seed, balance=balance)


Directions = tuple[Tensor, Tensor]  # of x and of y, one column each


class RidgeCCA:
    """Canonical directions of two sides for any ridge constants, from one eigendecomposition per side."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.means = x.mean(dim=0), y.mean(dim=0)
        x, y = x - self.means[0], y - self.means[1]
        (self.x_values, self.x_vectors), (self.y_values, self.y_vectors) = (
            torch.linalg.eigh(side.T @ side / len(side)) for side in (x, y)
        )
        self.cross = self.x_vectors.T @ (x.T @ y / len(x)) @ self.y_vectors  # a ridge only scales it

    def directions(self, a: float, b: float) -> Directions:
        """The canonical directions under ridge constants that are shares of each side's mean variance."""
        x_scale, y_scale = (
            (values + constant * values.mean()).clamp_min(1e-300).rsqrt()[:, None]
            for values, constant in ((self.x_values, a), (self.y_values, b))
        )
        u, _, vt = torch.linalg.svd(x_scale * self.cross * y_scale.T, full_matrices=False)
        return self.x_vectors @ (x_scale * u), self.y_vectors @ (y_scale * vt.T)

    def score(self, directions: Directions, x: Tensor, y: Tensor) -> float:
        """Mean correlation of the canonical variates on other rows; all but the last where there are several."""
        a, b = (x - self.means[0]) @ directions[0], (y - self.means[1]) @ directions[1]
        a, b = a - a.mean(dim=0), b - b.mean(dim=0)
        scale = (a.pow(2).sum(dim=0) * b.pow(2).sum(dim=0)).sqrt()
        each = torch.where(scale > 0, (a * b).sum(dim=0) / scale.clamp_min(1e-300), torch.zeros_like(scale))
        kept = each[:-1] if len(each) > 1 else each
        return float(kept.mean())


def _curve(name: str, value: LayerValue, reps: Representations, **options: Any) -> Curve:
    """The curve of a measure, from its value of one layer; `options` are further ones of `curve_of`."""

    def values(part: Representations) -> np.ndarray:
        labels = np.asarray(part.labels)
        return np.asarray([value(part[layer].double(), labels, part.rows.row) for layer in part.layers])

    title, shows, reading, least, within = _MEASURES[name]
    words = {"title": title, "shows": f"{shows} in each layer.", "reading": reading}
    return curve_of(name, values, reps, least=least, words=words, within=within, **options)


def _enough(reps: Representations, folds: int, ci: float | None, measure: str, clusters: int = 1) -> None:
    """Raise InputError unless every fold has enough texts, also in halves of them where intervals are wanted."""
    check_finite(reps)
    check_count(folds, "folds")
    if folds < 3:
        raise InputError(f"folds is {folds}; there must be at least 3.")
    least = max(5 * folds, 2 * clusters) * (1 if ci is None else 2)
    texts = len(np.unique(reps.rows.row))
    if texts < least:
        needs = "" if ci is None else " and intervals"
        kind, many = ("rows", len(reps)) if texts == len(reps) else ("texts", texts)
        raise InputError(f"{measure} needs at least {least} {kind} for {folds} folds{needs}; there are {many}.")
