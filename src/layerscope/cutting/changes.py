"""What a smaller model changes, row by row: values whose mean is the change of the score, whose spread its error.

For a mean over rows (accuracy, a loss) the value of a row is its own change. Other metrics (F1, Matthews, correlations)
have no value of a row; there it is the jackknife's, n s - (n - 1) s without the row (Tukey 1958), of the difference of
both models' scores on the same rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from layerscope.data import metrics, resampling

_GROUPS = 100  # rows are left out in so many groups where there are too many to leave out one by one
_ALONE = 250  # kinds of rows that are left out one by one, at most


@dataclass(frozen=True)
class Changes:
    """The change of a score on n rows: better is positive.

    `values` are of one row each, or of one group of rows; `worst` is what one more row, lost as badly as a row can be,
    would count.
    """

    values: np.ndarray
    n: int
    worst: float

    @property
    def mean(self) -> float:
        """The change of the score."""
        return float(np.mean(self.values))


def of_losses(whole: np.ndarray, smaller: np.ndarray, *, weights: np.ndarray | None = None) -> Changes:
    """The change of a mean loss, such as the negative log-likelihood of a text: lower is better.

    Args:
        whole: The whole model's loss on each row.
        smaller: The smaller model's, on the same rows.
        weights: How much each row counts, such as its number of tokens: the mean is then weighted by it. The mean of a
            negative log-likelihood is the logarithm of a perplexity, so a tolerance of log(1.05) allows 5 % of it.
    """
    gains = np.asarray(whole, dtype=float) - np.asarray(smaller, dtype=float)
    if weights is not None:
        share = np.asarray(weights, dtype=float) / np.mean(weights)
        mean = float(np.mean(share * gains))
        gains = mean + share * (gains - mean)  # a ratio of means, linearised
    return Changes(gains, len(gains), min(float(gains.min()), 0.0))


def of_answers(
    metric: str, labels: np.ndarray, whole: np.ndarray, smaller: np.ndarray, classes: int | None = None
) -> Changes:
    """The change of a task's metric between two models' answers (classes, of so many, or numbers) to the same rows."""
    n = len(labels)
    if metric == "accuracy":
        return Changes((smaller == labels).astype(float) - (whole == labels), n, -1.0)

    def value(rows: np.ndarray) -> float:
        first, second = (metrics.score(metric, labels[rows], answers[rows], classes) for answers in (smaller, whole))
        return first - second

    values = jackknifed(value, np.column_stack([labels, whole, smaller]))
    numbers = metrics.of_numbers(metric)
    worst = float(values.min()) if numbers else _lost_row(metric, labels, whole, smaller, classes)
    return Changes(values, n, min(worst, 0.0))


def jackknifed(value: Callable[[np.ndarray], float], rows: np.ndarray) -> np.ndarray:
    """The jackknife's value of each row (n, ..); equal rows are left out once, and groups where rows are too many."""
    n = len(rows)
    everything = np.arange(n)
    whole = value(everything)
    _, first, kind = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    if len(first) <= _ALONE:
        without = np.asarray([value(np.delete(everything, k)) for k in first])
        return (n * whole - (n - 1) * without)[kind.reshape(-1)]
    group = resampling.folds(everything, _GROUPS, seed=0)
    without = np.asarray([value(everything[group != k]) for k in range(_GROUPS)])
    return _GROUPS * whole - (_GROUPS - 1) * without


def _lost_row(metric: str, labels: np.ndarray, whole: np.ndarray, smaller: np.ndarray, classes: int | None) -> float:
    """What one more row would count that the whole model gets right and the smaller one does not, at worst."""
    n, seen = len(labels), np.unique(labels)
    if len(seen) < 2:
        return -1.0

    def change(labels: np.ndarray, smaller: np.ndarray, whole: np.ndarray) -> float:
        return metrics.score(metric, labels, smaller, classes) - metrics.score(metric, labels, whole, classes)

    before = change(labels, smaller, whole)
    counts = []
    for label in seen:
        others = labels[labels != label]
        guess = np.bincount(others).argmax()
        more = [np.append(part, last) for part, last in ((labels, label), (smaller, guess), (whole, label))]
        counts.append((n + 1) * change(*more) - n * before)
    return float(min(counts))
