"""Rows as they are."""

import numpy as np

import layerscope as ls
from tests.helpers.data import noisy_pair


def test_nothing_is_done():
    x, y = noisy_pair(n=50)
    aligner = ls.align(x, y, method="identity")
    np.testing.assert_array_equal(aligner(x), x)
    np.testing.assert_array_equal(aligner.inverse(y), y)


def test_padding_adds_zeros_or_cuts_them_off():
    x, y = noisy_pair(n=50, d=4, e=6)
    np.testing.assert_array_equal(ls.align(x, y, method="identity", pad=True)(x), np.pad(x, ((0, 0), (0, 2))))
    np.testing.assert_array_equal(ls.align(y, x, method="identity", pad=True)(y), y[:, :4])
