"""Beam search over removals."""

from itertools import combinations

import numpy as np
import pytest

from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.rules.beam import WIDTH, Beam
from layerscope.cutting.rules.greedy import Greedy
from tests.helpers.data import MadeUpSearch, removed_blocks


def trap(plan):
    """Blocks 2, 3 and 4 of six cost nothing together, and each costs more than 1 does as long as one of them stays."""
    gone = set(plan.removed(6))
    together = 0.0 if gone >= {2, 3, 4} else 0.2 * len(gone & {2, 3, 4})
    return 1.0 - 0.1 * (1 in gone) - together - 0.5 * len(gone & {5, 6})


def test_it_goes_on_from_several_plans():
    search = MadeUpSearch(6, [1, 2, 3], worth=trap)
    assert removed_blocks(Greedy().plans(search), 6)[-1] == (1, 2, 3)  # 1 is gone first, and stays so
    assert removed_blocks(Beam().plans(search), 6) == [(1,), (1, 2), (2, 3, 4)]


@pytest.mark.parametrize("depth", [4, 5])
def test_where_every_plan_goes_on_it_finds_the_best_of_all(depth):
    def worth(plan):
        return np.random.default_rng([7, *plan.removed(depth)]).random()

    search = MadeUpSearch(depth, [1, 2], worth=worth, max_evaluations=1000)
    assert depth <= WIDTH
    for size, plan in zip((1, 2), Beam().plans(search), strict=True):
        every = [LayerPlan(keep) for keep in combinations(range(1, depth + 1), depth - size)]
        assert worth(plan) == max(map(worth, every))


@pytest.mark.parametrize("most", [0, 5, 6, 10, 11, 16, 20, 25, 31, 60, 1000])
def test_the_budget_makes_the_beam_narrower_and_is_kept(most):
    search = MadeUpSearch(6, [1, 2, 3], worth=trap, max_evaluations=most)
    greedy = Greedy().plans(search)
    asked = len(search.asked)
    found = Beam().plans(search)
    assert len(search.asked) - asked <= Beam().evaluations(search) <= most
    assert [len(plan.keep) for plan in found] == [len(plan.keep) for plan in greedy]
    assert {len(plan.keep) for plan in Beam().stand_ins(search)} == {len(plan.keep) for plan in found}


def test_a_beam_of_one_is_greedy_removal():
    search = MadeUpSearch(6, [1, 2, 3], worth=trap, max_evaluations=6 + 5 + 4)
    assert Beam().plans(search) == Greedy().plans(search)
    assert Beam().evaluations(search) == Greedy().evaluations(search)
    assert Beam().block_runs(search) == Greedy().block_runs(search)


def test_each_plan_is_evaluated_once_in_a_step():
    search = MadeUpSearch(6, [3], worth=trap)
    Beam().plans(search)
    assert len(search.asked) == len(set(search.asked))
