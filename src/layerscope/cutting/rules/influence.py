"""The blocks of least influence (Men et al. 2024, ShortGPT)."""

from __future__ import annotations

import numpy as np

from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.search import Rule, Search


class Influence(Rule):
    """The blocks of least influence, 1 - the mean cosine of a block's input and output over tokens, together."""

    name = "influence"
    source = "Men et al. 2024 (ShortGPT)"
    looks = True

    def plans(self, search: Search) -> list[LayerPlan]:
        influence = search.distances.influence
        blocks = 1 + np.argsort(influence, kind="stable")[: np.count_nonzero(~np.isnan(influence))]  # NaN are last
        return [search.without(blocks[:size].tolist()) for size in search.sizes if size <= len(blocks)]
