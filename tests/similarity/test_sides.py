"""One layer's second moments, and what follows from them."""

import pytest
import torch
from pairs import LINEAR, data

import layerscope as ls
from layerscope.similarity.moments import Moments
from layerscope.similarity.registry import registry
from layerscope.similarity.sides import side_from


@pytest.mark.parametrize("name", LINEAR)
def test_the_moments_form_is_the_rows_form(name):
    x, y = data()
    moments = Moments([x.shape[1], y.shape[1]], exact=True, block=32)
    for start in range(0, len(x), 17):
        moments.update([torch.from_numpy(m[start : start + 17]) for m in (x, y)])
    sides = side_from(moments, 0), side_from(moments, 1)
    value = registry()[name].of_pair(*sides, moments.scatter(0, 1))
    assert value == pytest.approx(ls.measure(name)(x, y), rel=1e-9)
