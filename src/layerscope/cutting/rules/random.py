"""Random blocks: the floor that every other rule has to beat."""

from __future__ import annotations

from math import comb

import numpy as np

from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.search import Rule, Search

PER_SIZE = 3  # so that there is a middle one


class Random(Rule):
    """Blocks drawn at random, three plans of each size: the floor that other rules have to beat."""

    name = "random"

    def plans(self, search: Search) -> list[LayerPlan]:
        plans: list[LayerPlan] = []
        for size in search.sizes:
            draw, drawn = np.random.default_rng([search.seed, search.depth, size]), dict[LayerPlan, None]()
            while len(drawn) < min(PER_SIZE, comb(search.depth, size)):
                drawn[search.without(1 + draw.permutation(search.depth)[:size])] = None
            plans += drawn
        return plans
