"""Sums over rows: unit rows, and that sums add up."""

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.distributed import Team
from layerscope.similarity.registry import Undefined
from layerscope.similarity.row_means import RowSums, unit_rows


def layers(n=30, d=5, count=3, seed=0):
    draw = np.random.default_rng(seed).normal
    return [torch.from_numpy(draw(size=(n, d))) for _ in range(count)]


def test_unit_rows_of_any_scale():
    rows = torch.tensor([[3.0, 4.0], [3e-320, 4e-320], [3e200, -4e200], [0.0, 0.0]], dtype=torch.float64)
    unit, defined = unit_rows(rows)
    expected = [[0.6, 0.8], [0.6, 0.8], [0.6, -0.8], [0, 0]]
    torch.testing.assert_close(unit, torch.tensor(expected, dtype=torch.float64), atol=1e-3, rtol=0)
    assert unit[:3].norm(dim=1).tolist() == pytest.approx([1, 1, 1], abs=1e-15)
    assert defined.tolist() == [True, True, True, False]


def test_sums_of_parts_add_up_and_can_be_taken_out():
    rows, measures = layers(), [ls.measure(name) for name in ("cosine", "angular")]

    def summed(part):
        sums = RowSums(measures, [5] * 3, [0, 1], [2])
        sums.update([view[part] for view in rows])
        return sums

    whole, first, second = summed(slice(None)), summed(slice(0, 11)), summed(slice(11, None))
    together, left = first.merge(second), whole.merge(first, -1)
    assert (together.n, left.n) == (30, 19)
    for name in ("cosine", "angular"):
        for i in (0, 1):
            assert together.value(name, i, 2) == pytest.approx(whole.value(name, i, 2), abs=1e-14)
            assert left.value(name, i, 2) == pytest.approx(second.value(name, i, 2), abs=1e-14)
            assert whole.value(name, i, 2) == pytest.approx(ls.measure(name)(rows[i], rows[2]), abs=1e-14)


def test_processes_add_up():
    class Twice(Team):
        """A second process with the same rows."""

        def all_reduce(self, tensor):
            return 2 * tensor

    sums = RowSums([ls.measure("cosine")], [5, 5], [0], [1])
    sums.update(layers(count=2))
    alone = sums.value("cosine", 0, 1)
    sums.reduce(Twice(0, 2))
    assert sums.n == 60
    assert sums.value("cosine", 0, 1) == pytest.approx(alone, abs=1e-15)


def test_no_rows_have_no_mean():
    with pytest.raises(Undefined, match="there are no rows"):
        RowSums([ls.measure("cosine")], [5, 5], [0], [1]).value("cosine", 0, 1)
