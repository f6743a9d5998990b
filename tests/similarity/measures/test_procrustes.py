"""Distances of shapes: by hand, at their ends, across widths, and as the number of rows grows."""

import math

import numpy as np
import pytest

import layerscope as ls
from layerscope.errors import LayerscopeWarning
from tests.similarity.pairs import data
from tests.similarity.reference import permutation_procrustes


def test_the_angle_is_that_of_procrustes_and_never_obtuse():
    x, y = data()
    assert math.cos(ls.measure("procrustes_angular")(x, y)) == pytest.approx(ls.measure("procrustes")(x, y), abs=1e-7)
    assert ls.measure("procrustes_angular")(x, -x) == pytest.approx(0, abs=1e-6)
    apart = np.zeros((4, 1)), np.zeros((4, 1))
    apart[0][:2, 0], apart[1][2:, 0] = [1, -1], [1, -1]
    assert ls.measure("procrustes_angular")(*apart) == pytest.approx(math.pi / 2)


def test_sizes_count_where_they_are_said_to():
    x, _ = data()
    centred = x - x.mean(axis=0)
    assert ls.measure("procrustes_size_and_shape")(x, 3 * x) == pytest.approx(2 * np.linalg.norm(centred))
    assert ls.measure("permutation_procrustes")(x, 3 * x) == pytest.approx(2 * np.linalg.norm(x))


def test_columns_in_another_order_are_the_same_and_a_rotation_is_not():
    x, _ = data()
    order = np.random.default_rng(0).permutation(x.shape[1])
    assert ls.measure("permutation_procrustes")(x, x[:, order]) == pytest.approx(0, abs=1e-5)
    turned = x @ np.linalg.qr(np.random.default_rng(0).normal(size=(7, 7)))[0]
    assert ls.measure("permutation_procrustes")(x, turned) > 1
    assert ls.measure("aligned_cosine")(x, turned) == pytest.approx(1)


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e6])
@pytest.mark.parametrize("widths", [(5, 5), (3, 5), (5, 3)])
def test_a_large_offset_cancels_no_digits_of_a_permutation(offset, widths):
    generator = np.random.default_rng(0)
    x, y = (offset + generator.normal(size=(40, width)) for width in widths)
    expected = float(permutation_procrustes(x.astype(np.longdouble), y.astype(np.longdouble)))
    assert ls.measure("permutation_procrustes")(x, y) == pytest.approx(expected, rel=1e-12)
    x, y = x.astype(np.float32), y.astype(np.float32)  # as states are kept
    expected = float(permutation_procrustes(x.astype(np.longdouble), y.astype(np.longdouble)))
    found = ls.compare([x], [y], measure="permutation_procrustes")
    assert found.values[0, 0] == pytest.approx(expected, rel=1e-12), found.reasons


def test_a_row_of_zeros_has_no_direction():
    x, y = data()
    y[3] = 0
    with pytest.warns(LayerscopeWarning, match="a row is 0, so it has no direction"):
        assert math.isnan(ls.measure("aligned_cosine")(x, y))


@pytest.mark.parametrize("name", ["procrustes_size_and_shape", "permutation_procrustes", "rsm_norm_difference"])
def test_intervals_of_what_grows_with_the_rows(name):
    """Without a group of texts the value is smaller for lack of rows alone: that is no bias, and makes no interval."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(415, 4))
    y = x @ np.linalg.qr(generator.normal(size=(4, 4)))[0] + generator.normal(size=(415, 4))
    found = ls.compare([x], [y], measure=name, ci=0.95)
    value, low, high = (float(part[0, 0]) for part in (found.values, found.low, found.high))
    assert found.left_out[:, 0, 0] == pytest.approx(value, rel=0.03)
    assert found.left_out[:, 0, 0].mean() == pytest.approx(value, rel=0.002)
    assert low < value < high
    assert high - low < 0.3 * value
