"""Intervals cover the truth as often as they say; the baseline shows what chance gives."""

import warnings

import numpy as np
import pytest

import layerscope as ls
from layerscope.errors import InputError, LayerscopeWarning
from layerscope.extraction.row_store import Rows
from layerscope.similarity.execution_plan import Groups, Plan
from layerscope.similarity.jackknife import Grouping, _from_rows
from layerscope.similarity.layer_sources import Stored
from layerscope.store import Store
from tests.helpers.models import random_network, word_tokenizer


def pair(n, seed, words=1):
    """Two linear views of one hidden state; with `words`, that many rows of a text share it."""
    generator = np.random.default_rng(seed)
    mix = np.random.default_rng(99).normal(size=(2, 3, 4))
    hidden = np.repeat(generator.normal(size=(n // words, 3)), words, axis=0)
    x, y = (hidden @ m + 0.7 * generator.normal(size=(n, 4)) for m in mix)
    rows = Rows("t", "all", "f", np.repeat(np.arange(n // words), words), unit=np.tile(np.arange(words), n // words))
    return [ls.Representations.from_arrays([m], rows=rows) for m in (x, y)]


@pytest.mark.parametrize(("name", "words"), [("cka", 1), ("cka_debiased", 4), ("neuron", 1)])
def test_intervals_cover_the_truth(name, words):
    truth = ls.compare(*pair(60000, 1234, words), measure=name).values[0, 0]
    hits, widths = 0, []
    for seed in range(60):
        sim = ls.compare(*pair(400, seed, words), measure=name, ci=0.9)
        assert sim.low[0, 0] <= sim.values[0, 0] <= sim.high[0, 0]
        hits += sim.low[0, 0] <= truth <= sim.high[0, 0]
        widths.append(sim.high[0, 0] - sim.low[0, 0])
    assert 0.78 <= hits / 60 <= 1.0
    assert 0.01 < np.mean(widths) < 0.4


def test_rows_of_one_text_stay_together():
    """Repeating each row four times as the words of a text must not make the interval narrower."""
    x, y = pair(200, 0)
    once = ls.compare(x, y, ci=0.95)
    rows = Rows("t", "all", "f", np.repeat(np.arange(200), 4), unit=np.tile(np.arange(4), 200))
    four = [ls.Representations.from_arrays([np.repeat(r[0].numpy(), 4, axis=0)], rows=rows) for r in (x, y)]
    repeated = ls.compare(*four, ci=0.95)
    assert repeated.high - repeated.low == pytest.approx(once.high - once.low, rel=1e-3)


def test_the_baseline_is_what_independent_rows_give():
    generator = np.random.default_rng(0)
    x, y = (ls.Representations.from_arrays([generator.normal(size=(60, 80))]) for _ in range(2))
    found = ls.compare(x, y, measure=["cka", "cka_debiased"], baseline=True)
    assert found["cka"].values[0, 0] == pytest.approx(found["cka"].baseline[0, 0], abs=0.05)
    assert found["cka"].baseline[0, 0] > 0.5
    assert abs(found["cka_debiased"].baseline[0, 0]) < 0.1
    same = ls.compare(x, baseline=True)
    assert same.values[0, 0] == pytest.approx(1.0)
    assert same.baseline[0, 0] < 0.8


def test_models_have_intervals_too(tmp_path):
    path = tmp_path / "c.txt"
    path.write_text("\n".join(f"the file {i} is a list of {i % 7} value s" for i in range(60)) + "\n")
    a, b = (ls.load(random_network("bert", "encoder", seed=s), tokenizer=word_tokenizer()) for s in (0, 1))
    sim = ls.compare(a, b, task=path, pool="words", ci=0.95, baseline=True, limit=50)
    assert sim.low.shape == sim.baseline.shape == (5, 5)
    assert set(sim.frame) >= {"low", "high", "baseline"}
    again = ls.Similarity.load(sim.save(tmp_path / "sim.parquet"))
    np.testing.assert_array_equal(again.low, sim.low)
    plain = ls.compare(a, b, task=path, pool="words", limit=50)
    np.testing.assert_allclose(sim.values, plain.values, atol=1e-5)


def test_the_values_without_each_group_are_kept(tmp_path):
    """They are the values of the rows that remain, and the interval is made of them."""
    x, y = pair(400, 3, 4)
    layers = [ls.Representations.from_arrays([r[0], r[0] ** 2], rows=r.rows) for r in (x, y)]
    sim = ls.compare(*layers, ci=0.9, seed=5)
    assert sim.left_out.shape == (20, 2, 2)
    group = Grouping(x.rows.row, 5).groups_of(x.rows.row)
    for g in (0, 7):
        rest = ls.compare(*(r.select(rows=group != g) for r in layers))
        np.testing.assert_allclose(sim.left_out[g], rest.values, atol=1e-6)
    spread = np.sqrt(19 / 20 * ((sim.left_out - sim.left_out.mean(axis=0)) ** 2).sum(axis=0))
    np.testing.assert_allclose(sim.high, np.minimum(sim.values + 1.7291 * spread, 1), rtol=1e-4)
    again = ls.Similarity.load(sim.save(tmp_path / "sim.parquet"))
    np.testing.assert_array_equal(again.left_out, sim.left_out)
    plain = ls.compare(*layers)
    assert plain.left_out is None
    assert ls.Similarity.load(plain.save(tmp_path / "plain.parquet")).left_out is None


@pytest.mark.filterwarnings("ignore:.*the bias is larger than the half-width")
@pytest.mark.parametrize("words", [1, 4])
def test_moments_of_groups_give_the_intervals_that_rows_give(words):
    names = ["cka", "cka_debiased", "svcca", "mixed"]
    x, y = (ls.Representations.from_arrays([r[0], r[0] ** 2], rows=r.rows) for r in pair(400, 3, words))
    by_group = ls.compare(x, y, measure=names, ci=0.9)
    by_tiles = ls.compare(x, y, measure=names, ci=0.9, memory=3e-6)  # every pair of layers by itself
    rows = Stored(Groups(x, y), None)
    by_rows = _from_rows(Plan(tuple(map(ls.measure, names)), {}), rows, Grouping(rows.texts, 0), 0.9)
    for name in names:
        for part in ("values", "low", "high", "debiased"):
            for other in (by_tiles, by_rows):
                assert getattr(by_group[name], part) == pytest.approx(getattr(other[name], part), abs=1e-5)


def test_models_stream_their_intervals_and_store_nothing(tmp_path, home):
    path = tmp_path / "c.txt"
    path.write_text("\n".join(f"the file {i} is a list of {i % 7} value s" for i in range(60)) + "\n")
    model = ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer())
    streamed = ls.compare(model, task=path, pool="words", ci=0.95)
    assert not list(Store().entries())
    stored = ls.compare(ls.extract(model, path, pool="words"), ci=0.95)
    for part in ("values", "low", "high"):
        np.testing.assert_allclose(getattr(streamed, part), getattr(stored, part), atol=1e-5)


def test_an_interval_without_a_value_says_why(tmp_path):
    """42 rows of 40 columns have canonical correlations; without two or three of the rows they are all 1."""
    draw = np.random.default_rng(0).normal
    reps = ls.Representations.from_arrays([draw(size=(42, 40)), draw(size=(42, 3))])
    with pytest.warns(LayerscopeWarning, match="1 for lack of rows"):
        sim = ls.compare(reps, measure="cca", ci=0.9)
    assert not np.isnan(sim.values).any()
    undefined = np.isnan(sim.low) | np.isnan(sim.high)
    assert undefined.tolist() == [[True, True], [True, False]]
    assert set(sim.reasons) == {(0, 0), (0, 1), (1, 0)}
    assert sim.reasons[0, 1] == (
        "the interval is undefined: without one group of texts a side of rank 38 with 39 rows makes every correlation "
        "1, whatever the data; use more rows"
    )
    for frame in (sim.frame, ls.Similarity.load(sim.save(tmp_path / "cca.parquet")).frame):
        assert ((frame["reason"] != "") == frame["low"].isna()).all()


def flat(n, width, seed, shared=1.0):
    """Two sides with flat spectra that share half of their variance; population values are known."""
    generator = np.random.default_rng(seed)
    hidden = generator.normal(size=(n, width))
    x, y = (shared * hidden + generator.normal(size=(n, width)) for _ in range(2))
    return [ls.Representations.from_arrays([side]) for side in (x, y)]


def test_the_bias_is_told_and_warned_of(tmp_path):
    """d = 64, n = 300: CKA is far above its population value of 1/4, and the jackknife knows by how much."""
    with pytest.warns(
        LayerscopeWarning, match=r"cka: in 1 of 1 pairs .* bias is larger .* cka_debiased has no such bias"
    ):
        sim = ls.compare(*flat(300, 64, 0), ci=0.95)
    assert sim.low[0, 0] > 0.25
    np.testing.assert_allclose(sim.bias, 19 * (sim.left_out.mean(axis=0) - sim.values))
    assert sim.debiased[0, 0] == pytest.approx(ls.measure("cka_debiased")(*(r[0] for r in flat(300, 64, 0))), abs=1e-9)
    assert sim.frame["debiased"][0] == sim.debiased[0, 0]
    again = ls.Similarity.load(sim.save(tmp_path / "sim.parquet"))
    np.testing.assert_array_equal(again.bias, sim.bias)
    better = ls.compare(*flat(300, 64, 0), measure="cka_debiased", ci=0.95)
    assert better.low[0, 0] < 0.25 < better.high[0, 0]
    assert abs(better.bias[0, 0]) < 0.01
    assert ls.compare(*flat(300, 64, 0)).debiased is None
    with pytest.warns(LayerscopeWarning, match="procrustes: .* more texts make it smaller"):
        other = ls.compare(*flat(300, 32, 0), measure="procrustes", ci=0.95)
    np.testing.assert_allclose(other.debiased, other.values - other.bias)
    assert other.debiased[0, 0] == pytest.approx(0.5, abs=0.02)


@pytest.mark.slow
def test_intervals_of_debiased_cka_cover_the_truth_on_flat_spectra():
    hits = np.zeros(2)
    for seed in range(60):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LayerscopeWarning)
            both = ls.compare(*flat(200, 64, seed), measure=["cka", "cka_debiased"], ci=0.95)
        hits += [sim.low[0, 0] <= 0.25 <= sim.high[0, 0] for sim in both.values()]
    assert hits[0] == 0
    assert hits[1] / 60 >= 0.88


def test_mistakes_are_sentences():
    x, y = pair(200, 0)
    with pytest.raises(InputError, match="ci is 95"):
        ls.compare(x, y, ci=95)
    with pytest.raises(InputError, match="at least 40 texts"):
        ls.compare(x.select(rows=slice(30)), y.select(rows=slice(30)), ci=0.9)
