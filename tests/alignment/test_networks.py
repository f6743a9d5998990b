"""What networks share: the linear start, early stops, many side by side as one after another."""

import numpy as np
import pytest
from spaces import noisy_pair, relative

import layerscope as ls
from layerscope.alignment.aligning import align_all
from layerscope.alignment.methods import with_option
from layerscope.errors import InputError

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


def test_a_network_that_does_not_learn_says_so():
    x, y = noisy_pair(n=60)
    with pytest.raises(InputError, match="lower the learning rate"):
        ls.align(x, y, method="mlp", learning_rate=1e30, steps=30)
    again = ls.align(x, y, method="inn", steps=5).fit(x[:, :4], y[:, :4])  # another width, the same aligner
    assert again(x[:, :4]).shape == (60, 4)


@pytest.mark.parametrize("method", NETWORKS)
def test_side_by_side_is_one_after_another(method):
    x, y = noisy_pair(n=120)
    sides = [(x, y), (x + 1, 2 * y[:, ::-1].copy()), (x**2, y)]
    together = align_all(sides, method=method, seed=3, steps=75)
    for aligner, (one, two) in zip(together, sides, strict=True):
        alone = ls.align(one, two, method=method, seed=3, steps=75)
        np.testing.assert_allclose(aligner(one), alone(one), rtol=1e-3, atol=2e-3)
        assert aligner.report_["steps"] == alone.report_["steps"]
