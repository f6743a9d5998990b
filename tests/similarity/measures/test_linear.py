"""Linear measures: standardizing, which side is averaged over, and too few rows."""

import math

import numpy as np
import pytest
import reference
from pairs import LINEAR, data

import layerscope as ls
from layerscope.errors import LayerscopeWarning


@pytest.mark.parametrize("name", LINEAR)
def test_standardizing_is_measuring_standardized_columns(name):
    x, y = data()
    expected = getattr(reference, name)(x / x.std(axis=0), y / y.std(axis=0))
    assert ls.measure(name)(x, y, standardize=True) == pytest.approx(expected, rel=1e-5)


def test_asymmetric_measures_average_the_first_arguments_neurons():
    generator = np.random.default_rng(0)
    y = generator.normal(size=(200, 6))
    x = y[:, :2]
    for name in ("neuron", "mixed"):
        assert ls.measure(name)(x, y) == pytest.approx(1.0, abs=1e-9)
        assert ls.measure(name)(y, x) < 0.6


@pytest.mark.parametrize("name", ["cca", "cca_squared", "svcca", "pwcca", "linear_regression", "mixed"])
def test_too_few_rows_are_said_to_be_too_few(name):
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(10, 20)), generator.normal(size=(10, 20))
    with pytest.warns(LayerscopeWarning, match="whatever the data"):
        assert math.isnan(ls.measure(name)(x, y))
    if "cca" in name:
        assert ls.measure(name)(x, y, allow_trivial=True) == pytest.approx(1.0, abs=1e-6)
