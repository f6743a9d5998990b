"""Which of many smaller models may be taken: picked on some rows, confirmed on others, one size after the other.

The best of many candidates on some rows is not as good as it looks there, and a bound for each by itself does not help,
since the luckiest of them is the one that is taken. So the rows that choose are parted. One part picks a candidate of
each size. The other tests the picks from the largest to the smallest, each at the full level, and stops at the first
that cannot be shown to be within the tolerance. Whatever the scores are, and however alike the candidates' mistakes,
the chance that one of the tests passes a model outside the tolerance is at most 1 - confidence: the first such pick in
the order has to pass by luck, and the order was fixed before the rows that test it were looked at (fixed-sequence
testing: Maurer, Hothorn & Lehmacher 1995).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from layerscope.cutting.changes import Changes
from layerscope.data import resampling
from layerscope.errors import InputError

_MOST_ROWS = 10**9
_FOLDS = 4  # of the half that chooses; one picks and the others confirm


@dataclass(frozen=True)
class Parts:
    """Rows by what they are for, as positions: picking candidates, confirming the picks, scoring what was chosen."""

    picking: np.ndarray
    confirming: np.ndarray
    scoring: np.ndarray

    @staticmethod
    def dealt(
        texts: resampling.Numbers, confidence: float, *, seed: int, labels: resampling.Numbers | None = None
    ) -> Parts:
        """Half of the texts score. Of the other half a quarter picks and the rest confirms; at confidence 0 all pick.

        Every part has its share of each label, where labels are given.
        """
        rows, choosing = np.arange(len(texts)), resampling.halves(texts, seed=seed, labels=labels)
        if confidence == 0:
            return Parts(rows[choosing], rows[:0], rows[~choosing])
        own = None if labels is None else np.asarray(labels)[choosing]
        picking = resampling.folds(np.asarray(texts)[choosing], _FOLDS, seed=seed, labels=own) == 0
        return Parts(rows[choosing][picking], rows[choosing][~picking], rows[~choosing])


@dataclass(frozen=True)
class Check:
    """One candidate on the rows that confirm: its score less the whole model's, and a lower bound for that."""

    candidate: int
    change: float
    low: float
    passed: bool


@dataclass(frozen=True)
class Decision:
    """What may be taken. `choice` is None where no candidate was confirmed: then nothing is left out.

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
    """The smallest candidate that can be shown to be within the tolerance of the whole model.

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
    """The best candidate of each size, from the largest size to the smallest."""
    values = np.asarray(scores, dtype=float)
    picks = []
    for size in sorted(set(sizes), reverse=True):
        rivals = [k for k, own in enumerate(sizes) if own == size and not math.isnan(values[k])]
        if rivals:
            picks.append(max(rivals, key=lambda k: values[k]))
    return picks


def smallest_within(scores: Sequence[float], sizes: Sequence[float], whole: float, tolerance: float) -> int | None:
    """The rule without a bound: the smallest candidate whose score is within the tolerance; the best of that size.

    It takes the luckiest of many, and is outside the tolerance far more often than not (`docs/calibration.md`).
    """
    enough = [k for k, score in enumerate(scores) if score >= whole - tolerance]
    return min(enough, key=lambda k: (sizes[k], -scores[k]), default=None)


def lower_bound(changes: Changes, confidence: float) -> float:
    """A one-sided bound for the true change: Student's, with some rows added that were lost as badly as can be.

    Where two models hardly ever differ, the rows at hand hold too few differences to tell their spread, and a bound
    from the spread alone is far too good. With `added_rows` it is the exact one where no row was lost (no event in n
    rows is a rate of at most log(1 / (1 - confidence)) / n), and within 5 % of it for any number of losses.
    """
    count = len(changes.values)
    if count < 2:
        return -math.inf
    return _bound(changes, changes.mean, changes.n, count, confidence)


def _bound(changes: Changes, mean: float, n: float, count: float, confidence: float) -> float:
    added = added_rows(confidence) * changes.worst / n
    spread = float(np.var(changes.values, ddof=1)) / count + added * changes.worst / n
    return mean + added - float(stats.t.ppf(confidence, count - 1)) * math.sqrt(spread)


def added_rows(confidence: float) -> float:
    """k with k + z sqrt(k) = log(1 / (1 - confidence)): the Poisson bound for no event, as a normal one."""
    z = float(stats.norm.ppf(confidence))
    return ((math.sqrt(z * z - 4 * math.log(1 - confidence)) - z) / 2) ** 2


def rows_needed(changes: Changes, tolerance: float, confidence: float) -> int | None:
    """How many rows would show a change like this to be within the tolerance; None if no number would.

    A gain is taken for none: what looks better than the whole model is more often lucky than better.
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
    """How many confirming rows it takes, at the very least, to confirm a model that changes no answer at all."""
    return math.ceil(-math.log(1 - confidence) * worst / tolerance) if tolerance > 0 else None


def check_confidence(confidence: float) -> float:
    """A confidence of at least .5 and below 1, or the sentence that says so."""
    if not 0.5 <= confidence < 1:
        raise InputError(
            f"confidence is {confidence:g}; it must be at least 0.5 and below 1, such as 0.9, or 0 for the smallest "
            "candidate within the tolerance, without any bound."
        )
    return confidence
