"""Ridge regression against scikit-learn's."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge

import layerscope as ls
from tests.helpers.data import EXACT, noisy_pair, relative_error, uneven_rows


@pytest.mark.parametrize("e", [6, 4, 9])
def test_least_squares_is_that_of_scikit_learn(e):
    x, y = noisy_pair(e=e)
    new = uneven_rows(seed=5)
    plain = LinearRegression().fit(x, y)
    np.testing.assert_allclose(ls.align(x, y, strength=0)(new), plain.predict(new), rtol=1e-8)
    # Our strength is a share of the mean variance of X; scikit-learn's is added to X'X.
    centred = x - x.mean(axis=0)
    ridge = Ridge(alpha=0.3 * (centred**2).sum() / x.shape[1]).fit(x, y)
    np.testing.assert_allclose(ls.align(x, y, strength=0.3)(new), ridge.predict(new), rtol=1e-8)


def test_cross_validation_chooses_a_strength_that_helps():
    generator = np.random.default_rng(0)
    x, w = generator.normal(size=(60, 50)), generator.normal(size=(50, 5))
    y, test = x @ w + 3 * generator.normal(size=(60, 5)), generator.normal(size=(500, 50))
    chosen, plain = ls.align(x, y), ls.align(x, y, strength=0)
    assert chosen.report_["strength"] > 1e-3
    assert chosen.error(test, test @ w)["relative"] < 0.7 * plain.error(test, test @ w)["relative"]


@pytest.mark.parametrize("truth", ["orthogonal", "linear"])
def test_exact_maps_are_found(truth):
    assert relative_error(truth, "linear")[0] < EXACT
