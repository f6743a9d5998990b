"""The deepest blocks but the last (Gromov et al. 2024, section 4.4)."""

from __future__ import annotations

from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.search import Rule, Search


class Deepest(Rule):
    """The deepest blocks but the last one, which stays."""

    name = "deepest"
    source = "Gromov et al. 2024"

    def plans(self, search: Search) -> list[LayerPlan]:
        depth = search.depth
        return [LayerPlan.skipped(depth, depth - length, depth - 1) for length in search.lengths]
