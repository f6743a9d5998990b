"""One layer's second moments, and what follows from them."""

import math

import pytest
import torch
from pairs import LINEAR, data

import layerscope as ls
from layerscope.errors import InputError
from layerscope.similarity.moments import Moments
from layerscope.similarity.registry import Undefined, registry
from layerscope.similarity.sides import pair_of, side_from, unbiased_hsic


@pytest.mark.parametrize("name", LINEAR)
def test_the_moments_form_is_the_rows_form(name):
    x, y = data()
    moments = Moments([x.shape[1], y.shape[1]], exact=True, block=32)
    for start in range(0, len(x), 17):
        moments.update([torch.from_numpy(m[start : start + 17]) for m in (x, y)])
    sides = side_from(moments, 0), side_from(moments, 1)
    value = registry()[name].of_pair(*sides, moments.scatter(0, 1))
    assert value == pytest.approx(ls.measure(name)(x, y), rel=1e-9)


def both(**options):
    return [torch.from_numpy(side) for side in data(**options)]


def test_whitened_rows_have_unit_products():
    x, y = both()
    side, _, _ = pair_of(x, y, "scatter")
    white = (x - x.mean(dim=0)) @ side.whitener()
    torch.testing.assert_close(white.T @ white, torch.eye(7, dtype=torch.float64), rtol=1e-8, atol=1e-8)
    values = side.eigen[0]
    few = side.whitener(keep=0.8).shape[1]
    assert float(values[:few].sum()) >= 0.8 * float(values.sum()) > float(values[: few - 1].sum())
    for keep in (0, 1.5):
        with pytest.raises(InputError, match=f"keep is {keep}; it must be above 0 and at most 1"):
            side.whitener(keep=keep)


def test_standardized_columns_have_unit_spread_and_constant_ones_stay_out():
    x, y = both()
    x[:, 2] = 4.0
    side, other, cross = pair_of(x, y, "scatter", standardize=True)
    assert side.scatter.diagonal().tolist() == pytest.approx([1, 1, 0, 1, 1, 1, 1])
    assert cross[2].abs().max() == 0
    assert other.trace == pytest.approx(5)


def test_unbiased_hsic_of_rows_is_that_of_moments():
    x, y = both(n=40)
    moments = Moments([7, 5], exact=True, debiased=True)
    moments.update([x, y])
    a, b = (side - side.mean(dim=0) for side in (x, y))
    assert unbiased_hsic(a, b) == pytest.approx(moments.hsic(0, 1), rel=1e-8)
    assert side_from(moments, 0).hsic == pytest.approx(unbiased_hsic(a, a), rel=1e-8)


def test_a_side_without_variation_or_rows_says_why():
    x, y = both()
    constant, _, _ = pair_of(torch.ones_like(x) * 3.3, y, "scatter")
    for name in ("trace", "norm", "spread", "eigen", "hsic"):
        with pytest.raises(Undefined, match="every row is the same"):
            getattr(constant, name)
    few, _, cross = pair_of(x[:3], y[:3], "hsic")
    assert math.isnan(cross)  # NaN
    with pytest.raises(Undefined, match="unbiased HSIC needs at least 4 rows and there are 3"):
        few.require_hsic()


@pytest.mark.parametrize("exact", [True, False])
def test_rows_whose_squares_overflow_have_no_value_and_a_reason(exact):
    x, y = both()
    huge = (x / x.abs().max() * 3e38).float() if not exact else x * 1e160
    moments = Moments([x.shape[1], y.shape[1]], exact=exact)
    moments.update([huge, y.to(huge.dtype)])
    with pytest.raises(Undefined, match="so large"):
        registry()["cka"].of_pair(side_from(moments, 0), side_from(moments, 1), moments.scatter(0, 1))
