"""Procrustes against scipy's."""

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes

import layerscope as ls
from tests.helpers.data import EXACT, noisy_pair, relative_error, uneven_rows


@pytest.mark.parametrize("scale", [True, False])
def test_procrustes_is_that_of_scipy(scale):
    x, y = noisy_pair()
    centred = x - x.mean(axis=0), y - y.mean(axis=0)
    rotation, size = orthogonal_procrustes(*centred)
    factor = size / (centred[0] ** 2).sum() if scale else 1.0
    expected = factor * (uneven_rows(seed=4) - x.mean(axis=0)) @ rotation + y.mean(axis=0)
    found = ls.align(x, y, method="procrustes", scale=scale)
    np.testing.assert_allclose(found(uneven_rows(seed=4)), expected, rtol=1e-7)
    assert found.report_["factor"] == pytest.approx(factor)


def test_a_rotation_is_found_and_no_other_linear_map():
    assert relative_error("orthogonal", "procrustes")[0] < EXACT
    assert relative_error("linear", "procrustes")[0] > 0.05
