"""The span of least angular distance for each length (Gromov et al. 2024, section 3.2)."""

from __future__ import annotations

import numpy as np

from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.search import Rule, Search


class Angular(Rule):
    """For each length the span whose input and output have the least mean angular distance.

    The mean is over all tokens of the texts; in the paper it is over the last token of each text.
    """

    name = "angular"
    source = "Gromov et al. 2024"
    looks = True

    def plans(self, search: Search) -> list[LayerPlan]:
        plans, distance = [], search.distances.angular
        for length in search.lengths:
            ends = np.diagonal(distance, offset=length)
            if not np.isnan(ends).all():
                first = 1 + int(np.nanargmin(ends))
                plans.append(LayerPlan.skipped(search.depth, first, first + length - 1))
        return plans
