"""How sure a similarity is: a delete-a-group jackknife, and what shuffled rows would give.

Not the bootstrap: a row drawn twice is similar to itself on both sides, which fakes similarity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from layerscope.errors import InputError
from layerscope.extract.representations import Representations
from layerscope.measures.similarity import Similarity

GROUPS = 20
SHUFFLES = 5

Evaluate = Callable[[list[Representations]], dict[str, Similarity]]


def groups_of(reps: Representations, seed: int, count: int = GROUPS) -> np.ndarray:
    """(n,) the group of each row; the rows of one text (its words, its choices) are in one group."""
    texts, place = np.unique(reps.rows.row, return_inverse=True)
    if len(texts) < 2 * count:
        raise InputError(
            f"An interval needs at least {2 * count} texts, to delete a group of them; there are {len(texts)}."
        )
    of_text = np.random.default_rng(seed).permutation(np.arange(len(texts)) % count)
    return of_text[place]


def add_intervals(
    found: dict[str, Similarity], sources: list[Representations], evaluate: Evaluate, level: float, seed: int
) -> None:
    """`low` and `high` for every value, from the values with one group of texts left out at a time."""
    from scipy.stats import t

    if not 0 < level < 1:
        raise InputError(f"ci is {level}; it must be between 0 and 1, such as 0.95.")
    groups = groups_of(sources[0], seed)
    without = [evaluate([reps.select(rows=groups != g) for reps in sources]) for g in range(GROUPS)]
    width = float(t.ppf((1 + level) / 2, GROUPS - 1))
    for name, similarity in found.items():
        left_out = np.stack([part[name].values for part in without])
        spread = np.sqrt((GROUPS - 1) / GROUPS * ((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0))
        similarity.low = np.maximum(similarity.values - width * spread, similarity.bounds[0])
        similarity.high = np.minimum(similarity.values + width * spread, similarity.bounds[1])


def add_baseline(
    found: dict[str, Similarity],
    rows: list[Representations],
    columns: list[Representations],
    evaluate: Callable[[list[Representations], list[Representations]], dict[str, Similarity]],
    seed: int,
) -> None:
    """`baseline` for every value: its mean when the rows of the column side are shuffled."""
    generator = np.random.default_rng(seed)
    shuffled: list[dict[str, Similarity]] = []
    for _ in range(SHUFFLES):
        order = generator.permutation(len(rows[0]))
        shuffled.append(evaluate(rows, [_reordered(reps, order) for reps in columns]))
    for name, similarity in found.items():
        similarity.baseline = np.mean([part[name].values for part in shuffled], axis=0)


def _reordered(reps: Representations, order: np.ndarray) -> Representations:
    """Another order of the rows under the old identities: row i is no longer the same thing."""
    moved: Any = {layer: reps[layer][order] for layer in reps.layers}
    return Representations(moved, reps.rows, names=reps.names, info=reps.info)
