"""Linear measures: standardizing, which side is averaged over, and too few rows."""

import math
import warnings

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import LayerscopeWarning
from layerscope.similarity.measures.linear import singular_values
from tests.similarity import reference
from tests.similarity.pairs import LINEAR, data


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


@pytest.mark.parametrize(("rows", "rank", "width"), [(60, 5, 32), (8, 7, 32), (40, 40, 96), (100, 20, 20)])
def test_dimensions_that_are_not_there_add_nothing(rows, rank, width):
    """A root of rounding for each of them would: about 1e-8 of the largest singular value."""
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, rank, dtype=torch.float64, generator=generator)
    y = x @ torch.randn(rank, width, dtype=torch.float64, generator=generator)
    cross = x.T @ y @ torch.randn(width, width, dtype=torch.float64, generator=generator)
    for matrix in (cross, torch.cat([cross, cross[:1]]), y.T @ y):
        exact = torch.linalg.svdvals(matrix)
        values = singular_values(matrix).flip(0)
        assert float(values.sum()) == pytest.approx(float(exact.sum()), rel=1e-12)
        assert int((values > 0).sum()) == int(torch.linalg.matrix_rank(matrix))
    assert singular_values(torch.zeros(3, 0)).shape == (0,)


def test_a_layer_is_its_own_rotation_whatever_its_rank():
    few = torch.randn(5, 32, dtype=torch.float64)[torch.arange(60) % 5]
    assert ls.measure("procrustes")(few, few @ torch.linalg.qr(torch.randn(32, 32, dtype=torch.float64))[0]) == (
        pytest.approx(1.0, abs=1e-12)
    )


@pytest.mark.parametrize("name", ["cca", "cca_squared", "svcca", "pwcca"])
def test_repeated_rows_that_make_correlations_1_are_announced(name):
    """30 rows, however often they are repeated, are too few for two sides of 20 independent columns."""
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(2, 30, 20))[:, np.arange(300) % 30]
    with pytest.warns(LayerscopeWarning, match=r"1\d of \d+ correlations at 1, as repeated rows or columns in common"):
        ls.measure(name)(x, y, keep=0.999) if name in ("svcca", "pwcca") else ls.measure(name)(x, y)
    x, y = generator.normal(size=(2, 300, 20))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ls.measure(name)(x, y)
        ls.measure(name)(x, x @ generator.normal(size=(20, 20)))  # all of them are 1, and should be


def test_pwcca_is_one_value_where_correlations_are_repeated():
    """Directions of correlations that are 1 are not unique: rounding must not choose them, nor their weights."""
    generator = np.random.default_rng(0)
    x, y = (generator.normal(size=(60, 45)) * np.arange(1, 46) ** -0.5 for _ in range(2))
    order = generator.permutation(60)
    turned = y @ np.linalg.qr(generator.normal(size=(45, 45)))[0]
    with pytest.warns(LayerscopeWarning, match="some correlations are 1 for lack of rows"):
        expected = ls.measure("pwcca")(x, y)
    for other in ((x[order], y[order]), (x * (1 + 1e-12), y), (x, turned)):
        with pytest.warns(LayerscopeWarning, match="some correlations are 1 for lack of rows"):
            assert ls.measure("pwcca")(*other) == pytest.approx(expected, abs=1e-9)
