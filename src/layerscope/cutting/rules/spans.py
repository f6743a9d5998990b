"""Every span of blocks up to a length (Phang et al. 2021)."""

from __future__ import annotations

from layerscope.cutting.curves import contiguous
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.search import SHALLOW, Rule, Search


class Spans(Rule):
    """Every span of blocks, up to a length (`max_span`)."""

    name = "spans"
    source = "Phang et al. 2021"
    deepest = SHALLOW

    def plans(self, search: Search) -> list[LayerPlan]:
        spans = contiguous(search.depth, search.max_span)
        return [LayerPlan.skipped(search.depth, i, j) for i, j in spans if j - i + 1 in search.sizes]
