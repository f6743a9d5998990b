"""Metrics: scores of predictions against labels, their intervals, and whether higher is better."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from layerscope.errors import InputError

_CELLS = 1 << 22  # numbers that are drawn together
_CONSTANT = 1e-12  # variance below this share of the squared mean is the rounding of float32


def score(metric: str, labels: np.ndarray, predictions: np.ndarray, classes: int | None = None) -> float:
    """Return the score of predictions by a metric of classes (accuracy, f1, matthews) or of numbers (a correlation).

    f1 is that of class 1, or the mean over classes where there are more than two. `classes` is how many the task has,
    since a few rows need not show all of them; if not given, as many as labels and predictions show. A correlation with
    predictions that are equal up to rounding is NaN. Matthews with constant predictions is 0, by convention.
    """
    if not len(labels):
        return math.nan
    if metric in _OF_NUMBERS:
        # A head on summary tokens at layer 0 answers alike for every text: rounding is all that is left to correlate.
        values = np.asarray(predictions, dtype=float)
        vary = values.var() > _CONSTANT * values.mean() ** 2
        return _OF_NUMBERS[metric](labels, predictions) if vary else math.nan
    return float(_OF_COUNTS[metric](_Counts.of(labels, predictions, classes)))


def _pearson(labels: np.ndarray, predictions: np.ndarray) -> float:
    if np.ptp(labels) == 0 or len(labels) < 2:
        return math.nan
    return float(np.corrcoef(labels, predictions)[0, 1])


def _spearman(labels: np.ndarray, predictions: np.ndarray) -> float:
    from scipy.stats import rankdata

    return _pearson(rankdata(labels), rankdata(predictions))


def _mean_of_both(labels: np.ndarray, predictions: np.ndarray) -> float:
    return (_pearson(labels, predictions) + _spearman(labels, predictions)) / 2


@dataclass(frozen=True)
class _Counts:
    """What scores of classes need of a confusion matrix, or of several: (.., classes) each, and never all its cells."""

    right: np.ndarray
    labels: np.ndarray
    predictions: np.ndarray

    @staticmethod
    def of(labels: np.ndarray, predictions: np.ndarray, classes: int | None) -> _Counts:
        count = _class_count(labels, predictions, classes)
        parts = (labels[labels == predictions], labels, predictions)
        return _Counts(*(np.bincount(part, minlength=count) for part in parts))

    @staticmethod
    def drawn(
        labels: np.ndarray, predictions: np.ndarray, classes: int | None, rounds: int, generator: np.random.Generator
    ) -> Iterator[_Counts]:
        """Yield the counts of draws with replacement, some of the rounds at a time.

        Drawing cells of the confusion matrix is as good as drawing texts, and far quicker. Only filled cells are drawn,
        so that memory does not grow with the square of the number of classes.
        """
        count, n = _class_count(labels, predictions, classes), len(labels)
        # The last cell is always among them: the numbers are then those of a draw of all cells, since what numpy draws
        # for an empty cell before the last takes nothing of the generator.
        names, sizes = np.unique(labels.astype(np.int64) * count + predictions, return_counts=True)
        if names[-1] != count**2 - 1:
            names, sizes = np.append(names, count**2 - 1), np.append(sizes, 0)
        of_label, of_prediction = names // count, names % count
        by_prediction = np.argsort(of_prediction, kind="stable")
        diagonal = of_label == of_prediction
        some = max(1, _CELLS // max(len(names), count))
        for start in range(0, rounds, some):
            cells = generator.multinomial(n, sizes / n, size=min(some, rounds - start))
            right = np.zeros((len(cells), count), dtype=cells.dtype)
            right[:, of_label[diagonal]] = cells[:, diagonal]
            sums = (
                _summed(cells, of_label, count),
                _summed(cells[:, by_prediction], of_prediction[by_prediction], count),
            )
            yield _Counts(right, *sums)

    def with_wrong_answers(self, share: float) -> _Counts:
        """Return the counts where all answers are right, with a share of each class made wrong instead.

        The wrong answers are spread evenly over the other classes that occur among the labels.
        """
        seen = self.labels > 0
        taking = seen if seen.sum() > 1 else np.ones_like(seen)
        # Each class gives its wrong answers to all that take them but itself.
        given = share * self.labels / np.maximum(taking.sum() - taking, 1)
        right = (1 - share) * self.labels
        return _Counts(right, self.labels, right + np.where(taking, given.sum() - given, 0.0))


def _class_count(labels: np.ndarray, predictions: np.ndarray, classes: int | None) -> int:
    return max(int(max(labels.max(), predictions.max(), 1)) + 1, classes or 0)


def _summed(cells: np.ndarray, names: np.ndarray, count: int) -> np.ndarray:
    """Return (rounds, count) the sums of columns that have the same name; the names are in order."""
    sums = np.zeros((len(cells), count), dtype=cells.dtype)
    present, starts = np.unique(names, return_index=True)
    sums[:, present] = np.add.reduceat(cells, starts, axis=1)
    return sums


def _accuracy(counts: _Counts) -> np.ndarray:
    accuracy: np.ndarray = counts.right.sum(axis=-1) / counts.labels.sum(axis=-1)
    return accuracy


def _f1(counts: _Counts) -> np.ndarray:
    total = counts.labels + counts.predictions
    each = np.where(total > 0, 2 * counts.right / np.maximum(total, 1), 0.0)
    if each.shape[-1] == 2:
        return each[..., 1]
    seen = total > 0  # a class that is neither a label nor a prediction does not count
    return (each * seen).sum(axis=-1) / seen.sum(axis=-1)


def _matthews(counts: _Counts) -> np.ndarray:
    labels, guesses = counts.labels.astype(float), counts.predictions.astype(float)
    n = labels.sum(axis=-1)
    shared = counts.right.sum(axis=-1) * n - (labels * guesses).sum(axis=-1)
    scale = np.sqrt((n**2 - (labels**2).sum(axis=-1)) * (n**2 - (guesses**2).sum(axis=-1)))
    return np.where(scale > 0, shared / np.maximum(scale, 1e-300), 0.0)


_OF_COUNTS = {"accuracy": _accuracy, "f1": _f1, "matthews": _matthews}
_OF_NUMBERS = {"pearson_spearman": _mean_of_both, "spearman": _spearman, "pearson": _pearson}
_OF_LIKELIHOOD = ("acc", "acc_norm")  # accuracy of choices by their likelihood: summed, and per character of the choice
LOSSES = ("perplexity", "nll", "bits_per_byte")  # of tokens; the only metrics of which less is better
METRICS = (*_OF_COUNTS, *_OF_NUMBERS, *_OF_LIKELIHOOD, *LOSSES)


def higher_is_better(metric: str) -> bool:
    """Return whether a larger number is a better score."""
    return metric not in LOSSES


def upward(metric: str, score: float) -> float:
    """Return a score with its sign turned where less is better, so that scores can be compared; NaN is the worst."""
    if math.isnan(score):
        return -math.inf
    return score if higher_is_better(metric) else -score


def in_nats(metric: str, value: float) -> float:
    """A perplexity as a loss per token, which can be shared out; other metrics as they are."""
    return math.log(value) if metric == "perplexity" and value > 0 else value


def recovered(uncut: float, cut: float, healed: float) -> float:
    """The share of what a cut lost that healing brought back; NaN where nothing was lost."""
    return (cut - healed) / (cut - uncut) if math.isfinite(cut) and cut != uncut else math.nan


def of_numbers(metric: str) -> bool:
    """Return whether a metric compares numbers rather than classes."""
    return metric in _OF_NUMBERS


def fitting(regression: bool) -> tuple[str, ...]:
    """Return the metrics that a score always reports, for labels that are numbers or classes."""
    return ("pearson_spearman",) if regression else tuple(_OF_COUNTS)


def allowed(regression: bool) -> tuple[str, ...]:
    """Return the metrics by which labels that are numbers, or classes, can be scored."""
    return tuple(_OF_NUMBERS if regression else _OF_COUNTS)


def check_fits(metric: str, regression: bool, name: str) -> None:
    """Raise InputError unless the metric can score the labels, numbers or classes, of the task of that name."""
    if metric not in allowed(regression):
        raise InputError(
            f"{metric} was asked for, and the labels of {name} are {'numbers' if regression else 'classes'}, which are "
            f"scored by {', '.join(allowed(regression))}; name one of these (metric=, --metric)."
        )


def bounds(metric: str) -> tuple[float, float]:
    """Return the lowest and the highest score that a metric can have."""
    if metric in LOSSES:
        return 0.0, math.inf
    return -1.0 if metric == "matthews" or metric in _OF_NUMBERS else 0.0, 1.0


def majority(metric: str, labels: np.ndarray, classes: int | None = None) -> float:
    """Return the score of always predicting the most frequent class; NaN where labels are numbers."""
    if metric not in _OF_COUNTS or not len(labels):
        return math.nan
    return score(metric, labels, np.full(len(labels), np.bincount(labels).argmax()), classes)


def bootstrap(
    metric: str,
    labels: np.ndarray,
    predictions: np.ndarray,
    classes: int | None = None,
    *,
    rounds: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the ends of a bootstrap interval of a score: percentiles over draws of texts with replacement.

    With fewer than two texts both ends are NaN. Where all answers are right every draw is the same. The lower end is
    then the score at the largest share of wrong answers, the same in every class, with which a sample of this size
    would still show none with the chance that the level leaves (Clopper and Pearson). Where all answers are wrong the
    interval of the accuracy is made in the same way.
    """
    if len(labels) < 2:
        return math.nan, math.nan
    generator = np.random.default_rng(seed)
    if metric in _OF_NUMBERS:
        places = (generator.integers(len(labels), size=len(labels)) for _ in range(min(rounds, 200)))
        draws = np.asarray([score(metric, labels[at], predictions[at]) for at in places])
    else:
        drawn = _Counts.drawn(labels, predictions, classes, rounds, generator)
        draws = np.concatenate([_OF_COUNTS[metric](counts) for counts in drawn])
    edge = (1 - level) / 2
    least = edge ** (1 / len(labels))  # the share at which so many right answers in a row have the chance `edge`
    if metric in _OF_COUNTS and np.array_equal(labels, predictions):
        counts = _Counts.of(labels, predictions, classes).with_wrong_answers(1 - least)
        return float(_OF_COUNTS[metric](counts)), float(draws.max())
    if metric == "accuracy" and not draws.any():
        return 0.0, 1 - least
    low, high = np.nanquantile(draws, [edge, 1 - edge])
    return float(low), float(high)
