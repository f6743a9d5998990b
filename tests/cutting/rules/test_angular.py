"""The span of least angular distance for each length."""

import numpy as np

from layerscope.cutting.rules.angular import Angular
from tests.helpers.data import MadeUpSearch, removed_blocks


def distances(depth, nearest):
    """Distances of layers 0..depth that grow with the length of a span, except for the spans of `nearest`."""
    layers = np.arange(depth + 1)
    values = 0.1 * np.abs(layers[:, None] - layers[None]) + 0.3
    for first, last in nearest:
        values[first - 1, last] = values[last, first - 1] = 0.05
    return values


def test_it_leaves_out_the_span_between_the_nearest_layers():
    search = MadeUpSearch(6, [1, 2, 4], angular=distances(6, [(5, 5), (2, 3), (3, 6)]))
    assert removed_blocks(Angular().plans(search), 6) == [(5,), (2, 3), (3, 4, 5, 6)]


def test_it_keeps_to_the_longest_span_and_leaves_out_what_is_undefined():
    values = distances(6, [(2, 3)])
    values[1, 3] = values[3, 1] = np.nan
    found = removed_blocks(Angular().plans(MadeUpSearch(6, [2, 4], max_span=2, angular=values)), 6)
    assert len(found) == 1
    assert found[0] != (2, 3)
    assert Angular().plans(MadeUpSearch(6, [2], angular=np.full((7, 7), np.nan))) == []
