"""Every span of blocks."""

from searches import Made, gone

from layerscope.cutting.rules.spans import Spans


def test_every_span_of_the_sizes_that_are_asked_for():
    assert gone(Spans().plans(Made(3)), 3) == [(1,), (1, 2), (2,), (2, 3), (3,)]
    assert gone(Spans().plans(Made(4, [3])), 4) == [(1, 2, 3), (2, 3, 4)]
    assert gone(Spans().plans(Made(3, max_span=1)), 3) == [(1,), (2,), (3,)]
