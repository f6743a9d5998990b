"""Networks that are trained side by side come out as they would alone."""

import numpy as np
import pytest

import layerscope as ls
from layerscope.alignment.align import align_all
from layerscope.alignment.aligner import with_option
from layerscope.errors import InputError
from tests.helpers.data import noisy_pair

NETWORKS = with_option("start")


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
