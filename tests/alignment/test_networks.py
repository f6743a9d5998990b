"""What networks share: the linear start, early stops, many side by side as one after another."""

import numpy as np
import pytest
from spaces import relative

import layerscope as ls
from layerscope.alignment.methods import with_option

NETWORKS = with_option("start")


@pytest.mark.parametrize("method", NETWORKS)
def test_a_linear_start_is_the_linear_solution_before_training(method):
    error, aligner = relative("linear", method, start="linear", steps=1, learning_rate=1e-12)
    assert error < 1e-4
    assert aligner.report_["start"] == "linear"


@pytest.mark.parametrize("method", NETWORKS)
def test_a_linear_start_does_not_overfit_what_stops_it(method):
    """Rows of noise, hardly more than features: the start has learned nothing, and no held-out row says otherwise."""
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(100, 80)), generator.normal(size=(100, 80))
    new = generator.normal(size=(300, 80)), generator.normal(size=(300, 80))
    aligner = ls.align(x, y, method=method, start="linear", steps=100)
    assert aligner.error(*new)["relative"] < 1.2
    assert aligner.report_["held_out"] > 0.7
