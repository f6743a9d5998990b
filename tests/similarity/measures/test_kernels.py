"""Kernels and distances: equal rows are at distance 0, and what they cannot tell is undefined."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist, pdist
from scipy.stats import spearmanr

import layerscope as ls
from layerscope.errors import InputError, LayerscopeWarning
from layerscope.similarity.measures.kernels import distances, double_centred, upper


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_distances_are_euclidean_and_exactly_0_between_equal_rows(offset):
    x = np.random.default_rng(0).normal(size=(20, 5)) + offset
    x[7] = x[3]
    found = distances(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, cdist(x, x), atol=1e-5)
    assert found[7, 3] == 0
    assert (np.diag(found) == 0).all()


def test_one_entry_a_pair_of_rows():
    assert upper(torch.arange(9.0).reshape(3, 3)).tolist() == [1.0, 2.0, 5.0]
    centred = double_centred(torch.rand(4, 4, dtype=torch.float64))
    assert centred.sum(dim=0).abs().max() < 1e-12
    assert centred.sum(dim=1).abs().max() < 1e-12


def test_where_half_of_the_rows_are_equal_there_is_no_median_distance():
    x = np.zeros((20, 3))
    x[:3] = np.eye(3)
    with pytest.warns(LayerscopeWarning, match="the median distance is 0"):
        assert math.isnan(ls.measure("cka_rbf")(x, x))


def test_wrong_options_are_sentences():
    x = np.random.default_rng(0).normal(size=(20, 3))
    with pytest.raises(InputError, match="bandwidth is 0; it must be above 0"):
        ls.measure("cka_rbf")(x, x, bandwidth=0)
    with pytest.raises(InputError, match="'manhattan'"):
        ls.measure("rsa")(x, x, distance="manhattan")
    with pytest.raises(InputError, match="'kendall'"):
        ls.measure("rsa")(x, x, correlation="kendall")


def test_distance_correlation_sees_what_is_not_linear():
    x = np.random.default_rng(0).normal(size=(400, 1))
    assert ls.measure("cka")(x, x**2) < 0.1
    assert ls.measure("distance_correlation")(x, x**2) > 0.25


@pytest.mark.parametrize("distance", ["correlation", "cosine", "euclidean"])
def test_distances_that_differ_by_rounding_alone_are_ties(distance):
    """Of rows of small whole numbers many distances are equal; as ranks of rounding they would make another value."""
    generator = np.random.default_rng(0)
    x, y = (generator.integers(1, 4, size=(30, 3)) + np.arange(3) for _ in range(2))
    expected = spearmanr(*(pdist(each, distance).round(9) for each in (x, y)))[0]
    for offset in (0.0, 1e4) if distance == "euclidean" else (0.0,):
        assert ls.measure("rsa")(x + offset, y, distance=distance) == pytest.approx(expected, abs=1e-9)


def test_rows_on_a_line_have_two_correlation_distances():
    generator = np.random.default_rng(0)
    side = generator.normal(size=(40, 1))
    line, other = side * np.arange(1.0, 6), generator.normal(size=(40, 5))
    opposite = (np.sign(side) != np.sign(side.T))[np.triu_indices(40, 1)]
    expected = spearmanr(opposite, pdist(other, "correlation"))[0]
    assert ls.measure("rsa")(line, other) == pytest.approx(expected, abs=1e-12)
    with pytest.warns(LayerscopeWarning, match="all distances between rows are the same"):
        assert math.isnan(ls.measure("rsa")(np.abs(line), other))


def test_distances_that_are_all_rounding_are_said_to_be_that():
    x = np.random.default_rng(0).normal(size=(20, 3))
    with pytest.warns(LayerscopeWarning, match="no two rows differ by a millionth of the largest number"):
        assert math.isnan(ls.measure("cka_rbf")(x + 1e9 * np.eye(1, 3), x))
