"""The deepest blocks but the last."""

from layerscope.cutting.rules.deepest import Deepest
from tests.helpers.data import MadeUpSearch, removed_blocks


def test_the_last_block_stays():
    assert removed_blocks(Deepest().plans(MadeUpSearch(4)), 4) == [(3,), (2, 3), (1, 2, 3)]
    assert removed_blocks(Deepest().plans(MadeUpSearch(4, max_span=1)), 4) == [(3,)]
