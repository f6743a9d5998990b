"""Arrays of one's own: real numbers, and what float32 makes of them."""

import warnings

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError, LayerscopeWarning


@pytest.mark.parametrize("array", [np.array([["a", "b"]]), np.ones((2, 2)) * 1j, torch.ones(2, 2) * 1j])
def test_only_real_numbers_are_states(array):
    with pytest.raises(InputError, match=r"Array 1 holds .*; real numbers are needed"):
        ls.Representations.from_arrays([np.ones((2, 2)), array])


def test_what_float32_blurs_is_announced():
    x = np.random.default_rng(0).normal(size=(50, 4))
    far = x + np.array([0, 1e2, 1e5, 1e7])
    with pytest.warns(LayerscopeWarning, match="Array 1: 2 of 4 columns vary so little beside their size that float32"):
        ls.Representations.from_arrays([x, far])


def test_what_float32_holds_is_not_announced():
    x = np.random.default_rng(0).normal(size=(50, 4))
    constant = np.full((50, 4), 0.1) * np.arange(1, 5) / 3 + 1e-17 * x
    with warnings.catch_warnings(record=True) as announced:
        warnings.simplefilter("always")
        ls.Representations.from_arrays([x, x + 1e3, 1e-30 * x, constant, x.astype(np.float32) + np.float32(1e7)])
    assert announced == []


def test_arrays_that_are_read_backwards():
    rows = np.arange(12.0).reshape(4, 3)
    assert ls.Representations.from_arrays([rows[::-1, ::-1]])[0].tolist() == rows[::-1, ::-1].tolist()
    assert ls.measure("cka")(rows[::-1], rows) == pytest.approx(1)
