"""Columns matched by correlation: signs, doubles and dead columns."""

import numpy as np
import pytest

import layerscope as ls


def test_a_twin_may_be_used_once_or_several_times():
    x = np.random.default_rng(0).normal(size=(200, 2))
    x = np.linalg.qr(x - x.mean(axis=0))[0]  # columns without any correlation
    twice = x[:, [0, 0]] + [5.0, 1.0]
    assert ls.measure("hard_correlation_match")(twice, x) == pytest.approx(0.5)  # one of the two has no twin
    assert ls.measure("soft_correlation_match")(twice, x) == pytest.approx((1 + 0.5) / 2)


def test_the_sign_of_a_column_counts():
    x = np.random.default_rng(1).normal(size=(100, 3))
    flipped = x * [1, 1, -1]
    assert ls.measure("neuron")(x, flipped) == pytest.approx(1)
    assert ls.measure("hard_correlation_match")(x, flipped) < 0.75
    assert ls.measure("soft_correlation_match")(x, flipped) < 0.8


@pytest.mark.parametrize("name", ["hard_correlation_match", "soft_correlation_match"])
def test_columns_in_another_order_with_other_scales_are_matched(name):
    generator = np.random.default_rng(2)
    x = generator.normal(size=(80, 6))
    dead = np.full((80, 1), 2.0)
    other = np.hstack([x[:, generator.permutation(6)] * generator.uniform(0.1, 9, 6) + 3, dead])
    assert ls.measure(name)(x, other) == pytest.approx(1)
