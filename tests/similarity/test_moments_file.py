"""Moments in a folder."""

import pytest
import torch
from views import fed, rows

from layerscope.errors import DataError
from layerscope.similarity.moments import Moments


def test_save_and_load(tmp_path):
    views = rows()
    moments = fed(views, [20], exact=True, debiased=True, pairs=[(0, 1)])
    again = Moments.load(moments.save(tmp_path / "m"))
    assert torch.equal(again.scatter(0, 1), moments.scatter(0, 1))
    assert again.hsic(0, 1) == moments.hsic(0, 1)
    assert again.n == 200
    again.update([v[:10] for v in views])
    assert again.merge(moments).n == 210 + 200
    (tmp_path / "m" / "moments.json").write_text("{")
    with pytest.raises(DataError, match="no readable moments"):
        Moments.load(tmp_path / "m")
