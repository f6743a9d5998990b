"""Beam search over removals: several plans of each size go on to the next."""

from __future__ import annotations

from collections.abc import Iterator
from math import comb

from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.search import Rule, Search

WIDTH = 8  # plans of a size that go on, at most


class Beam(Rule):
    """Greedy removal that goes on from the best eight plans of each size, and not from the best one alone.

    Where the evaluations do not suffice for the largest size, fewer plans go on; with a single one it is `greedy`.
    """

    name = "beam"
    looks = True

    @classmethod
    def usual(cls, depth: int, max_span: int | None) -> bool:
        return False

    def plans(self, search: Search) -> list[LayerPlan]:
        beam, chosen, width = [LayerPlan(range(1, search.depth + 1))], [], self._width(search)
        for left, _ in self._steps(search, width):
            removed = [(*plan.removed(search.depth), gone) for plan in beam for gone in plan.keep]
            nexts = list(dict.fromkeys(search.without(blocks) for blocks in removed))
            worths = search.worths(nexts, f"beam search at {left - 1} blocks")
            order = sorted(range(len(nexts)), key=worths.__getitem__, reverse=True)
            beam = [nexts[k] for k in order[:width]]
            if search.depth - left + 1 in search.sizes:
                chosen.append(beam[0])
        return chosen

    def _steps(self, search: Search, width: int) -> Iterator[tuple[int, int]]:
        """How many blocks there are before each step, and how many plans it goes on from, while evaluations last."""
        allowed, most = search.max_evaluations, max(search.sizes, default=0)
        for gone in range(most):
            left, beam = search.depth - gone, min(width, comb(search.depth, gone))
            if beam * left > allowed:
                return
            allowed -= beam * left
            yield left, beam

    def _width(self, search: Search) -> int:
        """How many plans can go on from each size so that the largest size is reached; 1 if it is not even so."""
        most = max(search.sizes, default=0)
        widths = range(WIDTH, 1, -1)
        return next((width for width in widths if len(list(self._steps(search, width))) == most), 1)

    def stand_ins(self, search: Search) -> list[LayerPlan]:
        steps = len(list(self._steps(search, self._width(search))))
        return [plan for plan in super().stand_ins(search) if len(plan.removed(search.depth)) <= steps]

    def evaluations(self, search: Search) -> int:
        return sum(left * beam for left, beam in self._steps(search, self._width(search)))

    def block_runs(self, search: Search) -> int:
        """The whole model once for each step, and after each block that goes all that are above it, for every plan."""
        steps = self._steps(search, self._width(search))
        return sum(search.depth + beam * (left + left * (left - 1) // 2) for left, beam in steps)
