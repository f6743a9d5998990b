"""Attention heads against attention heads."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import layerscope as ls
from layerscope.registry import MEASURES
from layerscope.similarity.attention import head_pairs
from tests.similarity import attention_reference as reference
from tests.similarity.attention_layers import BY_HEAD, layer


@pytest.mark.parametrize("name", BY_HEAD)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), sharp=st.floats(0.1, 30.0))
def test_a_layer_with_its_heads_in_another_order_is_itself(name, seed, sharp):
    a = layer(5, seed, sharp=sharp)
    order = np.random.default_rng(seed).permutation(5)
    values = ls.measure(name).heads(a, [sentence[order] for sentence in a])
    assert [int(row.argmax()) for row in values] == [int(np.flatnonzero(order == i)[0]) for i in range(5)]
    np.testing.assert_allclose(values.max(axis=1), 1.0, atol=1e-12)
    assert ls.measure(name)(a, a) == pytest.approx(1.0, abs=1e-12)
    low = ls.measure(name).low
    assert (values >= low - 1e-12).all()
    assert (values <= 1 + 1e-12).all()


def test_a_head_has_distance_0_from_itself_even_if_weights_are_tiny():
    a = [sentence.astype(np.float32) for sentence in layer(4, sharp=20.0)]
    assert (np.diag(ls.measure("attention_norm").heads(a, a)) == 1.0).all()
    near = [sentence + 1e-4 * other for sentence, other in zip(a, layer(4, 5), strict=True)]
    expected = reference.heads("attention_norm", a, near)
    np.testing.assert_allclose(ls.measure("attention_norm").heads(a, near), expected, atol=1e-9)


@pytest.mark.parametrize("name", BY_HEAD)
@pytest.mark.parametrize("count", [1, 3, 4, 7])
def test_one_side_against_itself_is_two_equal_sides(name, count):
    """Of a side's own pairs fewer are computed."""
    side = torch.from_numpy(np.stack(layer(count, 3, [5, 5, 5]), axis=1))
    measure, mask = MEASURES[name].head, head_pairs.Mask.from_sides([side])
    one, two = measure.prepare(side, mask), measure.prepare(side.clone(), mask)
    torch.testing.assert_close(measure.update(one, one), measure.update(one, two), rtol=0, atol=1e-12)
