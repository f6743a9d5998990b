"""The tasks' metrics: one number from labels and predictions, and which way is up."""

from __future__ import annotations

import math

import numpy as np

from layerscope.errors import InputError

_CONSTANT = 1e-12  # variance below this share of the squared mean is the rounding of float32


def score(metric: str, labels: np.ndarray, predictions: np.ndarray, classes: int | None = None) -> float:
    """accuracy, f1 (of class 1; the mean over classes where there are more than two), matthews, or a correlation.

    `classes` is how many the task has, which a few rows need not show; if not given, as many as labels and predictions
    have. A correlation with predictions that are the same up to rounding has no value: NaN. Matthews of a constant is
    0, as is usual.
    """
    if not len(labels):
        return math.nan
    if metric in _OF_NUMBERS:
        return _OF_NUMBERS[metric](labels, predictions) if _vary(predictions) else math.nan
    return float(_OF_COUNTS[metric](_confusion(labels, predictions, classes)))


def _vary(predictions: np.ndarray) -> bool:
    """Whether numbers differ by more than rounding, as those of a head on summary tokens at layer 0 do not."""
    values = np.asarray(predictions, dtype=float)
    return bool(values.var() > _CONSTANT * values.mean() ** 2)


def _pearson(labels: np.ndarray, predictions: np.ndarray) -> float:
    if np.ptp(labels) == 0 or len(labels) < 2:
        return math.nan
    return float(np.corrcoef(labels, predictions)[0, 1])


def _spearman(labels: np.ndarray, predictions: np.ndarray) -> float:
    from scipy.stats import rankdata

    return _pearson(rankdata(labels), rankdata(predictions))


def _both(labels: np.ndarray, predictions: np.ndarray) -> float:
    return (_pearson(labels, predictions) + _spearman(labels, predictions)) / 2


def _confusion(labels: np.ndarray, predictions: np.ndarray, classes: int | None) -> np.ndarray:
    """(classes, classes): how often each label got each prediction."""
    count = max(int(max(labels.max(), predictions.max(), 1)) + 1, classes or 0)
    return np.bincount(labels * count + predictions, minlength=count**2).reshape(count, count)


def _accuracy(counts: np.ndarray) -> np.ndarray:
    return np.trace(counts, axis1=-2, axis2=-1) / counts.sum(axis=(-2, -1))


def _f1(counts: np.ndarray) -> np.ndarray:
    right = np.diagonal(counts, axis1=-2, axis2=-1)
    both = counts.sum(axis=-1) + counts.sum(axis=-2)
    each = np.where(both > 0, 2 * right / np.maximum(both, 1), 0.0)
    if counts.shape[-1] == 2:
        return each[..., 1]
    seen = both > 0  # a class that is neither a label nor a prediction does not count
    return (each * seen).sum(axis=-1) / seen.sum(axis=-1)


def _matthews(counts: np.ndarray) -> np.ndarray:
    n = counts.sum(axis=(-2, -1)).astype(float)
    labels, guesses = counts.sum(axis=-1).astype(float), counts.sum(axis=-2).astype(float)
    shared = np.trace(counts, axis1=-2, axis2=-1) * n - (labels * guesses).sum(axis=-1)
    scale = np.sqrt((n**2 - (labels**2).sum(axis=-1)) * (n**2 - (guesses**2).sum(axis=-1)))
    return np.where(scale > 0, shared / np.maximum(scale, 1e-300), 0.0)


_OF_COUNTS = {"accuracy": _accuracy, "f1": _f1, "matthews": _matthews}
_OF_NUMBERS = {"pearson_spearman": _both, "spearman": _spearman, "pearson": _pearson}
_OF_LIKELIHOOD = ("acc", "acc_norm")  # choices by their likelihood: summed, and per character of the choice
LOSSES = ("perplexity", "nll", "bits_per_byte")  # of tokens; the only ones of which less is better
METRICS = (*_OF_COUNTS, *_OF_NUMBERS, *_OF_LIKELIHOOD, *LOSSES)


def higher_is_better(metric: str) -> bool:
    """Whether a larger number is a better score."""
    return metric not in LOSSES


def upward(metric: str, score: float) -> float:
    """A score turned so that larger is better; what is undefined is worse than anything."""
    if math.isnan(score):
        return -math.inf
    return score if higher_is_better(metric) else -score


def of_numbers(metric: str) -> bool:
    """Whether it compares numbers rather than classes."""
    return metric in _OF_NUMBERS


def fitting(regression: bool) -> tuple[str, ...]:
    """The metrics that are always given for numbers, or for classes."""
    return ("pearson_spearman",) if regression else tuple(_OF_COUNTS)


def allowed(regression: bool) -> tuple[str, ...]:
    """The metrics that numbers, or classes, can be scored by."""
    return tuple(_OF_NUMBERS if regression else _OF_COUNTS)


def check_fits(metric: str, regression: bool, name: str) -> None:
    """Raise unless the labels of what has this name, numbers or classes, can be scored by the metric."""
    if metric not in allowed(regression):
        raise InputError(
            f"{metric} was asked for, and the labels of {name} are {'numbers' if regression else 'classes'}, which are "
            f"scored by {', '.join(allowed(regression))}; name one of these (metric=, --metric)."
        )


def bounds(metric: str) -> tuple[float, float]:
    """The least and the greatest score that there can be."""
    if metric in LOSSES:
        return 0.0, math.inf
    return -1.0 if metric == "matthews" or metric in _OF_NUMBERS else 0.0, 1.0


def majority(metric: str, labels: np.ndarray, classes: int | None = None) -> float:
    """The score of always giving the most frequent class; NaN where labels are numbers."""
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
    """An interval for a score: texts drawn with replacement, percentiles of the scores. One text has none: NaN.

    Where all answers are right every draw is the same. The lower end is then the score of the greatest share of wrong
    answers that would still give none among so many (Clopper and Pearson), the same in every class. All wrong answers
    have the like interval for their accuracy.
    """
    if len(labels) < 2:
        return math.nan, math.nan
    generator = np.random.default_rng(seed)
    if metric in _OF_NUMBERS:
        places = (generator.integers(len(labels), size=len(labels)) for _ in range(min(rounds, 200)))
        draws = np.asarray([score(metric, labels[at], predictions[at]) for at in places])
    else:  # drawing texts is drawing cells of the confusion matrix
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
    """Right answers with a share of every class made wrong, evenly over the other classes that there are labels of."""
    rows = counts.sum(axis=-1)
    others = np.tile(rows > 0, (len(rows), 1)) if (rows > 0).sum() > 1 else np.ones_like(counts, dtype=bool)
    np.fill_diagonal(others, False)
    wrong = others * (share * rows / np.maximum(others.sum(axis=-1), 1))[:, None]
    return wrong + np.diag((1 - share) * rows)
