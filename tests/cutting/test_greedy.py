"""The greedy search for blocks that can go."""

import sys
from types import SimpleNamespace

import numpy as np

import layerscope as ls
from layerscope.cutting.greedy import Greedy


def test_greedy_search_finds_what_spans_cannot(monkeypatch):
    """Blocks 2 and 4 of five do nothing: only a set with a gap loses both at no cost, and the budget is kept."""
    asked = []

    def answers(exam, plans, title):
        asked.extend(plans)
        return np.asarray([[1.0 - 0.1 * len(set(plan.removed(5)) - {2, 4})] for plan in plans])

    monkeypatch.setattr(sys.modules["layerscope.cutting.greedy"], "sweep", answers)
    exam = SimpleNamespace(model=SimpleNamespace(depth=5), metric="accuracy", value=lambda part, rows: float(part[0]))
    whole = ls.LayerPlan(range(1, 6))
    path = [plan for plan, _ in Greedy(exam, None, 60).run({whole: np.ones(1)})]
    assert path[1] == ls.LayerPlan([1, 3, 5])
    assert len(asked) == len(set(asked)) == 5 + 4 + 3 + 2
    asked.clear()
    assert len(Greedy(exam, None, 10).run({whole: np.ones(1)})) == 2
    assert len(asked) == 9
