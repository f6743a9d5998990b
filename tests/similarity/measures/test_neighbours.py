"""Neighbours: by cosine, never oneself, and undefined where everybody is near."""

import math

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError, LayerscopeWarning
from layerscope.registry import MEASURES
from layerscope.similarity.measures.neighbours import nearest

NAMES = sorted(name for name, measure in MEASURES.items() if measure.family == "neighbours")


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


@pytest.mark.parametrize("name", NAMES)
def test_neighbours_that_are_drawn_from_equally_near_rows_are_announced(name):
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(2, 20, 4))
    thrice = np.arange(60) % 20  # two copies of a row, then rows in threes: of 10 the last two are two of three
    with pytest.warns(LayerscopeWarning, match="20% of the 10 nearest drawn from more rows that are equally near"):
        assert 0 < ls.measure(name)(x[thrice], y[thrice]) < 1
    with pytest.warns(LayerscopeWarning, match=f"{name}, 3 pairs of layers, such as one with 20% of the 10 nearest"):
        ls.compare([x[thrice], y[thrice]], measure=name)


@pytest.mark.parametrize("name", NAMES)
def test_rows_on_a_line_have_no_nearest_ones(name):
    generator = np.random.default_rng(0)
    line, other = generator.normal(size=(60, 1)) * np.arange(1.0, 5), generator.normal(size=(60, 4))
    reason = "100% of the 10 nearest are drawn from more rows that are equally near"
    with pytest.warns(LayerscopeWarning, match=reason):
        assert math.isnan(ls.measure(name)(line, other))
    found = ls.compare([line], [other], measure=name)
    assert found.reasons[0, 0] == reason
