"""Unbiased HSIC over pairs of rows of different texts, against least squares over those pairs, on every way to it."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import layerscope as ls
from layerscope.errors import InputError, LayerscopeWarning
from layerscope.extraction.row_store import Rows
from layerscope.similarity.jackknife import Grouping
from layerscope.similarity.unbiased_hsic import _offsets
from tests.helpers.models import random_model

SIZES = np.random.default_rng(0).integers(1, 7, 60)


def least_squares(x, y, texts):
    """Debiased CKA: Gram matrices less a_i + a_j, fitted to the pairs of rows of different texts, then their cosine."""
    i, j = np.nonzero(np.triu(np.asarray(texts)[:, None] != np.asarray(texts)[None]))
    design = np.zeros((len(i), len(x)))
    design[np.arange(len(i)), i] = design[np.arange(len(i)), j] = 1
    a, b = ((m @ m.T)[i, j] for m in (np.asarray(x, dtype=float), np.asarray(y, dtype=float)))
    a, b = (pairs - design @ np.linalg.lstsq(design, pairs, rcond=None)[0] for pairs in (a, b))
    return a @ b / np.sqrt((a @ a) * (b @ b))


def sides(sizes=SIZES, width=4, seed=1, shared=0.5):
    """Two layers of texts with several rows, which share part of what a text is like, with the text of every row."""
    generator = np.random.default_rng(seed)
    text = np.repeat(np.arange(len(sizes)), sizes)
    common = np.sqrt(shared) * generator.normal(size=(len(sizes), width))
    rest = np.sqrt(1 - shared)
    layers = [
        (common + rest * generator.normal(size=(len(sizes), width)))[text]
        + generator.normal(size=(len(text), width))
        + 3
        for _ in range(2)
    ]
    return *layers, text


def kept(x, y, text):
    """The same as representations of words."""
    rows = Rows("t", "all", "f", text, unit=np.arange(len(text)), units="word")
    return ls.Representations.from_arrays([x, y], rows=rows)


def debiased(x, y, text):
    return ls.measure("cka_debiased")(x, y, texts=text)


def test_it_is_the_cosine_over_pairs_of_different_texts():
    x, y, text = sides()
    assert debiased(x, y, text) == pytest.approx(least_squares(x, y, text), rel=1e-9)
    names = np.asarray([f"text {number}" for number in text])
    order = np.random.default_rng(3).permutation(len(text))
    assert debiased(x[order], y[order], names[order]) == pytest.approx(debiased(x, y, text), rel=1e-9)
    assert debiased(x, x, text) == pytest.approx(1.0)


def test_with_one_row_per_text_nothing_changes():
    x, y, _ = sides(np.ones(50, dtype=int))
    assert debiased(x, y, np.arange(50)) == debiased(x, y, None) == ls.measure("cka_debiased")(x, y)
    gram = torch.from_numpy(x @ x.T).fill_diagonal_(0.0)
    sums = gram.sum(dim=1)
    offsets = _offsets(sums, torch.arange(50), torch.ones(50, dtype=torch.float64))
    torch.testing.assert_close(offsets, sums / 48 - sums.sum() / (2 * 49 * 48))  # Szekely & Rizzo 2014


@pytest.mark.parametrize("width", [3, 300])  # from moments, and from Gram matrices
@pytest.mark.parametrize("mixed", [False, True])
def test_compare_gives_the_same_with_and_without_intervals(width, mixed):
    x, y, text = sides(width=width)
    order = np.random.default_rng(5).permutation(len(text)) if mixed else np.arange(len(text))
    reps = kept(x[order], y[order], text[order])
    x, y, text = reps[0].double().numpy(), reps[1].double().numpy(), reps.rows.row
    expected = debiased(x, y, text)
    assert ls.compare(reps, measure="cka_debiased").values[0, 1] == pytest.approx(expected, abs=1e-9)
    sim = ls.compare(reps, measure="cka_debiased", ci=0.95, seed=2)
    assert sim.values[0, 1] == pytest.approx(expected, abs=1e-9)
    group = Grouping(text, 2).groups_of(text)
    without = [debiased(x[group != g], y[group != g], text[group != g]) for g in range(20)]
    np.testing.assert_allclose(sim.left_out[:, 0, 1], without, atol=1e-8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LayerscopeWarning)
        plain = ls.compare(reps, measure="cka", ci=0.95, seed=2)
    assert plain.debiased[0, 1] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("ci", [None, 0.9])
def test_models_over_words_give_what_their_rows_give(ci, tmp_path, caplog):
    path = tmp_path / "words.txt"
    path.write_text("\n".join(" ".join(f"word{k * i % 17}" for k in range(1, 3 + i % 9)) for i in range(60)) + "\n")
    model = random_model("bert", num_hidden_layers=2)
    with caplog.at_level("INFO", "layerscope"):
        sim = ls.compare(model, task=path, pool="words", measure="cka_debiased", ci=ci)
    assert any("Plan: rows" in record.getMessage() for record in caplog.records)
    reps = ls.extract(model, path, pool="words")
    expected = debiased(reps[1].double(), reps[2].double(), reps.rows.row)
    assert sim.values[1, 2] == pytest.approx(expected, abs=1e-6)


def test_independent_texts_have_nothing_in_common_on_average():
    values, plain = [], []
    for seed in range(20):
        x, y, text = sides(np.full(100, 10), 16, seed, shared=0.0)
        values.append(debiased(x, y, text))
        plain.append(ls.measure("cka_debiased")(x, y))
    assert abs(np.mean(values)) < 0.004
    assert np.mean(plain) > 0.03  # rows of one text taken for texts of their own


def test_the_share_of_what_texts_have_in_common_is_found():
    """Half of the text's variance is shared, and a row's variance is twice a text's: CKA is (1/4)^2."""
    values = [debiased(*sides(np.full(200, 10), 8, seed)) for seed in range(10)]
    assert np.mean(values) == pytest.approx(0.0625, abs=0.004)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=5, max_size=9), st.integers(0, 1000))
def test_invariances_hold_whatever_the_lengths(sizes, seed):
    if 2 * max(sizes) >= sum(sizes):
        return
    x, y, text = sides(np.asarray(sizes), 3, seed)
    value = debiased(x, y, text)
    if np.isnan(value):
        return
    turn, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))
    assert debiased(5 * x @ turn - 40, y, text) == pytest.approx(value, abs=1e-6)
    assert debiased(y, x, text) == pytest.approx(value, abs=1e-9)
    assert value == pytest.approx(least_squares(x, y, text), abs=1e-6)


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ([4, 4, 4], "needs at least 4 texts and there are 3"),
        ([10, 2, 3, 2, 3], "one text has 10 of the 20 rows"),
    ],
)
@pytest.mark.parametrize("width", [2, 60])
def test_too_few_texts_say_so(sizes, reason, width):
    x, y, text = sides(np.asarray(sizes), width)
    with pytest.warns(LayerscopeWarning, match=reason):
        assert np.isnan(debiased(x, y, text))
    sim = ls.compare(kept(x, y, text), measure="cka_debiased")
    assert np.isnan(sim.values).all()
    assert reason in sim.reasons[0, 1]


def test_texts_must_be_one_per_row():
    x, y, text = sides()
    with pytest.raises(InputError, match=r"texts has shape \(3,\); it must name the text of each of the"):
        debiased(x, y, text[:3])
    assert ls.measure("cka")(x, y, texts=text) == ls.measure("cka")(x, y)


@pytest.mark.gpu
@pytest.mark.parametrize("ci", [None, 0.9])
def test_words_on_a_gpu_give_what_their_rows_give(ci, tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("\n".join(" ".join(f"word{k * i % 17}" for k in range(1, 3 + i % 9)) for i in range(60)) + "\n")
    model = random_model("bert", num_hidden_layers=2)
    reps = ls.extract(model, path, pool="words")
    expected = debiased(reps[1].double(), reps[2].double(), reps.rows.row)
    model.network.to("cuda")
    sim = ls.compare(model, task=path, pool="words", measure="cka_debiased", ci=ci)
    assert sim.values[1, 2] == pytest.approx(expected, abs=1e-5)
