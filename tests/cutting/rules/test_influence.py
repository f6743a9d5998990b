"""The blocks of least influence."""

import numpy as np

from layerscope.cutting.rules.influence import Influence
from tests.helpers.data import MadeUpSearch, removed_blocks


def cosines(influence):
    values = np.eye(len(influence) + 1)
    for k, turned in enumerate(influence):
        values[k, k + 1] = values[k + 1, k] = 1 - turned
    return values


def test_the_least_influential_go_together():
    search = MadeUpSearch(5, [1, 2, 3], cosine=cosines([0.9, 0.1, 0.5, 0.05, 0.3]))
    assert removed_blocks(Influence().plans(search), 5) == [(4,), (2, 4), (2, 4, 5)]


def test_a_block_without_a_value_stays():
    search = MadeUpSearch(5, [2, 4], cosine=cosines([np.nan, 0.1, 0.5, np.nan, 0.3]))
    assert removed_blocks(Influence().plans(search), 5) == [(2, 5)]
