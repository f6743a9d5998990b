"""One layer's second moments, and what follows from them."""

import math

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError
from layerscope.registry import MEASURES
from layerscope.similarity.layer_statistics import pair_of, side_from, unbiased_hsic
from layerscope.similarity.moments import Moments
from layerscope.similarity.registry import Undefined
from tests.similarity.pairs import LINEAR, data


@pytest.mark.parametrize("name", LINEAR)
def test_the_moments_form_is_the_rows_form(name):
    x, y = data()
    moments = Moments([x.shape[1], y.shape[1]], exact=True, block=32)
    for start in range(0, len(x), 17):
        moments.update([torch.from_numpy(m[start : start + 17]) for m in (x, y)])
    measure = MEASURES[name]
    sides = [measure.prepared(side_from(moments, i)) for i in (0, 1)]
    value = measure.of_pair(*sides, moments.scatter(0, 1))
    assert value == pytest.approx(measure(x, y), rel=1e-9)


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


def test_standardized_columns_have_unit_variance_and_constant_ones_stay_out():
    x, y = both()
    x[:, 2] = 4.0
    side, other, cross = pair_of(x, y, "scatter", standardize=True)
    assert (side.scatter.diagonal() / len(x)).tolist() == pytest.approx([1, 1, 0, 1, 1, 1, 1])
    assert cross[2].abs().max() == 0
    assert other.trace == pytest.approx(5 * len(x))


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


def test_a_column_is_dead_by_its_own_mean():
    """Tiny beside the others is not dead; rounding beside a large mean is, and what it says of others is left out."""
    x, y = both(n=200)
    x[:, 1] *= 1e-9
    x[:, 3] = (5e7 + 1e-4 * x[:, 3]).float().double()
    x[:, 4] = 1e8 + torch.randn(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    side, _, cross = pair_of(x, y, "scatter")
    assert side.alive.tolist() == [True, True, True, False, False, True, True]
    assert float(side.scatter[4].abs().max()) == float(cross[4].abs().max()) == 0
    moments = Moments([7, 5], exact=True)
    moments.update([x, y])
    assert side_from(moments, 0).alive.tolist() == side.alive.tolist()
    rest = [k for k in range(7) if side.alive[k]]
    for name in LINEAR:
        assert ls.measure(name)(x, y) == pytest.approx(ls.measure(name)(x[:, rest], y), abs=1e-7)


def test_a_dead_column_with_a_large_mean_does_not_hide_the_others():
    x, y = both()
    x[:, 2] = 1e9
    assert ls.measure("cka")(x, y) == pytest.approx(ls.measure("cka")(x[:, [0, 1, 3, 4, 5, 6]], y), abs=1e-9)


def test_the_rank_is_that_of_columns_at_unit_variance():
    x, y = both()
    x = torch.cat([x, x[:, :1] + x[:, 1:2]], dim=1)
    for column in (0, 3, 7):
        scaled = x.clone()
        scaled[:, column] *= 1e9
        side, _, _ = pair_of(scaled, y, "scatter")
        assert side.whitener().shape[1] == 7
        white = (scaled - scaled.mean(dim=0)) @ side.whitener()
        torch.testing.assert_close(white.T @ white, torch.eye(7, dtype=torch.float64), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("rows", "width"), [(40, 64), (200, 8)])
def test_debiased_cka_counts_no_column_of_rounding_on_any_route(rows, width):
    """In float32 a column of a million holds nothing but rounding, which may be more than all others vary."""
    draw = np.random.default_rng(0).normal
    x = (0.01 * draw(size=(rows, width))).astype(np.float32)
    y = x + (0.01 * draw(size=(rows, width))).astype(np.float32)
    blurred = np.column_stack([x, np.float32(1e6) + (0.1 * draw(size=rows)).astype(np.float32)])
    expected = ls.measure("cka_debiased")(x, y)
    assert ls.measure("cka_debiased")(blurred, y) == pytest.approx(expected, rel=1e-9)
    for options in ({}, {"ci": 0.9}):
        found = ls.compare([blurred], [y], measure="cka_debiased", **options)
        value = found.values[0, 0]
        assert value == pytest.approx(expected, rel=1e-6) or "nothing but rounding" in found.reasons[0, 0]
