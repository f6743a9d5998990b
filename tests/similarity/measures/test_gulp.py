"""GULP: what it is the largest difference of, and its ends."""

import math

import numpy as np
import pytest

import layerscope as ls
from layerscope.errors import InputError, LayerscopeWarning
from tests.similarity.pairs import data


def test_no_target_is_predicted_more_differently():
    """Over targets of any kind, the mean squared difference of two ridge fits is at most the distance."""
    x, y = data()
    found, generator = ls.measure("gulp")(x, y, ridge=0.3), np.random.default_rng(0)
    sides = [(m - m.mean(axis=0)) / np.linalg.norm(m - m.mean(axis=0)) for m in (x, y)]
    for _ in range(20):
        target = generator.normal(size=len(x))
        target /= np.linalg.norm(target)
        fits = [m @ np.linalg.solve(m.T @ m + 0.3 * np.eye(m.shape[1]), m.T @ target) for m in sides]
        assert np.linalg.norm(fits[0] - fits[1]) <= found


def test_without_a_ridge_it_is_that_of_canonical_correlations():
    x, y = data()
    squared = ls.measure("cca_squared")(x, y)
    assert ls.measure("gulp")(x, y) ** 2 == pytest.approx(7 + 5 - 2 * 5 * squared)
    mixed = x @ np.random.default_rng(0).normal(size=(7, 7))
    assert ls.measure("gulp")(x, mixed) == pytest.approx(0, abs=1e-5)
    assert ls.measure("gulp")(x, mixed, ridge=0.1) > 0.01


def test_too_few_rows_and_a_ridge_below_zero():
    x, y = np.random.default_rng(0).normal(size=(2, 6, 8))
    with pytest.warns(LayerscopeWarning, match="predicts every target, whatever the data; use more rows, or a ridge"):
        assert math.isnan(ls.measure("gulp")(x, y))
    assert ls.measure("gulp")(x, y, ridge=0.1) > 0
    with pytest.raises(InputError, match="ridge is -1; it must be 0 or more"):
        ls.measure("gulp")(x, y, ridge=-1)
