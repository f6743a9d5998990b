"""Measures of attention against their plain definitions, on arrays and on models."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import layerscope as ls
from layerscope.errors import InputError, LayerscopeWarning
from layerscope.similarity.attention import head_pairs, jensen_shannon
from layerscope.similarity.measures import attention
from tests.similarity import attention_reference as reference
from tests.similarity.attention_layers import BY_HEAD, NAMES, layer


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", NAMES)
def test_agreement_with_the_definition_on_ragged_sentences(name, seed, causal):
    a, b = layer(4, seed), layer(3, seed + 10)
    assert ls.measure(name)(a, b, causal=causal) == pytest.approx(reference.value(name, a, b, causal), abs=1e-8)
    if name in BY_HEAD:
        expected = reference.heads(name, a, b, causal)
        np.testing.assert_allclose(ls.measure(name).heads(a, b, causal=causal), expected, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_zeros_uniform_heads_masked_rows_and_words_alone(name):
    a, b = layer(4, 1, causal=True), layer(3, 2)
    a[2][1] = 1 / 7  # a uniform head: no row of it varies
    a[3][:, 2] = 0.0  # a row that was masked for every head
    b[5][1, 4] = 0.0  # and one that was masked for a single one
    assert ls.measure(name)(a, b) == pytest.approx(reference.value(name, a, b), abs=1e-8)
    assert ls.measure(name)(b, a) == pytest.approx(reference.value(name, b, a), abs=1e-8)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), lengths=st.lists(st.integers(1, 6), min_size=2, max_size=6))
def test_any_lengths_any_order(name, seed, lengths):
    lengths = [*lengths, 6, 6]
    a, b = layer(3, seed, lengths), layer(2, seed + 1, lengths)
    found = ls.measure(name)(a, b)
    assert found == pytest.approx(reference.value(name, a, b), abs=1e-7)
    order = np.random.default_rng(seed).permutation(len(lengths))
    assert ls.measure(name)([a[i] for i in order], [b[i] for i in order]) == pytest.approx(found, abs=1e-10)


def test_stacks_of_any_size_give_the_same(monkeypatch):
    a, b = layer(4), layer(3, 1)
    expected = [ls.measure(name)(a, b) for name in NAMES]
    monkeypatch.setattr(attention, "_STACK", 1)
    monkeypatch.setattr(head_pairs, "_DISTANCES", 1)
    monkeypatch.setattr(head_pairs, "_GPU_DISTANCES", 1)
    monkeypatch.setattr(jensen_shannon, "_COLUMNS", 5)
    monkeypatch.setattr(jensen_shannon, "_BLOCK", 9)
    monkeypatch.setattr(jensen_shannon, "_GPU_BLOCK", 9)
    assert [ls.measure(name)(a, b) for name in NAMES] == pytest.approx(expected, abs=1e-10)


def test_undefined_is_nan_with_the_reason():
    alone = layer(3, lengths=[1, 1, 1])
    with pytest.warns(LayerscopeWarning, match="row that varies"):
        assert math.isnan(ls.measure("attention_pearson")(alone, alone))
    assert ls.measure("attention_js")(alone, alone) == 1.0
    assert ls.measure("attention_norm")(alone, alone) == 1.0
    with pytest.warns(LayerscopeWarning, match="every row is the same"):
        assert math.isnan(ls.measure("attention_cka")(alone, alone))
    two = [np.array([[[0.3]]]), np.array([[[0.9]]])]  # a word each, which leaves two pairs of words
    with pytest.warns(LayerscopeWarning, match="two rows lie on a line"):
        assert math.isnan(ls.measure("attention_cka")(two, two[::-1]))
    masked = [np.zeros((2, 3, 3))]
    for name in BY_HEAD:
        with pytest.warns(LayerscopeWarning, match="is undefined"):
            assert math.isnan(ls.measure(name)(masked, masked))


def test_wrong_arrays_are_sentences():
    a = layer(2)
    js = ls.measure("attention_js")
    with pytest.raises(InputError, match="9 and 8 sentences"):
        js(a, a[:-1])
    with pytest.raises(InputError, match="Sentence 1 has 4 words in the first argument and 3"):
        js(a, [a[0], a[1][:, :3, :3], *a[2:]])
    with pytest.raises(InputError, match=r"has shape \(4, 4\)"):
        js([a[1][0]], [a[1][0]])
    with pytest.raises(InputError, match="below 0, a NaN"):
        js([a[1] - 1], [a[1]])
    with pytest.raises(InputError, match="1 attention heads and sentence 0 has 2"):
        js([a[1], a[1][:1]], [a[1], a[1]])
    with pytest.raises(InputError, match="no sentences"):
        js([], [])
    with pytest.raises(InputError, match="has no option 'keep'"):
        js(a, a, keep=0.5)
    with pytest.raises(InputError, match="as wholes"):
        ls.measure("attention_cka").heads(a, a)
