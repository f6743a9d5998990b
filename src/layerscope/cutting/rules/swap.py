"""Exchange of blocks after greedy removal: one that is kept for one that is gone, while the score gets better."""

from __future__ import annotations

from collections import deque
from math import ceil, comb

from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.rules.greedy import Greedy
from layerscope.cutting.search import Rule, Search


class Swap(Rule):
    """Greedy removal, then exchanges of one kept for one removed block while the score on the texts that choose rises.

    One removed block after another is taken back, and the block that then hurts least goes in its place. It ends where
    no single exchange is better, or where the evaluations are used up, which it counts apart from those of `greedy`.
    """

    name = "swap"
    looks = True
    begins_with = Greedy

    @classmethod
    def usual(cls, depth: int, max_span: int | None) -> bool:
        return False

    def plans(self, search: Search) -> list[LayerPlan]:
        chosen, left = [], search.max_evaluations
        for start in Greedy().plans(search):
            plan, left = self._exchanged(search, start, left)
            chosen.append(plan)
        return chosen

    def _exchanged(self, search: Search, plan: LayerPlan, left: int) -> tuple[LayerPlan, int]:
        """Return the plan after all exchanges that are better, and how many evaluations are left.

        A step counts all of its plans, also those that an earlier step has evaluated, so that what is proposed does not
        depend on which other rules have searched before.
        """
        gone = deque(plan.removed(search.depth))
        if len(gone) == 1:  # greedy removal has tried every block
            return plan, left
        title = f"exchanges at {len(plan.keep)} blocks"
        best, settled = search.worths([plan], title)[0], 0
        while settled < len(gone) and len(plan.keep) <= left:
            left -= len(plan.keep)
            rest = list(gone)[1:]
            nexts = [search.without([*rest, block]) for block in plan.keep]
            worths = search.worths(nexts, title)
            at = max(range(len(nexts)), key=worths.__getitem__)
            if worths[at] > best:
                # The block that goes in its place is the best one beside the rest: it is settled.
                gone[0], plan, best, settled = plan.keep[at], nexts[at], worths[at], 0
            gone.rotate(-1)
            settled += 1
        return plan, left

    def stand_ins(self, search: Search) -> list[LayerPlan]:
        return Greedy().stand_ins(search)

    def _sizes(self, search: Search) -> list[int]:
        """How many blocks are gone in the plans that it makes exchanges in."""
        sizes = [search.depth - len(plan.keep) for plan in self.stand_ins(search)]
        return [size for size in sizes if size > 1 and search.depth - size <= search.max_evaluations]

    def evaluations(self, search: Search) -> int:
        return min(search.max_evaluations, sum(comb(search.depth, size) - 1 for size in self._sizes(search)))

    def block_runs(self, search: Search) -> int:
        """All evaluations at the size where one takes most: each step is one of `greedy` with a block more."""
        most = 0.0
        for size in self._sizes(search):
            before = search.depth - size + 1
            step = search.depth + before + before * (before - 1) // 2
            most = max(most, step / (before - 1))
        return ceil(search.max_evaluations * most)
