"""Products from bfloat16 parts are as near to float64 as float32's, whatever the rows, on a CPU and on tensor cores."""

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import layerscope as ls
from layerscope.similarity import budget, moments
from layerscope.similarity.moments import Moments, bfloat16_parts, product_of_parts
from tests.helpers.models import random_model

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def cka(found, i=0, j=1):
    cross, own, other = (float(found.scatter(*pair).pow(2).sum()) for pair in ((i, j), (i, i), (j, j)))
    return cross / (own * other) ** 0.5


def reference(x, y):
    x, y = (m.double().cpu().numpy() for m in (x, y))
    x, y = x - x.mean(0), y - y.mean(0)
    return float(np.linalg.norm(x.T @ y) ** 2 / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)))


def states(kind, n, generator):
    """Two layers' rows of a kind in float32."""
    x = torch.randn(n, 24, generator=generator)
    y = torch.tanh(x @ torch.randn(24, 16, generator=generator)) + torch.randn(n, 16, generator=generator)
    if kind == "offset":  # as some columns of language models are: a mean of many standard deviations
        x = x + 300 * (torch.arange(24) % 7 == 0)
    elif kind == "positive":
        x, y = x.abs(), y.abs()
    elif kind == "bfloat16":
        x, y = (40 * x + 13).bfloat16().float(), y.bfloat16().float()
    elif kind == "two values":  # what is left over of a number is the same in every row
        x, y = torch.where(x > 0, 1 / 3, -0.7), torch.where(y > 0.5, 1 / 7, 1.0)
    return x, y


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["plain", "offset", "positive", "bfloat16", "two values"])
def test_cka_is_that_of_float64(kind, device):
    x, y = (m.to(device) for m in states(kind, 10_000, torch.Generator().manual_seed(0)))
    found = Moments([24, 16], split=True, device=device)
    for rows in zip(x.split(3000), y.split(3000), strict=True):
        found.update(rows)
    assert cka(found) == pytest.approx(reference(x, y), rel=1e-5)
    assert found.split


@pytest.mark.parametrize("device", DEVICES)
def test_products_are_summed_in_float64_between_blocks(device):
    x = 1 + 0.1 * torch.rand(200_000, 8, generator=torch.Generator().manual_seed(1)).to(device)
    found = Moments([8], split=True, device=device)
    for rows in x.split(5000):
        found.update([rows])
    centred = x.double() - x.double().mean(0)
    expected = centred.T @ centred
    scale = expected.diagonal().max()
    assert float((found.scatter(0, 0) - expected).abs().max() / scale) < 1e-5


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e9, 1e9, width=32), min_size=1, max_size=30))
def test_two_parts_hold_all_but_the_65536th_of_a_number(numbers):
    rows = torch.tensor(numbers)[None]
    low, high = bfloat16_parts(rows)
    left = (rows.double() - low.double() - high.double()).abs()
    assert (left <= rows.double().abs() * 2**-16 + 1e-38).all()


def test_every_product_of_parts_is_exact():
    low, high = bfloat16_parts(torch.randn(1, 50, generator=torch.Generator().manual_seed(0)))
    product = product_of_parts(high, low)
    assert product.dtype == torch.float32
    assert torch.equal(product.double(), high.double().T @ low.double())


def test_weighted_rows_and_some_of_the_pairs():
    generator = torch.Generator().manual_seed(0)
    views = [torch.randn(300, width, generator=generator) for width in (5, 3, 4)]
    weights = torch.rand(300, generator=generator)
    found, exact = (Moments([5, 3, 4], pairs=[(0, 2)], **how) for how in ({"split": True}, {"exact": True}))
    for each in (found, exact):
        each.update(views, weights)
    assert found.pairs == [(0, 0), (0, 2), (1, 1), (2, 2)]
    for pair in found.pairs:
        torch.testing.assert_close(found.scatter(*pair), exact.scatter(*pair), rtol=0, atol=1e-3)
    assert found.without(found).split


def test_models_in_16_bits_are_compared_so_where_there_are_tensor_cores(monkeypatch):
    seen, ordinary = [], moments.bfloat16_parts

    def noted(rows):
        seen.append(len(rows))
        return ordinary(rows)

    monkeypatch.setattr(moments, "bfloat16_parts", noted)
    texts = [f"the {k} list of a file and {k % 7} values" for k in range(200)]
    task = ls.task(pandas.DataFrame({"text": texts}))
    half = random_model()
    half.network.bfloat16()
    options = {"task": task, "pool": "mean", "measure": ["cka", "svcca"]}
    plain = ls.compare(half, **options)
    assert not seen
    monkeypatch.setattr(budget, "has_bfloat16_cores", lambda device: True)
    ls.compare(random_model(), task=task, pool="mean")
    ls.compare(half, task=task, pool="mean", ci=0.9)
    assert not seen  # of float32 models, and where there are intervals
    again = ls.compare(half, **options)
    assert seen
    np.testing.assert_allclose(again["cka"].values, plain["cka"].values, rtol=1e-5)
    np.testing.assert_array_equal(again["svcca"].values, plain["svcca"].values)
