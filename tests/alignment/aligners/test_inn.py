"""The invertible network: its like, and the way back."""

import numpy as np
import pytest
from spaces import LEARNED, N, known, noisy_pair, relative

import layerscope as ls
from layerscope.errors import InputError


def test_the_invertible_network_finds_its_like():
    errors = {m: relative("inn", m)[0] for m in ("procrustes", "linear", "cca", "svcca", "mlp", "inn")}
    inn = errors.pop("inn")
    assert inn < 0.02
    assert min(errors.values()) > 2 * inn
    x = known()[0][N:]
    _, aligner = relative("inn", "inn", steps=200)
    np.testing.assert_allclose(aligner.inverse(aligner(x)), x, atol=1e-4)


@pytest.mark.parametrize("truth", ["orthogonal", "linear"])
def test_there_is_a_way_back_from_what_it_learned(truth):
    error, aligner = relative(truth, "inn")
    assert error < LEARNED
    assert aligner.report_["round_trip"] < 1e-4


def test_so_there_is_after_a_linear_start():
    assert relative("linear", "inn", start="linear", steps=50)[1].report_["round_trip"] < 1e-4


def test_one_feature_has_no_halves():
    x, y = noisy_pair(n=50)
    with pytest.raises(InputError, match="features into two halves"):
        ls.align(x[:, :1], y[:, :1], method="inn")
