"""Made-up searches for rules: a depth, distances, and what every plan is worth."""

from types import SimpleNamespace

import numpy as np

from layerscope.cutting.distances import LayerDistances
from layerscope.cutting.search import Search, usual_sizes


class Made(Search):
    """A search without a model: `worth(plan)` says what a plan is worth, and `asked` keeps what was evaluated."""

    def __init__(self, depth, sizes=None, *, worth=None, cosine=None, angular=None, **options):
        sitting = SimpleNamespace(model=SimpleNamespace(depth=depth))
        super().__init__(sitting, np.arange(8), usual_sizes(depth) if sizes is None else tuple(sizes), **options)
        made = {"worth": worth, "asked": [], "distances": LayerDistances(cosine, angular, 1)}
        for name, value in made.items():
            object.__setattr__(self, name, value)

    def worths(self, plans, title):
        self.asked.extend(plans)
        return [self.worth(plan) for plan in plans]


def gone(plans, depth):
    """The blocks that each plan leaves out."""
    return [plan.removed(depth) for plan in plans]
