"""Unbiased CKA: near zero where nothing is shared, whole or in batches."""

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError, LayerscopeWarning
from layerscope.extraction.row_store import Rows
from layerscope.similarity.measures.unbiased import _Memory, _together
from layerscope.similarity.unbiased_hsic import u_centred
from tests.similarity import reference
from tests.similarity.pairs import data


def test_a_last_batch_of_one_row_changes_nothing():
    x, y = data(n=101)
    measure = ls.measure("cka_minibatch")
    assert measure(x, y, batch=50) == pytest.approx(measure(x[:100], y[:100], batch=50), abs=1e-6)


def test_shuffled_batches_tell_rows_that_are_sorted_by_class():
    generator = np.random.default_rng(0)
    classes = np.repeat(np.eye(4) * 8, 50, axis=0)
    x, y = (classes @ generator.normal(size=(4, 6)) + generator.normal(size=(200, 6)) for _ in range(2))
    measure, exact = ls.measure("cka_minibatch"), ls.measure("cka_debiased")(x, y)
    assert abs(measure(x, y, batch=50)) < 0.2
    assert measure(x, y, batch=50, shuffle=0) == pytest.approx(exact, abs=0.1)


def test_rows_in_16_bits_are_centred_with_all_digits():
    """As they are kept where the store has no room: the same as in float32, to the bit."""
    measure = ls.measure("cka_minibatch")
    rows = torch.randn(100, 6, generator=torch.Generator().manual_seed(0)).add(3).bfloat16()
    assert torch.equal(measure.factored(rows, batch=50, shuffle=0), measure.factored(rows.float(), batch=50, shuffle=0))


def test_debiased_cka_of_independent_data_is_near_zero_where_cka_is_not():
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(200, 300)), generator.normal(size=(200, 300))
    assert ls.measure("cka")(x, y) > 0.5
    assert abs(ls.measure("cka_debiased")(x, y)) < 0.02


def stack(n, wild=False, dtype=torch.float32):
    """Layers of different widths that have something in common, far from 0 if wild."""
    draw = np.random.default_rng(0).normal
    base = draw(size=(n, 4))
    layers = [base @ draw(size=(4, width)) + draw(size=(n, width)) for width in (5, 9, 7)]
    if wild:
        layers = [layers[0] * 1e12, layers[1] * 1e-14, layers[2] + 300]
    return [torch.tensor(layer).to(dtype) for layer in layers]


@pytest.mark.parametrize("n", [4, 60, 97, 203, 251])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_all_layers_at_once_give_what_each_pair_gives(n, dtype):
    layers = stack(n, dtype=dtype)
    value = _together(lambda k, start, stop: layers[k][start:stop], 3, n, batch=50)
    for i in range(3):
        for j in range(3):
            x, y = (layers[k].double().numpy() for k in (i, j))
            assert value(i, j) == pytest.approx(reference.cka_minibatch(x, y, 50), rel=1e-5, abs=1e-6)


def test_all_layers_at_once_at_any_scale():
    layers = stack(120, wild=True, dtype=torch.float64)
    found = ls.compare([layer.float() for layer in layers], measure="cka_minibatch", batch=40).values
    tame = [layers[0] / 1e12, layers[1] * 1e14, layers[2] - 300]
    for i, x in enumerate(tame):
        for j, y in enumerate(tame):
            assert found[i, j] == pytest.approx(reference.cka_minibatch(x.numpy(), y.numpy(), 40), rel=1e-4, abs=1e-5)


def test_the_sum_over_batches_is_more_exact_than_one_in_float32():
    layers = stack(20_000)
    found = ls.compare(layers, measure="cka_minibatch").values
    expected = reference.cka_minibatch(layers[0].double().numpy(), layers[2].double().numpy())
    assert found[0, 2] == pytest.approx(expected, rel=1e-6)


def test_batches_say_why_there_is_no_value():
    layers = [*stack(60), torch.full((60, 3), 7.0)]
    found = ls.compare(layers, measure="cka_minibatch", batch=20)
    assert np.isnan(found.values[3]).all()
    assert found.reasons[0, 3] == "every row is the same up to rounding: no column varies by a millionth of its mean"
    few = ls.compare([layer[:3] for layer in layers], measure="cka_minibatch")
    assert few.reasons[0, 1] == "unbiased HSIC needs at least 4 rows and there are 3"
    with pytest.raises(InputError, match="batch is 3; unbiased HSIC needs at least 4 rows per batch"):
        ls.compare(layers, measure="cka_minibatch", batch=3)
    layers[1][17, 2] = torch.nan
    with pytest.raises(InputError, match="Layer 1 has a NaN in row 17"):
        ls.compare(layers, measure="cka_minibatch", batch=20)
    assert _Memory([layer.shape[1] for layer in layers], 60).hsic(layers) is None


@pytest.mark.parametrize("n", [4, 7, 30])
def test_inner_products_of_centred_gram_matrices(n):
    layers = torch.randn(3, n, 5, generator=torch.Generator().manual_seed(n))
    grams = u_centred(layers.double() @ layers.double().mT).numpy() * (n * (n - 3)) ** 0.5
    memory = _Memory([5, 5, 5], n)
    memory._layers.copy_(layers)
    products = memory._inner_products((layers @ layers.sum(dim=1)[..., None])[..., 0])
    np.testing.assert_allclose(products.numpy(), np.einsum("anm,bnm->ab", grams, grams), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [1e3, 1e4, 1e5])
def test_one_row_far_from_the_others(size):
    layers = stack(200)
    for layer in layers:
        layer[17] *= size
    values = ls.compare(layers, measure="cka_minibatch", batch=100).values
    for i in range(3):
        for j in range(3):
            expected = reference.cka_minibatch(layers[i].double().numpy(), layers[j].double().numpy(), 100)
            assert values[i, j] == pytest.approx(expected, rel=2e-4)


@pytest.mark.parametrize("options", [{}, {"batch": 100}, {"batch": 90, "shuffle": 3}])
def test_a_minibatch_counts_no_pairs_of_rows_of_one_text(options):
    """Words of 100 independent texts: what the words of a text share is no likeness of the layers."""
    text = np.repeat(np.arange(100), 10)
    values = []
    for seed in range(5):
        draw = np.random.default_rng(seed).normal
        layers = [draw(size=(100, 16))[text] + draw(size=(1000, 16)) for _ in range(2)]
        reps = ls.Representations.from_arrays(layers, rows=Rows("t", "all", "f", text))
        found = ls.compare(reps, measure="cka_minibatch", **options).values[0, 1]
        called = ls.measure("cka_minibatch")(*layers, texts=text, **options)
        assert called == pytest.approx(found, abs=1e-5)
        values.append(found)
    assert abs(np.mean(values)) < 0.012  # .03 and more with such pairs


def test_a_minibatch_with_all_rows_is_debiased_cka_of_texts():
    text = np.repeat(np.arange(20), np.tile([1, 4], 10))
    x, y = (np.random.default_rng(seed).normal(size=(50, 4)) for seed in (0, 1))
    expected = ls.measure("cka_debiased")(x, y, texts=text)
    assert ls.measure("cka_minibatch")(x, y, texts=text) == pytest.approx(expected, rel=1e-4)
    apart = ls.measure("cka_minibatch")(x, y, texts=np.arange(50))
    assert apart == pytest.approx(ls.measure("cka_minibatch")(x, y), rel=1e-6)
    with pytest.warns(
        LayerscopeWarning, match="at least 4 texts and there are 2 in a batch of 6; give a larger batch="
    ):
        assert np.isnan(ls.measure("cka_minibatch")(x, y, texts=np.repeat(np.arange(17), 3)[:50], batch=6))
