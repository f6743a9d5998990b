"""Planted blocks are found; smooth matrices have none."""

import itertools

import numpy as np
import pytest

import layerscope as ls
from layerscope.errors import InputError
from layerscope.similarity.segmentation import best_splits
from layerscope.similarity.similarity import Axis, Similarity


def similarity(values):
    layers = tuple(range(len(values)))
    axis = Axis(("m",) * len(values), layers, tuple(map(str, layers)))
    return Similarity(np.asarray(values), axis, axis, "cka", {}, 100)


def smooth(n=13, seed=0, noise=0.02):
    generator = np.random.default_rng(seed)
    distance = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    errors = generator.normal(size=(n, n)) * noise
    return np.exp(-distance / 5) + (errors + errors.T) / 2


def planted(edges, n=13, seed=0, jump=0.3):
    which = np.searchsorted(edges, np.arange(n), side="right")
    return smooth(n, seed) - jump * (which[:, None] != which[None, :])


def brute(values, k):
    """Every split into k blocks of two or more."""
    n = len(values)
    best = (-np.inf, None)
    off = ~np.eye(n, dtype=bool) & ~np.isnan(values)
    for cuts in itertools.combinations(range(2, n - 1), k - 1):
        edges = [0, *cuts, n]
        if min(np.diff(edges)) < 2:
            continue
        which = np.searchsorted(cuts, np.arange(n), side="right")
        same = which[:, None] == which[None, :]
        if not (same & off).any() or not (~same & off).any():
            continue
        best = max(best, (values[same & off].mean() - values[~same & off].mean(), list(cuts)))
    return best


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("seed", range(4))
def test_the_best_split_is_the_best_of_all(k, seed):
    values = smooth(11, seed, noise=0.4)
    values[3, 7] = values[7, 3] = np.nan
    np.fill_diagonal(values, np.nan)
    cuts, strength = best_splits(values[None], k)[k]
    expected = brute(values, k)
    assert strength[0] == pytest.approx(expected[0])
    assert cuts == expected[1]


@pytest.mark.parametrize("seed", range(5))
def test_two_planted_blocks_are_found_at_their_boundary(seed):
    found = ls.blocks(similarity(planted([8], seed=seed)), rounds=199)
    assert found.k == 2
    assert found.boundaries == ["8"]
    assert found.p_value < 0.01
    assert found.strength > 0.3


def test_three_planted_blocks_are_found():
    found = ls.blocks(similarity(planted([4, 9])), rounds=199)
    assert found.boundaries == ["4", "9"]
    assert found.p_value < 0.01
    assert ls.blocks(similarity(planted([4, 9])), k=2, rounds=199).k == 2


def test_smooth_matrices_have_no_blocks():
    p_values = [ls.blocks(similarity(smooth(seed=seed)), rounds=99).p_value for seed in range(40)]
    assert np.mean(np.array(p_values) < 0.05) <= 0.15
    assert np.mean(p_values) > 0.3
    assert ls.blocks(similarity(smooth(noise=0.0)), rounds=99).p_value == 1.0


def test_undefined_layers_and_cells_are_left_out():
    values = planted([8])
    values[0] = values[:, 0] = np.nan
    values[5, 9] = values[9, 5] = np.nan
    found = ls.blocks(similarity(values), rounds=199)
    assert found.boundaries == ["8"]
    assert found.p_value < 0.02


def test_mistakes_are_sentences(tmp_path):
    with pytest.raises(InputError, match=r"2\.\.6 blocks; k = 9"):
        ls.blocks(similarity(smooth()), k=9)
    with pytest.raises(InputError, match="too few"):
        ls.blocks(similarity(smooth(3)))
    other = similarity(smooth())
    other.column_axis = Axis(("n",) * 12, tuple(range(12)), tuple(f"n{k}" for k in range(12)))
    other.values = other.values[:, :12]
    with pytest.raises(InputError, match="compare a model with itself"):
        ls.blocks(other)


def test_boundaries_are_drawn(tmp_path):
    found = ls.blocks(similarity(planted([8])), rounds=49)
    ax = found.plot(tmp_path / "blocks.png")
    assert (tmp_path / "blocks.png").stat().st_size > 1000
    assert [line.get_ydata()[0] for line in ax.lines if len(set(line.get_ydata())) == 1] == [7.5]
