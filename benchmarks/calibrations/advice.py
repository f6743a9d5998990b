"""How often what `ls.advise` takes is really within the tolerance, where the truth is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas
from scipy.stats import norm

from layerscope.cutting.selection_test import Parts, decide, of_answers, smallest_within

TITLE = "Advice: within the tolerance after the choice"
TEXT = """
A model of 12 blocks with a true accuracy of .90 has twelve candidates of each size from 11 blocks down to 4, whose true
accuracies are known. On a row, models make mistakes together: a row has a difficulty of its own, shared by all, and an
effect of every block, shared by all candidates without that block. The tolerance is .01. In each simulation the rows
are dealt out as `ls.advise` does, and each rule chooses.

- *outside*: how often the model that was chosen truly loses more than the tolerance. At `confidence=0.9` it must be at
  most .15, and should be at most .10. "no bound" is `confidence=0`, the smallest candidate within the tolerance on the
  half that chooses; "a bound for each" asks for a one-sided bound of 90 % of every candidate by itself.
- *removed*: the mean number of blocks that were left out, counted as 0 where the model is outside the tolerance; beside
  it the most that could be left out, if the truth were known.

The shapes: *cliff*, four blocks cost little and a fifth much; *slope*, each block costs a little more; *just outside*,
every candidate loses 1.1 times the tolerance; *one good*, of each size down to seven blocks one candidate loses nothing
and the others twice the tolerance; *harmless*, six blocks can go at no cost.
"""
ROUNDS = 400

DEPTH, RIVALS, WHOLE, TOLERANCE = 12, 12, 0.90, 0.01
GONE = tuple(range(1, 9))  # how many blocks are left out


def _cliff(gone: int, draw: np.random.Generator) -> np.ndarray:
    return (0.003 if gone <= 4 else 0.03) + draw.exponential(0.01, RIVALS)


def _slope(gone: int, draw: np.random.Generator) -> np.ndarray:
    return 0.003 * gone + draw.exponential(0.004, RIVALS)


def _just_outside(gone: int, draw: np.random.Generator) -> np.ndarray:
    return np.full(RIVALS, 1.1 * TOLERANCE)


def _one_good(gone: int, draw: np.random.Generator) -> np.ndarray:
    losses = np.full(RIVALS, 0.02)
    losses[draw.integers(RIVALS)] = 0.0 if gone <= 5 else 0.02
    return losses


def _harmless(gone: int, draw: np.random.Generator) -> np.ndarray:
    return np.where(draw.random(RIVALS) < 0.5, 0.0 if gone <= 6 else 0.04, 0.03)


SHAPES: dict[str, Callable[[int, np.random.Generator], np.ndarray]] = {
    "cliff": _cliff,
    "slope": _slope,
    "just outside": _just_outside,
    "one good": _one_good,
    "harmless": _harmless,
}


@dataclass(frozen=True)
class World:
    """Answers (candidates, rows), right or wrong, of the whole model (first) and of candidates with known losses."""

    right: np.ndarray
    gone: np.ndarray  # how many blocks each has lost
    losses: np.ndarray  # what each truly loses

    @property
    def most(self) -> int:
        """How many blocks can truly go."""
        return int(self.gone[self.losses <= TOLERANCE].max())


def world(shape: str, rows: int, seed: int) -> World:
    """One simulated model, its candidates and their answers."""
    draw = np.random.default_rng(seed)
    gone = np.concatenate([[0], np.repeat(GONE, RIVALS)])
    losses = np.concatenate([[0.0], *(SHAPES[shape](count, draw) for count in GONE)])
    difficulty, effects = draw.standard_normal(rows), draw.standard_normal((rows, DEPTH))
    right = np.empty((len(gone), rows), dtype=bool)
    for k, (count, loss) in enumerate(zip(gone, losses, strict=True)):
        angle = 0.12 * np.sqrt(count)  # the more blocks go, the less a candidate answers as the whole model does
        own = effects[:, draw.permutation(DEPTH)[:count]].sum(axis=1) / np.sqrt(max(count, 1))
        right[k] = norm.ppf(WHOLE - loss) + np.cos(angle) * difficulty + np.sin(angle) * own > 0
    return World(right, gone, losses)


def chosen(made: World, confidence: float, seed: int) -> int:
    """The candidate that `ls.advise` would take: 0 for the whole model."""
    parts = Parts.dealt(np.arange(made.right.shape[1]), confidence, seed=seed)
    smaller, sizes = np.arange(1, len(made.gone)), -made.gone[1:].astype(float)
    scores = made.right[:, parts.picking].mean(axis=1)
    if confidence == 0:
        choice = smallest_within(scores[1:].tolist(), sizes.tolist(), scores[0], TOLERANCE)
    else:
        answers = made.right[:, parts.confirming].astype(int)
        ones = np.ones(answers.shape[1], dtype=int)
        choice = decide(
            scores[1:].tolist(),
            sizes.tolist(),
            lambda k: of_answers("accuracy", ones, answers[0], answers[k + 1]),
            tolerance=TOLERANCE,
            confidence=confidence,
        ).choice
    return 0 if choice is None else int(smaller[choice])


def bounded_each(made: World, confidence: float, seed: int) -> int:
    """The smallest candidate whose own bound, on all rows that choose, is within the tolerance."""
    rows = Parts.dealt(np.arange(made.right.shape[1]), 0, seed=seed).picking
    gains = made.right[1:, rows].astype(float) - made.right[0, rows]
    low = gains.mean(axis=1) - norm.ppf(confidence) * gains.std(axis=1) / np.sqrt(len(rows))
    passed = np.flatnonzero(low >= -TOLERANCE)
    return int(1 + passed[np.argmax(made.gone[1:][passed])]) if len(passed) else 0


RULES: dict[str, Callable[[World, int], int]] = {
    "no bound": lambda made, seed: chosen(made, 0, seed),
    "a bound for each": lambda made, seed: bounded_each(made, 0.9, seed),
    "confidence 0.9": lambda made, seed: chosen(made, 0.9, seed),
}


def simulated(shape: str, rows: int, rounds: int, seed: int) -> Iterator[dict[str, float]]:
    """For each rule how often it is outside the tolerance, and how many blocks it removes within it."""
    results: dict[str, list[tuple[bool, int]]] = {rule: [] for rule in RULES}
    allowed = []
    for k in range(rounds):
        made = world(shape, rows, seed + k)
        allowed.append(made.most)
        for rule, act in RULES.items():
            choice = act(made, k)
            outside = bool(made.losses[choice] > TOLERANCE)
            results[rule].append((outside, 0 if outside else int(made.gone[choice])))
    for rule, kept in results.items():
        outside, removed = np.mean(kept, axis=0)
        yield {"rule": rule, "outside": outside, "removed": removed, "could be removed": np.mean(allowed)}


def table(rounds: int, seed: int) -> pandas.DataFrame:
    """One row per shape, number of rows and rule."""
    made = [
        {"shape": shape, "rows": rows, **result}
        for shape in SHAPES
        for rows in (872, 4000, 16000)
        for result in simulated(shape, rows, rounds, seed)
    ]
    return pandas.DataFrame(made).round(3)
