"""Statistics of one layer: which row is which does not matter, and layers that differ may have the same."""

import math

import numpy as np
import pytest

import layerscope as ls
from layerscope.errors import InputError, LayerscopeWarning
from layerscope.registry import MEASURES
from tests.similarity.pairs import data

NAMES = sorted(name for name, measure in MEASURES.items() if measure.family == "statistic")


@pytest.mark.parametrize("name", NAMES)
def test_rows_in_another_order_change_nothing_so_it_is_no_metric(name):
    x, y = data()
    order = np.random.default_rng(0).permutation(len(y))
    assert ls.measure(name)(x, y[order]) == pytest.approx(ls.measure(name)(x, y))
    assert ls.measure(name)(x, x[order]) == pytest.approx(0, abs=1e-9)
    assert not MEASURES[name].metric


def test_by_hand():
    x = np.asarray([[3.0, 4.0], [3.0, 4.0], [6.0, 8.0]])
    y = np.asarray([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert ls.measure("magnitude_difference")(x, y) == pytest.approx(20 / 3 - math.sqrt(8) / 3)
    assert ls.measure("concentricity_difference")(x, y) == pytest.approx(1 - (1 + math.sqrt(2)) / 3)
    one = math.log((5 + 4 * math.exp(-2 * 25)) / 9)
    two = math.log((3 + 4 * math.exp(-2) + 2 * math.exp(-4)) / 9)
    assert ls.measure("uniformity_difference")(x, y) == pytest.approx(abs(one - two))


def test_rows_far_apart_do_not_underflow():
    x, y = data()
    assert ls.measure("uniformity_difference")(1e6 * x, 1e9 * y) == pytest.approx(0, abs=1e-9)


def test_what_has_no_direction_and_options_that_are_off():
    x, y = data()
    y[3] = 0
    with pytest.warns(LayerscopeWarning, match="is 0, so it has no direction"):
        assert math.isnan(ls.measure("concentricity_difference")(x, y))
    with pytest.raises(InputError, match="t is 0; it must be above 0"):
        ls.measure("uniformity_difference")(x, y, t=0)
