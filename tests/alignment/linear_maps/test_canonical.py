"""Canonical directions: the map is the true one where there is one, and correlations are those of CCA."""

import numpy as np
import pytest
import torch
from sklearn.cross_decomposition import CCA

from layerscope.alignment.linear_maps import Factors, canonical_map
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
