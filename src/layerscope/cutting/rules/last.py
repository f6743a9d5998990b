"""The last blocks: truncation (Phang et al. 2021)."""

from __future__ import annotations

from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.search import Rule, Search


class Last(Rule):
    """The last blocks: the model is truncated, and its head reads an earlier layer."""

    name = "last"
    source = "Phang et al. 2021"

    def plans(self, search: Search) -> list[LayerPlan]:
        return [LayerPlan.truncated(search.depth, search.depth - size) for size in search.sizes]
