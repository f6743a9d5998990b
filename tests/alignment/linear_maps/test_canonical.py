"""Canonical directions: the map is the true one where there is one, and correlations are those of CCA."""

import numpy as np
import pytest
import torch
from sklearn.cross_decomposition import CCA

import layerscope as ls
from layerscope.alignment.linear_maps import Factors, canonical_map, held_out_pwcca
from tests.helpers.data import noisy_pair


def pair(**options):
    return [torch.from_numpy(side) for side in noisy_pair(**options)]


def test_an_exactly_linear_map_is_found_both_ways():
    x, y = pair(noise=0.0)
    there, back, correlations = canonical_map(Factors(x), Factors(y))
    a, b = (side - side.mean(dim=0) for side in (x, y))
    torch.testing.assert_close(a @ there, b)
    torch.testing.assert_close(b @ back, a)
    torch.testing.assert_close(correlations, torch.ones(6, dtype=torch.float64))


def test_correlations_are_those_of_an_independent_cca():
    x, y = pair(e=4, noise=8.0)
    _, _, correlations = canonical_map(Factors(x), Factors(y))
    assert len(correlations) == 4
    other = CCA(4, max_iter=5000, tol=1e-12).fit_transform(x.numpy(), y.numpy())
    expected = [np.corrcoef(other[0][:, k], other[1][:, k])[0, 1] for k in range(4)]
    np.testing.assert_allclose(correlations.numpy(), sorted(expected, reverse=True), atol=1e-3)


@pytest.mark.parametrize("keep", [0.5, 0.9, 1.0])
def test_the_fewest_directions_that_reach_the_share_are_kept(keep):
    x, _ = pair()
    side = Factors(x, keep)
    shares = np.linalg.svd((x - x.mean(dim=0)).numpy(), compute_uv=False) ** 2
    shares = np.cumsum(shares) / shares.sum()
    assert side.rank == int(np.argmax(shares >= keep - 1e-12)) + 1
    assert side.u.shape == (300, side.rank)
    assert side.vt.shape == (side.rank, 6)


def test_a_ridge_shrinks_the_correlations():
    x, y = pair(noise=8.0)
    plain, ridged = (canonical_map(Factors(x), Factors(y), ridge)[2] for ridge in (0.0, 1.0))
    assert (ridged < plain).all()


def test_a_constant_side_maps_to_nothing():
    x, y = pair()
    there, back, correlations = canonical_map(Factors(torch.ones_like(x)), Factors(y))
    assert there.abs().max() == 0
    assert back.abs().max() == 0
    assert correlations.tolist() == [0.0]


@pytest.mark.parametrize("keep", [0.99, 1.0])
def test_pwcca_on_the_rows_that_were_learned_from_is_the_measure(keep):
    x, y = (torch.from_numpy(side) for side in noisy_pair(n=300))
    expected = ls.measure("pwcca")(x, y, keep=keep)
    assert held_out_pwcca((x, y), (x, y), keep) == pytest.approx(expected, abs=1e-9)


def test_pwcca_of_noise_is_nothing_on_rows_that_were_not_learned_from():
    generator = np.random.default_rng(0)
    x, y, u, v = (torch.from_numpy(generator.normal(size=(200, 30))) for _ in range(4))
    assert held_out_pwcca((x, y), (x, y)) > 0.3  # within the sample noise correlates
    assert abs(held_out_pwcca((x, y), (u, v))) < 4 / (200 * 30) ** 0.5  # a mean of 30 correlations of 200 rows


def test_held_out_correlations_along_single_directions():
    """With one column on each side it is Pearson's correlation of the other rows, with the sign that was learned."""
    generator = np.random.default_rng(1)
    x, u = generator.normal(size=(50, 1)), generator.normal(size=(40, 1))
    y, v = -x + generator.normal(size=(50, 1)), -u + generator.normal(size=(40, 1))
    sides = [tuple(map(torch.from_numpy, pair)) for pair in ((x, y), (u, v))]
    assert held_out_pwcca(*sides) == pytest.approx(-np.corrcoef(u[:, 0], v[:, 0])[0, 1])
