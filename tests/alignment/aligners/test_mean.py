"""The mean of what is to be mapped to."""

import numpy as np
import pytest

import layerscope as ls
from tests.helpers.data import noisy_pair, uneven_rows


def test_every_row_is_mapped_to_the_mean():
    x, y = noisy_pair(n=50)
    aligner = ls.align(x, y, method="mean")
    np.testing.assert_allclose(aligner(uneven_rows(10, seed=3)), np.tile(y.mean(axis=0), (10, 1)))
    assert aligner.error(x, y)["relative"] == pytest.approx(1.0)
