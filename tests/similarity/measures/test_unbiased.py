"""Unbiased CKA: near zero where nothing is shared, whole or in batches."""

import numpy as np
import pytest
from pairs import data

import layerscope as ls


def test_a_last_batch_of_one_row_changes_nothing():
    x, y = data(n=101)
    measure = ls.measure("cka_minibatch")
    assert measure(x, y, batch=50) == pytest.approx(measure(x[:100], y[:100], batch=50), abs=1e-6)


def test_shuffled_batches_tell_rows_that_are_sorted_by_class():
    generator = np.random.default_rng(0)
    classes = np.repeat(np.eye(4) * 8, 50, axis=0)
    x, y = (classes @ generator.normal(size=(4, 6)) + generator.normal(size=(200, 6)) for _ in range(2))
    measure, exact = ls.measure("cka_minibatch"), ls.measure("cka_debiased")(x, y)
    assert abs(measure(x, y, batch=50)) < 0.2
    assert measure(x, y, batch=50, shuffle=0) == pytest.approx(exact, abs=0.1)


def test_debiased_cka_of_independent_data_is_near_zero_where_cka_is_not():
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(200, 300)), generator.normal(size=(200, 300))
    assert ls.measure("cka")(x, y) > 0.5
    assert abs(ls.measure("cka_debiased")(x, y)) < 0.02
