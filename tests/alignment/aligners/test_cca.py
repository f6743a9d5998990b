"""Canonical coordinates against scikit-learn's."""

import numpy as np
import pytest
from sklearn import cross_decomposition

import layerscope as ls
from tests.helpers.data import EXACT, noisy_pair, relative_error


def test_canonical_coordinates_are_those_of_scikit_learn():
    """In canonical coordinates the mapped rows are the rows of X themselves: correlations are those of CCA."""
    x, y = noisy_pair(n=400, d=5, e=5, noise=1.5)
    aligner = ls.align(x, y, method="cca")
    plain = cross_decomposition.CCA(5, max_iter=10000, tol=1e-12, scale=False).fit(x, y)
    u, v = plain.transform(x, y)
    expected = [np.corrcoef(u[:, k], v[:, k])[0, 1] for k in range(5)]
    assert aligner.report_["correlation"] == pytest.approx(np.mean(expected), abs=1e-6)
    mapped = plain.transform(x, aligner(x))[1]
    for k in range(5):
        assert abs(np.corrcoef(u[:, k], mapped[:, k])[0, 1]) == pytest.approx(1.0, abs=1e-5)
    # W_X W_Y^-1 keeps the covariance of Y, which least squares shrinks.
    np.testing.assert_allclose(np.cov(aligner(x).T), np.cov(y.T), rtol=1e-6)


@pytest.mark.parametrize("truth", ["orthogonal", "linear"])
def test_exact_maps_are_found(truth):
    assert relative_error(truth, "cca")[0] < EXACT
