"""What to compute: the cheaper side, and tiles that hold every pair once and keep to the budget."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import layerscope as ls
from layerscope.similarity.execution_plan import tiles
from layerscope.similarity.moments import all_pairs, product_bytes


@given(widths=st.lists(st.integers(1, 9), min_size=1, max_size=8), share=st.floats(0.01, 1.2))
def test_every_pair_once_and_within_the_budget(widths, share):
    pairs = all_pairs(len(widths))
    budget = share * product_bytes(widths, pairs)
    found = tiles(pairs, lambda some: product_bytes(widths, some), budget)
    assert sorted(pair for tile in found for pair in tile) == pairs
    largest = max(8 * a * b for a in widths for b in widths)
    assert max(product_bytes(widths, tile) for tile in found) <= max(budget, largest)
    if share >= 1:
        assert len(found) == 1


def test_the_cheaper_side_is_taken():
    from layerscope.similarity.execution_plan import Groups, grams_are_cheaper
    from layerscope.similarity.layer_sources import Stored

    room = 1 << 30

    few, many = (ls.Representations.from_arrays([np.zeros((n, 20))] * 3) for n in (10, 400))
    assert grams_are_cheaper(Stored(Groups(few, None), None), room)
    assert not grams_are_cheaper(Stored(Groups(many, None), None), room)
    assert not grams_are_cheaper(Stored(Groups(few, None), None), room, 21)  # without each of 20 groups in turn
    assert not grams_are_cheaper(Stored(Groups(few, None), None), 100.0)
