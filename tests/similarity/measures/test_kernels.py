"""Kernels and distances: equal rows are at distance 0, and what they cannot tell is undefined."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

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
