"""What a rule may know when it proposes plans: the model's depth, how many blocks are to go, the texts that choose."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from layerscope.cutting.distances import Distances, LayerDistances
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.sweep import sweep
from layerscope.data import metrics
from layerscope.errors import InputError
from layerscope.evaluation.sitting import Sitting

SHALLOW = 12  # blocks; up to here every size is tried
_SIZES = 8  # of deeper models, from one block to half of them
EVALUATIONS = 256  # of the greedy search, at most


@dataclass(frozen=True)
class Search:
    """A search for blocks that can go. Scores and distances are of the rows that choose, never of others."""

    sitting: Sitting
    rows: np.ndarray
    sizes: tuple[int, ...]  # how many blocks the plans leave out, in order
    max_span: int | None = None
    max_evaluations: int = EVALUATIONS
    seed: int = 0

    @property
    def depth(self) -> int:
        """The model's blocks."""
        return self.sitting.model.depth

    @property
    def lengths(self) -> tuple[int, ...]:
        """The sizes that a skipped span may have."""
        return tuple(size for size in self.sizes if self.max_span is None or size <= self.max_span)

    def without(self, blocks: Iterable[int]) -> LayerPlan:
        """The plan that leaves these blocks out."""
        gone = set(blocks)
        return LayerPlan([block for block in range(1, self.depth + 1) if block not in gone])

    @cached_property
    def distances(self) -> LayerDistances:
        """How far the layers lie from one another, over the tokens of the rows that choose."""
        return Distances(self._part).measured()

    def worths(self, plans: Sequence[LayerPlan], title: str) -> list[float]:
        """The score of each plan on the rows that choose, turned so that more is better."""
        sitting = self.sitting
        part = sweep(self._part, plans, title, note=False)
        answers = np.zeros((len(sitting.examples), part.shape[-1]), part.dtype)
        worths = []
        for own in part:
            answers[self.rows] = own
            worths.append(metrics.upward(sitting.metric, sitting.value(answers, self.rows)))
        return worths

    @cached_property
    def _part(self) -> Sitting:
        """The exam with the rows that choose alone, for its answers; scores are made by the whole."""
        part = copy.copy(self.sitting)
        part.examples = self.sitting.examples.take(self.rows)
        return part


def usual_sizes(depth: int) -> tuple[int, ...]:
    """How many blocks may go: any number, or, of a deep model, some numbers up to half of them."""
    if depth <= SHALLOW:
        return tuple(range(1, depth))
    return tuple(sorted({round(size) for size in np.geomspace(1, depth // 2, _SIZES)}))


def checked_sizes(remove: int | Sequence[int], depth: int) -> tuple[int, ...]:
    """Numbers of blocks that can go, or the sentence that says which can."""
    sizes = tuple(remove) if isinstance(remove, Iterable) else (remove,)
    if not sizes or any(isinstance(size, bool) or not hasattr(size, "__index__") for size in sizes):
        raise InputError(f"remove is {remove!r}; how many blocks go is a whole number, or several: [1, 2, 4].")
    for size in sizes:
        if not 1 <= size < depth:
            raise InputError(f"{size} blocks were to go; this model has {depth}, so 1..{depth - 1} of them can.")
    return tuple(sorted({int(size) for size in sizes}))
