"""Every span of blocks."""

from layerscope.cutting.rules.spans import Spans
from tests.helpers.data import MadeUpSearch, removed_blocks


def test_every_span_of_the_sizes_that_are_asked_for():
    assert removed_blocks(Spans().plans(MadeUpSearch(3)), 3) == [(1,), (1, 2), (2,), (2, 3), (3,)]
    assert removed_blocks(Spans().plans(MadeUpSearch(4, [3])), 4) == [(1, 2, 3), (2, 3, 4)]
    assert removed_blocks(Spans().plans(MadeUpSearch(3, max_span=1)), 3) == [(1,), (2,), (3,)]
