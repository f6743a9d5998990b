"""The last blocks."""

from layerscope.cutting.rules.last import Last
from tests.helpers.data import MadeUpSearch, removed_blocks


def test_the_top_goes():
    plans = Last().plans(MadeUpSearch(4, [1, 3], max_span=1))
    assert removed_blocks(plans, 4) == [(4,), (2, 3, 4)]
    assert [plan.head for plan in plans] == [3, 1]
