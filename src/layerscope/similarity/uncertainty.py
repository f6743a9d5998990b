"""How sure a similarity is: a delete-a-group jackknife, and what shuffled rows would give.

Not the bootstrap: a row drawn twice is similar to itself on both sides, which fakes similarity.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from layerscope.errors import InputError, log
from layerscope.extraction.representations import Representations
from layerscope.similarity.arriving import Arrival, Stored, Tile
from layerscope.similarity.planning import Groups, Plan
from layerscope.similarity.similarity import Similarity
from layerscope.similarity.values import Cells, from_moments, matrices_of

GROUPS = 20
SHUFFLES = 5

Matrices = dict[str, Similarity]


@dataclass
class Grouping:
    """Texts dealt out at random to groups of like size; all rows of a text (its words, its choices) go together."""

    rows: np.ndarray  # the text of every row
    seed: int
    count: int = GROUPS
    _texts: np.ndarray = field(init=False)
    _group: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self._texts = np.unique(self.rows)
        if len(self._texts) < 2 * self.count:
            raise InputError(
                f"An interval needs at least {2 * self.count} texts, to delete a group of them; there are "
                f"{len(self._texts)}."
            )
        self._group = np.random.default_rng(self.seed).permutation(np.arange(len(self._texts)) % self.count)

    def groups_of(self, texts: np.ndarray) -> np.ndarray:
        """The group of each text."""
        return self._group[np.searchsorted(self._texts, texts)]


def with_intervals(plan: Plan, arrival: Arrival, ci: float, seed: int) -> Matrices:
    """Values and intervals, from the moments of each group of texts where those fit, else from rows."""
    groups = Grouping(arrival.texts, seed)
    if plan.fits_groups(arrival, arrival.stored, GROUPS):
        log.info("Intervals from the moments of %d groups of texts.", groups.count)
        parts = arrival.by_group(groups, **plan.moments)
        total = _whole(parts)
        matrices = _of_tile(plan, arrival, total)
        without = [_of_tile(plan, arrival, tile) for tile in _left_out(parts, total)]
    else:
        rows = arrival.kept()
        log.info("Intervals from the rows, %d times without a group of texts.", groups.count)
        matrices, group = matrices_of(plan, rows), groups.groups_of(rows.texts)
        without = [
            _again(plan, rows.groups.with_sources([r.select(rows=group != g) for r in rows.reps]))
            for g in range(groups.count)
        ]
    add_intervals(matrices, without, ci)
    return matrices


def _of_tile(plan: Plan, arrival: Arrival, tile: Tile) -> Matrices:
    """The measures from given moments."""
    cells = [Cells(m, arrival, plan.options) for m in plan.measures]
    from_moments(cells, [tile])
    return {cell.measure.name: cell.similarity() for cell in cells}


def _again(plan: Plan, groups: Groups) -> Matrices:
    """The same measures of other rows."""
    return matrices_of(plan, Stored(groups, None))


def _whole(parts: list[Tile]) -> Tile:
    """The moments of all groups together."""
    total = parts[0].moments.without(parts[0].moments)
    for part in parts:
        total.merge(part.moments)
    return replace(parts[0], moments=total)


def _left_out(parts: list[Tile], total: Tile) -> Iterable[Tile]:
    """The moments without each group in turn."""
    return (replace(total, moments=total.moments.without(part.moments)) for part in parts)


def add_intervals(matrices: Matrices, without: list[Matrices], ci: float) -> None:
    """`low` and `high` for every value, from the values with one group of texts left out at a time."""
    from scipy.stats import t

    count = len(without)
    width = float(t.ppf((1 + ci) / 2, count - 1))
    for name, similarity in matrices.items():
        similarity.left_out = values = np.stack([part[name].values for part in without])
        spread = np.sqrt((count - 1) / count * ((values - values.mean(axis=0)) ** 2).sum(axis=0))
        similarity.low = np.maximum(similarity.values - width * spread, similarity.bounds[0])
        similarity.high = np.minimum(similarity.values + width * spread, similarity.bounds[1])


def add_baseline(matrices: Matrices, plan: Plan, rows: Stored, seed: int) -> None:
    """`baseline` for every value: its mean when the rows of the column side are shuffled."""
    generator = np.random.default_rng(seed)
    left, right = ([rows.reps[s] for s in side] for side in (rows.groups.row_sources, rows.groups.column_sources))
    shuffled: list[Matrices] = []
    for _ in range(SHUFFLES):
        order = generator.permutation(len(left[0]))
        shuffled.append(_again(plan, Groups(left, [_reordered(reps, order) for reps in right])))
    for name, similarity in matrices.items():
        similarity.baseline = np.mean([part[name].values for part in shuffled], axis=0)


def _reordered(reps: Representations, order: np.ndarray) -> Representations:
    """Another order of the rows under the old identities: row i is no longer the same thing."""
    moved: Any = {layer: reps[layer][order] for layer in reps.layers}
    return Representations(moved, reps.rows, names=reps.names, info=reps.info)
