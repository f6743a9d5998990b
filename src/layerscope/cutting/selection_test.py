"""The test that selects a smaller model: candidates are picked on some rows and confirmed on others, size by size.

The best of many candidates on some rows is not as good as it looks there, and a bound for each by itself does not help,
since the luckiest of them is the one that is taken. So the rows that choose are parted. One part picks a candidate of
each size. The other tests the picks from the largest to the smallest, each at the full level, and stops at the first
that cannot be shown to be within the tolerance. Whatever the scores are, and however alike the candidates' mistakes,
the chance that one of the tests passes a model outside the tolerance is at most 1 - confidence: the first such pick in
the order has to pass by luck, and the order was fixed before the rows that test it were looked at (fixed-sequence
testing: Maurer, Hothorn & Lehmacher 1995).

What a smaller model changes is known row by row, as values whose mean is the change of the score and whose spread gives
its error. For a mean over rows (accuracy, a loss) the value of a row is its own change. Other metrics (F1, Matthews,
correlations) have no value of a row; there it is the jackknife's, n s - (n - 1) s without the row (Tukey 1958), of the
difference of both models' scores on the same rows.

Changes of a loss, or of tags, are measured by texts: their mean loss, weighed by their tokens. The logarithm of a
perplexity is such a loss, so a share of a perplexity is an amount of its logarithm. Other changes are measured by the
answers to each row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from scipy.special import ndtri, stdtrit

from layerscope import metrics, resampling
from layerscope.cutting.targets import Tolerance
from layerscope.errors import InputError
from layerscope.evaluation.evaluator import Evaluator
from layerscope.evaluation.token_evaluator import COUNT, RIGHT, TokenEvaluator

E = TypeVar("E", bound=Evaluator)
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
    """Return the change of a mean loss, such as the negative log-likelihood of a text: lower is better.

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
    """Return the change of a task's metric between two models' answers (classes, or numbers) to the same rows."""
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
    """Return the jackknife's value of each row (n, ..), or of each group of rows where rows are too many.

    Rows that are equal have the same value, so that only one of them is left out.
    """
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
    """Return what one more row would count that the whole model gets right and the smaller one does not, at worst."""
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


_MOST_ROWS = 10**9
_FOLDS = 4  # of the half that chooses; one picks and the others confirm


@dataclass(frozen=True)
class Parts:
    """Positions of rows by their use: picking candidates, confirming the picks, scoring what was chosen."""

    picking: np.ndarray
    confirming: np.ndarray
    scoring: np.ndarray

    @staticmethod
    def dealt(
        texts: resampling.Numbers, confidence: float, *, seed: int, labels: resampling.Numbers | None = None
    ) -> Parts:
        """Return the parts: half of the texts score; of the other half a quarter picks and the rest confirms.

        At confidence 0 all of that half pick. Every part has its share of each label, where labels are given.
        """
        rows, choosing = np.arange(len(texts)), resampling.halves(texts, seed=seed, labels=labels)
        if confidence == 0:
            return Parts(rows[choosing], rows[:0], rows[~choosing])
        chosen_labels = None if labels is None else np.asarray(labels)[choosing]
        picking = resampling.folds(np.asarray(texts)[choosing], _FOLDS, seed=seed, labels=chosen_labels) == 0
        return Parts(rows[choosing][picking], rows[choosing][~picking], rows[~choosing])

    @staticmethod
    def of(evaluator: E, confidence: float, *, seed: int) -> tuple[E, Parts]:
        """Deal out the texts of an evaluator; return it with rows that are each of one part, and which are of which.

        Where texts are so few, or so unequal, that a part would have none, rows themselves are. Raises InputError
        where rows are too few as well.
        """
        for dealing in (evaluator, evaluator.by_rows()):
            found, parts = Parts._of(dealing, confidence, seed)
            if len(parts.picking) and len(parts.scoring) and (confidence == 0 or len(parts.confirming)):
                return found, parts
        raise InputError(
            f"The texts of {evaluator.examples.task} ({evaluator.examples.split}) cannot be dealt out so that some "
            "choose and others score: most have too few tokens for a window; give more text."
        )

    @staticmethod
    def _of(evaluator: E, confidence: float, seed: int) -> tuple[E, Parts]:
        """Return the evaluator with its texts dealt out, and the rows of each part, of which some may have none."""
        dealt = Parts.dealt(np.arange(evaluator.text_count), confidence, seed=seed, labels=evaluator.classes)
        one = confidence > 0 and not len(dealt.confirming)  # one text chooses: it is parted by its rows
        numbers = np.empty(evaluator.text_count, np.int64)
        for number, texts in enumerate((dealt.picking, dealt.confirming, dealt.scoring)):
            numbers[texts] = number
        parted, of_rows = evaluator.dealt(numbers)
        picking, confirming, scoring = (np.flatnonzero(of_rows == number) for number in range(3))
        if one:
            first = resampling.folds(np.arange(len(picking)), _FOLDS, seed=seed) == 0
            picking, confirming = picking[first], picking[~first]
        return parted, Parts(picking, confirming, scoring)


@dataclass(frozen=True)
class Check:
    """One candidate on the rows that confirm: its score less the whole model's, and a lower bound for that."""

    candidate: int
    change: float
    low: float
    passed: bool


@dataclass(frozen=True)
class Decision:
    """The outcome of the tests. `choice` is None where no candidate was confirmed: then nothing is left out.

    `checks` are in the order of the tests; all but perhaps the last have passed. `needed` is how many confirming rows
    it would take to pass the last one, if it is as good as it looks; None where all passed, or where it looks to be
    outside the tolerance.
    """

    choice: int | None
    checks: tuple[Check, ...]
    needed: int | None


def decide(
    scores: Sequence[float],
    sizes: Sequence[float],
    changes: Callable[[int], Changes],
    *,
    tolerance: float,
    confidence: float,
) -> Decision:
    """Return the smallest candidate that can be shown to be within the tolerance of the whole model.

    Args:
        scores: Each candidate's score on the rows that pick, higher is better; a NaN is never picked.
        sizes: Each candidate's size. Those of one size compete for one place in the order of tests.
        changes: What a candidate changes on the rows that confirm, none of which may be among those that pick.
        tolerance: How much the score may fall.
        confidence: How sure that must be, above 0 and below 1.
    """
    check_confidence(confidence)
    checks: list[Check] = []
    choice = needed = None
    for candidate in order(scores, sizes):
        change = changes(candidate)
        low = lower_bound(change, confidence)
        checks.append(Check(candidate, change.mean, low, low >= -tolerance))
        if not checks[-1].passed:
            needed = rows_needed(change, tolerance, confidence)
            break
        choice = candidate
    return Decision(choice, tuple(checks), needed)


def order(scores: Sequence[float], sizes: Sequence[float]) -> list[int]:
    """Return the best candidate of each size, from the largest size to the smallest."""
    values = np.asarray(scores, dtype=float)
    picks = []
    for size in sorted(set(sizes), reverse=True):
        rivals = [k for k, other in enumerate(sizes) if other == size and not math.isnan(values[k])]
        if rivals:
            picks.append(max(rivals, key=lambda k: values[k]))
    return picks


def smallest_within(scores: Sequence[float], sizes: Sequence[float], whole: float, tolerance: float) -> int | None:
    """Return the smallest candidate whose score is within the tolerance, the best of that size, without any bound.

    It takes the luckiest of many, and is outside the tolerance far more often than not (`docs/calibration.md`).
    """
    enough = [k for k, score in enumerate(scores) if score >= whole - tolerance]
    return min(enough, key=lambda k: (sizes[k], -scores[k]), default=None)


def lower_bound(changes: Changes, confidence: float) -> float:
    """Return a one-sided bound for the true change: Student's, with some rows added that were lost as badly as can be.

    Where two models hardly ever differ, the rows at hand hold too few differences to tell their spread, and a bound
    from the spread alone is far too good. With `added_rows` it is the exact one where no row was lost (no event in n
    rows is a rate of at most log(1 / (1 - confidence)) / n), and within 5 % of it for any number of losses.
    """
    count = len(changes.values)
    if count < 2:
        return -math.inf
    return _bound(changes, changes.mean, changes.n, count, confidence)


def _bound(changes: Changes, mean: float, n: float, count: float, confidence: float) -> float:
    """Return the bound of `lower_bound` for a mean over n rows, with the spread of these changes in `count` values."""
    added = added_rows(confidence) * changes.worst / n
    spread = float(np.var(changes.values, ddof=1)) / count + added * changes.worst / n
    return mean + added - float(stdtrit(count - 1, confidence)) * math.sqrt(spread)


LEVEL = 0.95  # of intervals of a difference
Paired = tuple[float, float, float]  # how much better one model scores than another, and the ends of the interval


def paired_interval(forth: Changes, back: Changes, in_metric: Callable[[float], float] = float) -> Paired:
    """Return the mean of the changes `forth` with its interval; an end that nothing bounds is infinite.

    Both ends are bounds of `lower_bound`, so that the interval is wide where few rows differ: the upper one is of the
    changes `back`, of the other model over the first. `in_metric` turns a change into units of the metric.
    """
    side = (1 + LEVEL) / 2
    ends = (lower_bound(forth, side), -lower_bound(back, side))
    low, high = (in_metric(end) if math.isfinite(end) else end for end in ends)
    return in_metric(forth.mean), low, high


def added_rows(confidence: float) -> float:
    """Return k with k + z sqrt(k) = log(1 / (1 - confidence)): the Poisson bound for no event, as a normal one."""
    z = float(ndtri(confidence))
    return ((math.sqrt(z * z - 4 * math.log(1 - confidence)) - z) / 2) ** 2


def rows_needed(changes: Changes, tolerance: float, confidence: float) -> int | None:
    """Return how many rows would show a change like this to be within the tolerance; None if no number would.

    A gain counts as no change: what looks better than the whole model is more often lucky than better.
    """
    mean, groups = min(changes.mean, 0.0), len(changes.values) / changes.n

    def enough(n: int) -> bool:
        return _bound(changes, mean, n, max(groups * n, 2.0), confidence) >= -tolerance

    if len(changes.values) < 2 or not mean > -tolerance or not enough(_MOST_ROWS):
        return None
    low, high = 1, _MOST_ROWS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return high


def least_rows(tolerance: float, confidence: float, worst: float = 1.0) -> int | None:
    """Return how many rows it takes, at the very least, to confirm a model that changes no answer at all."""
    return math.ceil(-math.log(1 - confidence) * worst / tolerance) if tolerance > 0 else None


def check_confidence(confidence: float) -> float:
    """Return a confidence of at least .5 and below 1; raise InputError about any other."""
    if not 0.5 <= confidence < 1:
        raise InputError(
            f"confidence is {confidence:g}; it must be at least 0.5 and below 1, such as 0.9, or 0 for the smallest "
            "candidate within the tolerance, without any bound."
        )
    return confidence


_LIKELIHOOD = ("acc", "acc_norm")


class Comparison:
    """Compares each plan of an evaluation with the first, which is the whole model, on some rows."""

    def __init__(self, evaluator: Evaluator, answers: np.ndarray, rows: np.ndarray, tolerance: Tolerance) -> None:
        self.evaluator, self.answers, self.rows, self.tolerance = evaluator, answers, rows, tolerance
        self._by_text = isinstance(evaluator, TokenEvaluator) and evaluator.metric not in _LIKELIHOOD

    @cached_property
    def _whole(self) -> float:
        return self.evaluator.value(self.answers[0], self.rows)

    def changes(self, place: int) -> Changes:
        """Return what a plan changes, in the units of `limit`; better is positive."""
        if self._by_text:
            (whole, weights), (smaller, _) = (self._losses(self.answers[k]) for k in (0, place))
            return of_losses(whole, smaller, weights=weights)
        labels = self.evaluator.labels[self.rows]  # type: ignore[attr-defined]
        whole, smaller = (self.evaluator.predictions(self.answers[k])[self.rows] for k in (0, place))  # type: ignore[attr-defined]
        metric = "accuracy" if self.evaluator.metric in _LIKELIHOOD else self.evaluator.metric
        return of_answers(metric, labels, whole, smaller, self.evaluator.task.classes)

    def _losses(self, answers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean loss of each text and its weight; of tags and masked tokens the share of wrong ones."""
        assert isinstance(self.evaluator, TokenEvaluator)
        if self.evaluator.metric in metrics.LOSSES:
            return self.evaluator.losses(answers, self.rows)
        wrong = answers.copy()
        wrong[:, 0] = answers[:, COUNT] - answers[:, RIGHT]
        return self.evaluator.losses(wrong, self.rows)

    @property
    def limit(self) -> float:
        """The tolerance, in the units of changes."""
        allowed = self.tolerance.allowed(self._whole)
        if self.evaluator.metric == "perplexity":
            return math.log1p(allowed / self._whole)
        return allowed / self._scale

    @property
    def _scale(self) -> float:
        """How much of the metric one unit of change is; bits per byte count the same loss in other units."""
        if self.evaluator.metric != "bits_per_byte":
            return 1.0
        return self._whole / self.evaluator.measured(self.answers[0], self.rows)["nll"]

    def in_metric(self, change: float) -> float:
        """Return a change in the units of the metric; better is positive."""
        if self.evaluator.metric == "perplexity":
            return -self._whole * math.expm1(min(-change, 700.0))
        return change * self._scale


def paired_change(
    evaluator: Evaluator, before: np.ndarray, after: np.ndarray, rows: np.ndarray | None = None
) -> Paired:
    """Return how much better the answers `after` score than `before`, row by row, on some rows or on all."""
    at = np.arange(len(evaluator.examples)) if rows is None else rows
    forth, back = (
        Comparison(evaluator, np.stack(pair), at, Tolerance(0.0)) for pair in ((before, after), (after, before))
    )
    return paired_interval(forth.changes(1), back.changes(1), forth.in_metric)


def differences(evaluator: Evaluator, answers: Sequence[np.ndarray] | np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return (answers, 3): how much better each scores than the whole model, and its 95% interval, row by row."""
    best, found = metrics.upward(evaluator.metric, evaluator.value(whole)), []
    for part in answers:
        over = metrics.upward(evaluator.metric, evaluator.value(part)) - best
        ends = paired_change(evaluator, whole, part)[1:] if math.isfinite(over) else (math.nan, math.nan)
        found.append((over, *ends))
    return np.asarray(found, dtype=float).reshape(-1, 3)
