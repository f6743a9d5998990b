"""Are the steps at the cuts of a split out of line with gradual change?

A step is the distance between neighbouring layers. Where change is gradual, the logs of the steps lie at random around
a trend (a parabola, or a line where there are few); at the boundary of two blocks is a step too large for that. The
statistic of a split is the least of its cuts' externally studentised residuals: every cut has to stand out, and trend
and spread are estimated without any of them, so that several boundaries do not hide one another. The split was chosen
among many, so the statistic is compared with the largest one over all splits into as many blocks. For normal logs that
has a distribution that depends on neither the trend nor the spread, and is drawn. The first and the last step make no
block of two layers, so that a first layer unlike all others, as embeddings are, is not a boundary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, pairwise
from math import comb, nan

import numpy as np

_LEAST_STEP = 1e-6  # of similarity: below that is rounding
_LEAST_SPREAD = 0.01  # of a log: steps within 1 % of the trend lie on it
_MOST_SPLITS = 10_000  # with one number of cuts, to compare with
_SPARE = 2  # degrees of freedom that a spread needs
_AT_ONCE = 4_000_000  # numbers held in memory
_SIGNIFICANT = 0.05
_BENT = 10  # from so many steps on the trend is a parabola


@dataclass(frozen=True)
class Verdict:
    """How likely it is by chance that a split stands out so much, and the number of blocks; or why that is unknown."""

    p_value: float
    blocks: int
    reason: str = ""


def log_steps(values: np.ndarray, layers: Sequence[int], top: float = 1.0) -> np.ndarray:
    """(n - 1,) log(top - s) of neighbouring layers; NaN where that is unknown.

    A step over more layers than usual, because one between them is left out, is not like the others.
    """
    gaps = np.abs(np.diff(layers))
    steps = np.log(np.maximum(top - np.diagonal(values, 1), _LEAST_STEP))
    return np.where((gaps == np.bincount(gaps).argmax()) & np.isfinite(steps), steps, np.nan)


def against_gradual_change(
    steps: np.ndarray, splits: Mapping[int, Sequence[int]], rounds: int = 1999, seed: int = 0
) -> Verdict:
    """The number of blocks, of those in `splits` (number: cuts), whose cuts stand out most, and the p-value.

    The least p-value over the numbers of blocks is compared with the least one in each round, so that the choice of
    the number is paid for. Where none is below 0.05, nothing speaks for more blocks than the fewest.
    """
    known = ~np.isnan(steps)
    reasons = {k: _reason(known, splits[k]) for k in splits}
    usable = [k for k in splits if not reasons[k]]
    if not usable:
        return Verdict(nan, min(splits), reasons[min(splits)])
    largest = _by_chance(tuple(known), tuple(k - 1 for k in usable), rounds, seed)  # (numbers, rounds)
    standing = np.array([_standing_out(steps, splits[k], known) for k in usable])
    alone = (1 + (largest >= standing[:, None] - 1e-9).sum(axis=1)) / (rounds + 1)
    # In each round, the share of rounds that are as large or larger: the p-value that it would get.
    by_round = (1 + rounds - largest.argsort(axis=1).argsort(axis=1)) / (rounds + 1)
    best = int(np.lexsort((-standing, alone))[0])
    p_value = (1 + int((by_round.min(axis=0) <= alone[best]).sum())) / (rounds + 1)
    return Verdict(p_value, usable[best] if alone[best] < _SIGNIFICANT else min(usable))


def _reason(known: np.ndarray, cuts: Sequence[int]) -> str:
    """Why a split cannot be judged; empty where it can."""
    count, needed = len(cuts), _terms(known) + len(cuts) + _SPARE
    if known.sum() < needed:
        return f"{count + 1} blocks need {needed} known steps between neighbouring layers, and there are {known.sum()}"
    if not known[np.asarray(cuts) - 1].all():
        return "a step at a boundary is unknown: a layer beside it has no value, or layers between were left out"
    if comb(len(known) - count - 1, count) > _MOST_SPLITS:
        return f"there are too many splits of {len(known) + 1} layers into {count + 1} blocks to compare with"
    return ""


def _terms(known: np.ndarray) -> int:
    """Of the trend: a constant, a slope and, where there are many steps, a bend."""
    return 3 if known.sum() >= _BENT else 2


@lru_cache(maxsize=64)
def _by_chance(known: tuple[bool, ...], counts: tuple[int, ...], rounds: int, seed: int) -> np.ndarray:
    """(counts, rounds) What comes of normal logs: the largest statistic over all splits, by number of cuts."""
    kept = np.asarray(known)
    normal = np.random.default_rng(seed).normal(size=(rounds, int(kept.sum())))
    return np.stack([_largest(normal, kept, count) for count in counts])


def _largest(normal: np.ndarray, known: np.ndarray, count: int) -> np.ndarray:
    """(rounds,) The largest statistic over all splits with so many cuts."""
    place = np.cumsum(known) - 1  # of each step among the known ones
    inner = [int(step) for step in np.flatnonzero(known) if 0 < step < len(known) - 1]
    chosen = [s for s in combinations(inner, count) if all(b - a > 1 for a, b in pairwise(s))]
    sets = place[np.asarray(chosen, dtype=int).reshape(-1, count)]
    residual_maker = _residual_maker(known)
    portion = max(1, _AT_ONCE // (len(normal) * count))
    best = np.full(len(normal), -np.inf)
    for start in range(0, len(sets), portion):
        part = studentised(normal, sets[start : start + portion], residual_maker)
        best = np.maximum(best, part.min(axis=2).max(axis=1))
    return best


def _standing_out(steps: np.ndarray, cuts: Sequence[int], known: np.ndarray) -> float:
    """The least studentised residual at the cuts of one split."""
    sets = (np.cumsum(known) - 1)[np.asarray(cuts) - 1][None]
    return float(studentised(steps[known][None], sets, _residual_maker(known), _LEAST_SPREAD).min())


def _residual_maker(known: np.ndarray) -> np.ndarray:
    """I - H of the trend through the known steps."""
    places = np.flatnonzero(known)
    trend = np.vander((places - places.mean()) / len(known), _terms(known))
    return np.eye(len(places)) - trend @ np.linalg.pinv(trend)


def studentised(logs: np.ndarray, sets: np.ndarray, residual_maker: np.ndarray, least: float = 0.0) -> np.ndarray:
    """(r, s, j) How far each step of each set (s, j) is above the trend of all steps outside the set, in units of
    the standard error of that difference; of r lists of logs (r, m).

    With M = I - H and residuals e = M y, the differences are u = M_SS^-1 e_S, their variances those of M_SS^-1, and the
    squares that remain around the trend are |e|^2 - e_S' u (Cook and Weisberg 1982).
    """
    residuals = logs @ residual_maker
    inverse = np.linalg.inv(residual_maker[sets[:, :, None], sets[:, None, :]])  # (s, j, j)
    at_set = residuals[:, sets]  # (r, s, j)
    above = np.einsum("sij,rsj->rsi", inverse, at_set)
    rest = (residuals**2).sum(axis=1)[:, None] - (above * at_set).sum(axis=2)
    free = np.trace(residual_maker) - sets.shape[1]
    spread = np.sqrt(np.maximum(rest, 0.0) / free)
    spread = np.maximum(spread, max(least, 1e-12))
    return above / (spread[:, :, None] * np.sqrt(np.einsum("sii->si", inverse)))
