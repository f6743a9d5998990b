"""The plain network finds what need not be bijective."""

import numpy as np
import pytest

import layerscope as ls
from layerscope.errors import InputError
from tests.helpers.data import LEARNED, relative_error


@pytest.mark.parametrize("truth", ["orthogonal", "linear"])
def test_linear_maps_are_found(truth):
    assert relative_error(truth, "mlp")[0] < LEARNED


def test_a_map_that_is_not_bijective_is_found_and_has_no_inverse():
    x = np.random.default_rng(0).normal(size=(2000, 2))
    aligner = ls.align(x[:1500], np.abs(x[:1500]), method="mlp")
    assert aligner.error(x[1500:], np.abs(x[1500:]))["relative"] < 0.05
    assert ls.align(x, np.abs(x)).error(x, np.abs(x))["relative"] > 0.9
    with pytest.raises(InputError, match="a plain network need not be bijective"):
        aligner.inverse(x)
