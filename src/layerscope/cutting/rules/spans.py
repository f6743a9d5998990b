"""Every span of blocks up to a length (Phang et al. 2021)."""

from __future__ import annotations

from layerscope.cutting.curves import contiguous
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.search import SHALLOW, Rule, Search


class Spans(Rule):
    """Every span of blocks, up to a length (`max_span`)."""

    name = "spans"
    source = "Phang et al. 2021"

    @classmethod
    def usual(cls, depth: int, max_span: int | None) -> bool:
        return depth <= SHALLOW or max_span is not None  # spans of limited length are few in deep models, too

    def plans(self, search: Search) -> list[LayerPlan]:
        spans = contiguous(search.depth, search.max_span)
        return [LayerPlan.skipped(search.depth, i, j) for i, j in spans if j - i + 1 in search.sizes]
