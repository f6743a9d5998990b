"""Metrics: scores of predictions against labels, their intervals, and whether higher is better."""

from __future__ import annotations

import math

import numpy as np

from layerscope.errors import InputError

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
    return float(_OF_COUNTS[metric](_confusion(labels, predictions, classes)))


def _pearson(labels: np.ndarray, predictions: np.ndarray) -> float:
    if np.ptp(labels) == 0 or len(labels) < 2:
        return math.nan
    return float(np.corrcoef(labels, predictions)[0, 1])


def _spearman(labels: np.ndarray, predictions: np.ndarray) -> float:
    from scipy.stats import rankdata

    return _pearson(rankdata(labels), rankdata(predictions))


def _mean_of_both(labels: np.ndarray, predictions: np.ndarray) -> float:
    return (_pearson(labels, predictions) + _spearman(labels, predictions)) / 2


def _confusion(labels: np.ndarray, predictions: np.ndarray, classes: int | None) -> np.ndarray:
    """Return the confusion matrix (classes, classes): how often each label got each prediction."""
    count = max(int(max(labels.max(), predictions.max(), 1)) + 1, classes or 0)
    return np.bincount(labels * count + predictions, minlength=count**2).reshape(count, count)


def _accuracy(counts: np.ndarray) -> np.ndarray:
    return np.trace(counts, axis1=-2, axis2=-1) / counts.sum(axis=(-2, -1))


def _f1(counts: np.ndarray) -> np.ndarray:
    right = np.diagonal(counts, axis1=-2, axis2=-1)
    total = counts.sum(axis=-1) + counts.sum(axis=-2)  # labels and predictions of each class
    each = np.where(total > 0, 2 * right / np.maximum(total, 1), 0.0)
    if counts.shape[-1] == 2:
        return each[..., 1]
    seen = total > 0  # a class that is neither a label nor a prediction does not count
    return (each * seen).sum(axis=-1) / seen.sum(axis=-1)


def _matthews(counts: np.ndarray) -> np.ndarray:
    n = counts.sum(axis=(-2, -1)).astype(float)
    labels, guesses = counts.sum(axis=-1).astype(float), counts.sum(axis=-2).astype(float)
    shared = np.trace(counts, axis1=-2, axis2=-1) * n - (labels * guesses).sum(axis=-1)
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
    # A score of classes depends on the counts alone, so drawing cells of the confusion matrix is as good as drawing
    # texts, and far quicker.
    else:
        counts = _confusion(labels, predictions, classes)
        cells = generator.multinomial(len(labels), counts.ravel() / len(labels), size=rounds)
        draws = _OF_COUNTS[metric](cells.reshape(rounds, *counts.shape))
    edge = (1 - level) / 2
    least = edge ** (1 / len(labels))  # the share at which so many right answers in a row have the chance `edge`
    if metric in _OF_COUNTS and np.array_equal(labels, predictions):
        return float(_OF_COUNTS[metric](_with_wrong_answers(counts, 1 - least))), float(draws.max())
    if metric == "accuracy" and not draws.any():
        return 0.0, 1 - least
    low, high = np.nanquantile(draws, [edge, 1 - edge])
    return float(low), float(high)


def _with_wrong_answers(counts: np.ndarray, share: float) -> np.ndarray:
    """Return the confusion matrix of all-right answers, with a share of each class made wrong instead.

    The wrong answers are spread evenly over the other classes that occur among the labels.
    """
    rows = counts.sum(axis=-1)
    others = np.tile(rows > 0, (len(rows), 1)) if (rows > 0).sum() > 1 else np.ones_like(counts, dtype=bool)
    np.fill_diagonal(others, False)
    wrong = others * (share * rows / np.maximum(others.sum(axis=-1), 1))[:, None]
    return wrong + np.diag((1 - share) * rows)
