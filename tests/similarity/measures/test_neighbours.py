"""Neighbours: by cosine, never oneself, and undefined where everybody is near."""

import math

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError, LayerscopeWarning
from layerscope.similarity.measures.neighbours import nearest
from layerscope.similarity.registry import registry

NAMES = sorted(name for name, measure in registry().items() if measure.family == "neighbours")


def test_the_nearest_are_those_of_the_largest_cosine():
    x = np.random.default_rng(0).normal(size=(30, 4))
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    cosine = unit @ unit.T
    np.fill_diagonal(cosine, -2)
    expected = np.argsort(-cosine, axis=1)[:, :5]
    assert np.array_equal(nearest(torch.from_numpy(x), k=5).numpy(), expected)


@pytest.mark.parametrize("name", NAMES)
def test_where_everybody_is_near_it_is_undefined(name):
    x = np.random.default_rng(0).normal(size=(6, 4))
    with pytest.warns(LayerscopeWarning, match="with 6 rows every other row is among the 5 nearest"):
        assert math.isnan(ls.measure(name)(x, x, k=5))
    assert ls.measure(name)(x, x, k=4) == pytest.approx(1.0)
    with pytest.raises(InputError, match="k is 0; at least one neighbour is needed"):
        ls.measure(name)(x, x, k=0)


@pytest.mark.parametrize("name", NAMES)
def test_a_row_of_zeros_has_no_direction(name):
    x = np.random.default_rng(0).normal(size=(30, 4))
    x[3] = 0
    with pytest.warns(LayerscopeWarning, match="a row is 0, so it has no direction"):
        assert math.isnan(ls.measure(name)(x, x))


def test_shared_neighbours_counted_by_hand():
    """Four directions in two pairs; in the other side one row has changed its pair."""
    x = np.asarray([[1.0, 0], [1, 0.1], [0, 1], [0.1, 1]])
    y = x[[0, 2, 1, 3]]
    assert ls.measure("mutual_knn")(x, x, k=1) == 1.0
    assert ls.measure("mutual_knn")(x, y, k=1) == 0.0
    assert ls.measure("jaccard_knn")(x, x, k=2) == 1.0
