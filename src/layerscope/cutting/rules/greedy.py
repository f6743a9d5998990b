"""Greedy removal: the block that hurts least, again and again (Song et al. 2024, SLEB)."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.search import Rule, Search


class Greedy(Rule):
    """The block whose loss hurts the score least on the texts that choose, again and again.

    The score is the task's own: of a language model its perplexity. All plans of a step share their prefixes.
    """

    name = "greedy"
    source = "Song et al. 2024 (SLEB)"
    looks = True

    def plans(self, search: Search) -> list[LayerPlan]:
        current, chosen = LayerPlan(range(1, search.depth + 1)), []
        for left in self._steps(search):
            nexts = [LayerPlan([block for block in current.keep if block != gone]) for gone in current.keep]
            worths = search.worths(nexts, f"greedy search at {left - 1} blocks")
            current = nexts[max(range(left), key=worths.__getitem__)]
            if search.depth - left + 1 in search.sizes:
                chosen.append(current)
        return chosen

    def _steps(self, search: Search) -> Iterator[int]:
        """How many blocks there are before each step; a step evaluates as many plans."""
        allowed, most = search.max_evaluations, max(search.sizes, default=0)
        for left in range(search.depth, search.depth - most, -1):
            if left > allowed:
                return
            allowed -= left
            yield left

    def stand_ins(self, search: Search) -> list[LayerPlan]:
        steps = len(list(self._steps(search)))
        return [plan for plan in super().stand_ins(search) if len(plan.removed(search.depth)) <= steps]

    def evaluations(self, search: Search) -> int:
        return sum(self._steps(search))

    def block_runs(self, search: Search) -> int:
        """The whole model once for each step, and after each block that goes all that are above it."""
        return sum(search.depth + left + left * (left - 1) // 2 for left in self._steps(search))
