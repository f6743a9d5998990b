"""Multi-scale intrinsic distance: what it sees, and rows that are equally near."""

import math

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError, LayerscopeWarning
from layerscope.similarity.measures.intrinsic_distance import _heat, imd
from tests.similarity.pairs import data


def test_graphs_whose_eigenvalues_are_known():
    """Rows on a circle make a cycle, and pairs of rows apart from one another a matching."""
    n = 40
    angles = 2 * np.pi * np.arange(n) / n
    # A little off the even places, so that no two rows are equally near, and the two nearest are the neighbours.
    ring = np.stack([np.cos(angles + 1e-3 * np.sin(7 * angles)), np.sin(angles + 1e-3 * np.sin(7 * angles))], axis=1)
    pairs = np.stack([np.repeat(np.arange(n / 2) ** 2, 2) * 10.0, np.tile([0.0, 1.0], n // 2)], axis=1)
    times = np.logspace(-1, 1, 256)
    cycle = np.exp(-np.outer(times, 1 - np.cos(2 * np.pi * np.arange(n) / n))).mean(axis=1)
    matching = (1 + np.exp(-2 * times)) / 2
    measure = ls.measure("imd")
    assert measure(ring, ring @ [[0.0, 5.0], [-5.0, 0.0]] + 3, k=2) == pytest.approx(0, abs=1e-6)
    assert measure(pairs, pairs[::-1], k=1) == pytest.approx(0, abs=1e-6)
    apart = 1e6 * (np.exp(-2 * (times + 1 / times)) * np.abs(cycle - matching)).max()
    assert _heat(torch.from_numpy(ring), k=2).numpy() == pytest.approx(cycle)
    assert _heat(torch.from_numpy(pairs), k=1).numpy() == pytest.approx(matching)
    assert imd(torch.from_numpy(cycle), torch.from_numpy(matching)) == pytest.approx(apart)


def test_it_tells_groups_from_a_cloud_whatever_the_order_of_rows():
    generator = np.random.default_rng(0)
    clouds = generator.normal(size=(3, 150, 6))
    groups = clouds[1] * 0.05 + 3 * generator.normal(size=(30, 6))[np.arange(150) % 30]  # no larger than k + 1 each
    measure = ls.measure("imd")
    assert measure(clouds[0], groups) > 5 * measure(clouds[0], clouds[2])


def test_neighbours_that_are_drawn():
    x, y = data()
    repeated = np.repeat(x[:10], 12, axis=0)
    with pytest.warns(LayerscopeWarning, match="of the 5 nearest are drawn from more rows that are equally near"):
        assert math.isnan(ls.measure("imd")(repeated, y))
    with pytest.raises(InputError, match="k is 0; at least one neighbour is needed"):
        ls.measure("imd")(x, y, k=0)
