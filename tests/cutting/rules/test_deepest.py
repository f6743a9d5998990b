"""The deepest blocks but the last."""

from searches import Made, gone

from layerscope.cutting.rules.deepest import Deepest


def test_the_last_block_stays():
    assert gone(Deepest().plans(Made(4)), 4) == [(3,), (2, 3), (1, 2, 3)]
    assert gone(Deepest().plans(Made(4, max_span=1)), 4) == [(3,)]
