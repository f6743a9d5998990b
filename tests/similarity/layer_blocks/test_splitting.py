"""The strongest split into k blocks is the strongest of all, and strength is what it says."""

import itertools

import numpy as np
import pytest

from layerscope.similarity.layer_blocks import best_splits, strength_of


def matrix(n=11, seed=0):
    """A fall-off with noise, an undefined pair and no layer with itself."""
    generator = np.random.default_rng(seed)
    distance = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    errors = generator.normal(size=(n, n)) * 0.4
    values = np.exp(-distance / 5) + (errors + errors.T) / 2
    values[3, 7] = values[7, 3] = np.nan
    np.fill_diagonal(values, np.nan)
    return values


def plain_strength(values, cuts):
    """Mean within minus mean between, pair by pair."""
    block = [sum(i >= cut for cut in cuts) for i in range(len(values))]
    within, between = [], []
    for i, j in itertools.combinations(range(len(values)), 2):
        if not np.isnan(values[i, j]):
            (within if block[i] == block[j] else between).append(values[i, j])
    return np.mean(within) - np.mean(between)


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("seed", range(4))
def test_the_best_split_is_the_best_of_all(k, seed):
    values = matrix(seed=seed)
    n = len(values)
    every = [
        list(cuts)
        for cuts in itertools.combinations(range(2, n - 1), k - 1)
        if min(np.diff([0, *cuts, n])) >= 2  # two layers or more in each block
    ]
    assert best_splits(values, k)[k] == max(every, key=lambda cuts: plain_strength(values, cuts))


@pytest.mark.parametrize("cuts", [[4], [2, 9], [3, 5, 8]])
def test_strength_is_the_mean_within_minus_the_mean_between(cuts):
    values = np.stack([matrix(seed=seed) for seed in range(3)])
    np.testing.assert_allclose(strength_of(values, cuts), [plain_strength(each, cuts) for each in values])
    assert strength_of(values[0], cuts) == pytest.approx(plain_strength(values[0], cuts))
