"""Errors of mapped rows: the plain formula, and intervals that cover with several rows per text."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import t

import layerscope as ls
from layerscope.alignment.alignment_error import error_of, relative_without
from tests.helpers.cli import script


def test_leaving_out_one_text_after_the_other_is_brute_force():
    generator = np.random.default_rng(0)
    texts = generator.integers(0, 12, 90)
    y = torch.from_numpy(generator.normal(size=(90, 4)))
    mapped = y + 0.4 * torch.from_numpy(generator.normal(size=(90, 4)))
    error = error_of(mapped, y, 0.9, texts)
    values = np.log([error_of(mapped[texts != k], y[texts != k])["relative"] for k in range(12)])
    spread = math.sqrt(11 / 12 * np.square(values - np.mean(values)).sum())
    assert math.log(error["relative_high"] / error["relative"]) == pytest.approx(t.ppf(0.95, 11) * spread)
    assert math.log(error["relative"] / error["relative_low"]) == pytest.approx(t.ppf(0.95, 11) * spread)
    assert error["mse"] == pytest.approx(float((mapped - y).square().mean()))


def test_the_names_and_the_order_of_texts_do_not_matter():
    generator = np.random.default_rng(1)
    y = torch.from_numpy(generator.normal(size=(60, 3)))
    mapped, texts = y + 0.3, np.repeat(np.arange(10), 6)
    order = generator.permutation(60)
    plain = error_of(mapped, y, texts=texts)
    assert error_of(mapped[order], y[order], texts=100 - texts[order]) == pytest.approx(plain)


def test_intervals_cover_with_many_rows_per_text():
    """25 rows of each text: over rows they cover about a third of the time."""
    coverage = script("benchmarks/calibrations/aligner_error.py").coverage(40, 25, 150, 0)
    assert coverage["over rows"] < 0.6
    assert 0.89 <= coverage["over texts"] <= 1.0


def test_one_text_has_no_interval():
    x = np.random.default_rng(0).normal(size=(30, 3))
    error = ls.align(x, 2 * x).error(x, 2 * x + 0.1, texts=np.zeros(30))
    assert error["relative"] > 0
    assert math.isnan(error["relative_low"])
    assert math.isnan(error["mse_high"])


def test_relative_errors_without_each_group_are_those_of_the_other_rows():
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(40, 3, generator=generator)
    mapped = y + 0.5 * torch.randn(40, 3, generator=generator)
    group = np.arange(40) % 4
    rest = [error_of(mapped[group != g], y[group != g])["relative"] for g in range(4)]
    np.testing.assert_allclose(relative_without(mapped, y, group), rest)


def test_rows_that_differ_by_rounding_alone_have_no_relative_error():
    """Of summary tokens at layer 0 there is nothing to miss: a share of rounding would say anything of a map."""
    noise = np.random.default_rng(0).normal(size=(50, 4))
    rounding = torch.from_numpy((np.float32(3.7) * (1 + 1e-7 * noise)).astype(np.float32))
    assert math.isnan(error_of(rounding + 1e-3, rounding)["relative"])
    far = torch.from_numpy(1e8 + noise)  # float64 holds this, and so it counts
    assert error_of(far + 1, far)["relative"] == pytest.approx(1 / noise.var(axis=0).mean(), rel=1e-6)
    one = torch.from_numpy(np.column_stack([np.full(50, 1e4), 1e-4 * noise]).astype(np.float32))
    assert error_of(one + 1, one)["relative"] > 1e6  # a large column that is constant hides no other


def test_an_interval_needs_rows_that_differ_without_each_text():
    generator = np.random.default_rng(0)
    y = torch.from_numpy(generator.normal(size=(2, 3)))
    mapped = y + 0.1 * torch.from_numpy(generator.normal(size=(2, 3)))
    error = error_of(mapped, y)
    assert error["relative"] > 0
    assert math.isnan(error["relative_low"])
    assert math.isnan(error["relative_high"])
    same = torch.from_numpy(np.repeat(generator.normal(size=(2, 3)), [9, 1], axis=0))  # without the last all are equal
    assert math.isnan(error_of(same + 0.1, same)["relative_low"])
