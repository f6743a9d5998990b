"""CCA between few directions."""

import numpy as np
import pytest

import layerscope as ls
from tests.helpers.data import EXACT, relative_error


def test_svcca_keeps_the_fewest_directions_and_reports_both_errors():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(500, 8)) * np.asarray([10, 8, 6, 5, 0.1, 0.1, 0.1, 0.1])
    y = x @ np.linalg.qr(generator.normal(size=(8, 8)))[0]
    aligner = ls.align(x, y, method="svcca")
    assert aligner.report_["directions"] == 4
    error = aligner.error(x, y)
    assert error["relative_reduced"] < 1e-10 < error["relative"] < 0.01


@pytest.mark.parametrize("truth", ["orthogonal", "linear"])
def test_exact_maps_are_found(truth):
    assert relative_error(truth, "svcca", keep=1.0)[0] < EXACT
