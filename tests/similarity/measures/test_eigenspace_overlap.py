"""Eigenspace overlap: spaces that share some directions, and widths that differ."""

import numpy as np
import pytest

import layerscope as ls


@pytest.mark.parametrize("shared", range(4))
def test_it_counts_the_directions_in_common(shared):
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(50, 8)))[0]
    x, y = basis[:, :3] * [1, 5, 1e-3], basis[:, 3 - shared : 7 - shared]  # 3 and 4 columns
    assert ls.measure("eigenspace_overlap")(x, y) == pytest.approx(shared / 4)


def test_repeated_columns_count_as_width_and_not_as_directions():
    x = np.random.default_rng(1).normal(size=(40, 3))
    assert ls.measure("eigenspace_overlap")(x, np.hstack([x, x])) == pytest.approx(3 / 6)
