"""Greedy removal."""

from itertools import pairwise

from layerscope.cutting.rules.greedy import Greedy
from tests.helpers.data import MadeUpSearch, removed_blocks


def worth(plan):
    """Blocks 2 and 4 of five do nothing, each other one costs a tenth."""
    return 1.0 - 0.1 * len(set(plan.removed(5)) - {2, 4})


def test_it_finds_what_spans_cannot():
    search = MadeUpSearch(5, worth=worth)
    found = removed_blocks(Greedy().plans(search), 5)
    assert found[:2] == [(2,), (2, 4)]
    assert [len(blocks) for blocks in found] == [1, 2, 3, 4]
    assert all(set(few) < set(more) for few, more in pairwise(found))
    assert len(search.asked) == len(set(search.asked)) == Greedy().evaluations(search) == 5 + 4 + 3 + 2


def test_the_budget_is_kept():
    search = MadeUpSearch(5, worth=worth, max_evaluations=10)
    assert len(Greedy().plans(search)) == 2
    assert len(search.asked) == Greedy().evaluations(search) == 9
    assert len(Greedy().stand_ins(search)) == 2
    none = MadeUpSearch(5, worth=worth, max_evaluations=0)
    assert (Greedy().plans(none), none.asked) == ([], [])


def test_sizes_in_between_are_gone_through_and_not_proposed():
    search = MadeUpSearch(5, [2], worth=worth)
    assert removed_blocks(Greedy().plans(search), 5) == [(2, 4)]
    assert len(search.asked) == 9
