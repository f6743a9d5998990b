"""Closed forms: ridge solutions against the textbook's, the rank of rows, the strength over folds."""

import numpy as np
import pytest
import torch

from layerscope.alignment.linear_maps import STRENGTHS, Ridge, strength_of, svd
from tests.helpers.data import noisy_pair


def pair(**options):
    return [torch.from_numpy(side) for side in noisy_pair(**options)]


@pytest.mark.parametrize("n", [300, 4])  # more rows than columns, and fewer
@pytest.mark.parametrize("strength", [1e-3, 1.0, 100.0])
def test_a_ridge_is_that_of_the_textbook(n, strength):
    x, y = pair(n=n)
    ridge = Ridge(x, y)
    a, b = (side - side.mean(dim=0) for side in (x, y))
    gram = a.T @ a
    expected = torch.linalg.solve(gram + strength * gram.trace() / 6 * torch.eye(6, dtype=torch.float64), a.T @ b)
    torch.testing.assert_close(ridge.weight(strength), expected, rtol=1e-8, atol=1e-10)


def test_errors_are_those_of_every_strength():
    x, y = pair()
    ridge, (new_x, new_y) = Ridge(x[:200], y[:200]), (x[200:], y[200:])
    errors = ridge.errors(new_x, new_y)
    assert len(errors) == len(STRENGTHS)
    for strength, error in zip(STRENGTHS, errors, strict=True):
        mapped = (new_x - ridge.means[0]) @ ridge.weight(strength) + ridge.means[1]
        assert float(error) == pytest.approx(float((mapped - new_y).square().sum()))


def test_noise_asks_for_a_strong_ridge_and_a_true_map_for_a_weak_one():
    x, y = pair(noise=0.0)
    assert strength_of(x, y, seed=0) <= 1e-6
    noise = torch.from_numpy(np.random.default_rng(7).normal(size=y.shape))
    assert strength_of(x, noise, seed=0) >= 1.0


def test_constant_rows_take_the_strongest():
    x, y = torch.ones(20, 3, dtype=torch.float64), torch.ones(20, 2, dtype=torch.float64)
    assert strength_of(x, y, seed=0) == STRENGTHS[-1]
    assert Ridge(x, y).weight(1.0).abs().max() == 0


@pytest.mark.parametrize("n", [50, 8])
def test_the_rank_is_that_of_the_rows(n):
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(n, 3)) @ np.random.default_rng(1).normal(size=(3, 6)))
    u, s, vt = svd(x)
    assert (u.shape, s.shape, vt.shape) == ((n, 3), (3,), (3, 6))
    torch.testing.assert_close(u @ torch.diag(s) @ vt, x)
    assert svd(torch.zeros(5, 2, dtype=torch.float64))[1].tolist() == [0.0]
