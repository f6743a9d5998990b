"""How sure a similarity is: a delete-a-group jackknife, and what shuffled rows would give.

Not the bootstrap: a row drawn twice is similar to itself on both sides, which fakes similarity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from layerscope.errors import InputError
from layerscope.extract.representations import Representations
from layerscope.measures.similarity import Similarity
from layerscope.measures.work import Tile

GROUPS = 20
SHUFFLES = 5

Found = dict[str, Similarity]


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

    def of(self, texts: np.ndarray) -> np.ndarray:
        """The group of each text."""
        return self._group[np.searchsorted(self._texts, texts)]


def check_level(level: float) -> None:
    if not 0 < level < 1:
        raise InputError(f"ci is {level}; it must be between 0 and 1, such as 0.95.")


def whole(parts: list[Tile]) -> Tile:
    """The moments of all groups together."""
    total = parts[0].moments.without(parts[0].moments)
    for part in parts:
        total.merge(part.moments)
    return replace(parts[0], moments=total)


def left_out(parts: list[Tile], total: Tile) -> Iterable[Tile]:
    """The moments without each group in turn."""
    return (replace(total, moments=total.moments.without(part.moments)) for part in parts)


def add_intervals(found: Found, without: list[Found], level: float) -> None:
    """`low` and `high` for every value, from the values with one group of texts left out at a time."""
    from scipy.stats import t

    count = len(without)
    width = float(t.ppf((1 + level) / 2, count - 1))
    for name, similarity in found.items():
        values = np.stack([part[name].values for part in without])
        spread = np.sqrt((count - 1) / count * ((values - values.mean(axis=0)) ** 2).sum(axis=0))
        similarity.low = np.maximum(similarity.values - width * spread, similarity.bounds[0])
        similarity.high = np.minimum(similarity.values + width * spread, similarity.bounds[1])


def add_baseline(
    found: Found,
    rows: list[Representations],
    columns: list[Representations],
    evaluate: Callable[[list[Representations], list[Representations]], Found],
    seed: int,
) -> None:
    """`baseline` for every value: its mean when the rows of the column side are shuffled."""
    generator = np.random.default_rng(seed)
    shuffled: list[Found] = []
    for _ in range(SHUFFLES):
        order = generator.permutation(len(rows[0]))
        shuffled.append(evaluate(rows, [_reordered(reps, order) for reps in columns]))
    for name, similarity in found.items():
        similarity.baseline = np.mean([part[name].values for part in shuffled], axis=0)


def _reordered(reps: Representations, order: np.ndarray) -> Representations:
    """Another order of the rows under the old identities: row i is no longer the same thing."""
    moved: Any = {layer: reps[layer][order] for layer in reps.layers}
    return Representations(moved, reps.rows, names=reps.names, info=reps.info)
