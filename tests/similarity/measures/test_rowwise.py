"""`cosine` and `angular`: by themselves, and over all pairs of layers however the rows arrive."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import layerscope as ls
from layerscope.errors import InputError, LayerscopeWarning
from layerscope.registry import MEASURES
from tests.helpers.models import random_model
from tests.similarity import reference
from tests.similarity.pairs import ROWWISE

NAMES = sorted(ROWWISE)


def data(n=60, d=7, seed=0, noise=1.0):
    draw = np.random.default_rng(seed).normal
    x = draw(size=(n, d)) * np.linspace(0.5, 3, d) + 0.3
    return x, x + noise * draw(size=(n, d))


@pytest.mark.parametrize("noise", [10.0, 1.0, 1e-2, 1e-4, 1e-6, 1e-9])
@pytest.mark.parametrize("name", NAMES)
def test_agreement_with_an_independent_implementation(name, noise):
    x, y = data(noise=noise)
    assert ls.measure(name)(x, y) == pytest.approx(getattr(reference, name)(x, y), rel=1e-6, abs=1e-15)


def test_tiny_angles_keep_their_digits_where_float32_cosines_are_all_1():
    generator = np.random.default_rng(1)
    x = generator.normal(size=(50, 300)).astype(np.float32)
    y = (x + 1e-5 * generator.normal(size=x.shape)).astype(np.float32)
    expected = reference.angular(x.astype(float), y.astype(float))
    assert 1e-6 < expected < 1e-5
    assert ls.measure("angular")(x, y) == pytest.approx(expected, rel=1e-6)
    assert ls.compare([x, y], measure="angular").values[0, 1] == pytest.approx(expected, rel=1e-6)
    assert ls.compare([x, -y], measure="angular").values[0, 1] == pytest.approx(1 - expected, abs=1e-12)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), d=st.integers(1, 12))
@pytest.mark.parametrize("name", NAMES)
def test_range_symmetry_and_invariances(name, seed, d):
    measure, generator = ls.measure(name), np.random.default_rng(seed)
    x, y = data(20, d, seed)
    value = measure(x, y)
    assert measure.low <= value <= measure.high
    assert measure(y, x) == pytest.approx(value, abs=1e-12)
    factors = generator.uniform(1e-3, 1e3, size=(20, 1))
    assert measure(factors * x, y) == pytest.approx(value, abs=1e-12)
    rotation = np.linalg.qr(generator.normal(size=(d, d)))[0]
    assert measure(x @ rotation, y @ rotation) == pytest.approx(value, abs=1e-10)
    order = generator.permutation(20)
    assert measure(x[order], y[order]) == pytest.approx(value, abs=1e-12)


def test_the_ends_of_the_range():
    x, _ = data()
    assert ls.measure("angular")(x, x) == 0
    assert ls.measure("angular")(x, 3 * x) == pytest.approx(0, abs=1e-15)
    assert ls.measure("angular")(x, -x) == 1
    assert ls.measure("cosine")(x, 2.5 * x) == pytest.approx(1, abs=1e-14)
    assert ls.measure("cosine")(x, -x) == pytest.approx(-1, abs=1e-14)
    one, other = np.eye(4)[:2], np.eye(4)[2:]
    assert ls.measure("cosine")(one, other) == 0
    assert ls.measure("angular")(one, other) == 0.5
    assert ls.measure("angular")(one[:1], other[:1]) == 0.5  # one row is enough, unlike for what needs variation


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [1e300, 1e-300])
def test_no_row_is_too_large_or_too_small(name, scale):
    x, y = data()
    scaled = x.copy()
    scaled[::2] *= scale
    assert ls.measure(name)(scaled, y) == pytest.approx(ls.measure(name)(x, y), abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", NAMES)
def test_any_float_type(name, dtype):
    x, y = (torch.from_numpy(m) for m in data())
    assert ls.measure(name)(x.to(dtype), y.to(dtype)) == pytest.approx(ls.measure(name)(x, y), abs=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_zeros_have_no_direction(name):
    x, y = data()
    x[[3, 5]] = 0
    y[5] = 0
    with pytest.warns(
        LayerscopeWarning, match=f"{name} is undefined: 2 of 60 rows are 0 in one of the layers, so they"
    ):
        assert math.isnan(ls.measure(name)(x, y))
    for extra in ({}, {"ci": 0.9}, {"baseline": 20}):
        found = ls.compare([x, y, y + 1], measure=name, **extra)
        assert found.reasons[0, 1] == "2 of 60 rows are 0 in one of the layers, so they have no direction"
        assert found.reasons[1, 2] == "1 of 60 rows are 0 in one of the layers, so they have no direction"
        assert np.isnan(found.values).sum() == 8
        assert found.values[2, 2] == pytest.approx(MEASURES[name].high if name == "cosine" else 0)


@pytest.mark.parametrize("name", NAMES)
def test_layers_of_different_widths(name):
    narrow, wide = data(d=5), data(d=7, seed=1)
    with pytest.raises(InputError, match=f"{name} compares matrices of one width, and the arguments have 5 and 7 col"):
        ls.measure(name)(narrow[0], wide[0])
    with pytest.raises(InputError, match=f"{name} compares layers of one width, and these have 5 columns on one side "):
        ls.compare([*narrow], [*wide], measure=["cka", name])
    sets = [ls.Representations.from_arrays(layers) for layers in (narrow, wide)]
    found = ls.compare(sets, measure=name)
    for k, layers in enumerate((narrow, wide)):
        expected = getattr(reference, name)(*(m.astype(np.float32).astype(float) for m in layers))
        assert found.values[2 * k, 2 * k + 1] == pytest.approx(expected, abs=1e-9)
    assert np.isnan(found.values).sum() == 8
    assert found.reasons[0, 2].startswith("the layers have 5 and 7 columns, and only rows of one width have an angle")


@pytest.mark.parametrize("name", NAMES)
def test_no_value_depends_on_the_layers_or_measures_beside_it(name):
    layers = [*data(), *data(seed=1, noise=1e-3), *data(seed=2, noise=1e-7)]
    whole = ls.compare(layers, measure=[*NAMES, "cka", "mutual_knn"])[name].values
    for i in range(6):
        for j in range(6):
            pair = ls.compare([layers[i]], [layers[j]], measure=name).values[0, 0]
            assert whole[i, j] == pytest.approx(pair, abs=1e-15, rel=1e-10)


@pytest.mark.parametrize("pool", ["cls", "mean", "last", "words", "tokens"])
def test_models_stream_and_give_what_their_rows_give(pool, task):
    two = [random_model("bert"), random_model("bert", seed=1)]
    streamed = ls.compare(two, measure=NAMES, task=task, pool=pool)
    kept = [ls.extract(each, task, pool=pool, store=False) for each in two]
    stored = ls.compare(kept, measure=NAMES)
    for name in NAMES:
        np.testing.assert_allclose(streamed[name].values, stored[name].values, atol=1e-6)
        assert streamed[name].n == len(kept[0])
        for i, j in ((0, 1), (2, 3), (1, 1)):
            expected = getattr(reference, name)(kept[0][i].double().numpy(), kept[1][j].double().numpy())
            assert streamed[name].values[i, len(kept[0].layers) + j] == pytest.approx(expected, abs=1e-6)


def test_one_pass_serves_sums_and_moments(task, monkeypatch):
    from layerscope.extraction.stream import Streamer

    passes = []
    feed = Streamer.feed
    monkeypatch.setattr(Streamer, "feed", lambda self, *given: passes.append(1) or feed(self, *given))
    for extra in ({}, {"ci": 0.9}):
        passes.clear()
        together = ls.compare(random_model("bert"), measure=["cka_debiased", *NAMES], task=task, pool="mean", **extra)
        assert len(passes) == 1
        alone = ls.compare(random_model("bert"), measure="angular", task=task, pool="mean", **extra)
        np.testing.assert_allclose(together["angular"].values, alone.values, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_intervals_over_texts(name, task):
    """A delete-a-group jackknife, by hand from the rows; streamed and stored alike."""
    from scipy.stats import t

    from layerscope.similarity.jackknife import Grouping

    opened = random_model("bert")
    streamed = ls.compare(opened, measure=name, task=task, pool="tokens", ci=0.9)
    reps = ls.extract(opened, task, pool="tokens", store=False)
    stored = ls.compare(reps, measure=name, ci=0.9)
    group = Grouping(reps.rows.row, 0).groups_of(reps.rows.row)
    x, y = reps[0].double().numpy(), reps[2].double().numpy()
    left = np.array([getattr(reference, name)(x[group != g], y[group != g]) for g in range(20)])
    half = t.ppf(0.95, 19) * np.sqrt(19 / 20 * ((left - left.mean()) ** 2).sum())
    value = getattr(reference, name)(x, y)
    for found in (streamed, stored):
        assert found.low[0, 2] == pytest.approx(max(value - half, MEASURES[name].low), abs=1e-6)
        assert found.high[0, 2] == pytest.approx(min(value + half, MEASURES[name].high), abs=1e-6)
        np.testing.assert_allclose(found.left_out[:, 0, 2], left, atol=1e-6)


def test_chance_knows_that_a_distance_is_low_where_layers_are_alike(tmp_path):
    draw = np.random.default_rng(3).normal
    base = draw(size=(80, 12))
    layers = [base, base + 0.5 * draw(size=base.shape), draw(size=base.shape)]
    near = ls.compare(layers, measure=NAMES, baseline=40)
    for name in NAMES:
        found = near[name]
        assert found.p_values[0, 1] == pytest.approx(1 / 41)
        assert found.p_values[0, 2] > 0.05
        assert found.calibrated[0, 1] > 0.5
        assert found.calibrated[0, 2] == 0
        assert (found.best.row, found.best.column) == ("0", "1")
        assert found.best.value == pytest.approx(found.values[0, 1])
        assert found.best.p_value == pytest.approx(1 / 41)
        found.save(tmp_path / f"{name}.parquet")
        assert ls.Similarity.load(tmp_path / f"{name}.parquet").distance == found.distance == (name == "angular")
    assert "The lowest angular is " in str(near["angular"].findings()[0])
    assert "The highest cosine is " in str(near["cosine"].findings()[0])
    assert near["angular"].baseline[0, 1] == pytest.approx(0.5, abs=0.05)
    heat, above = near["angular"].figures()
    assert heat.title == "Distance of layers: angular"
    assert "lower is more alike" in heat.reading
    assert "A dark square" in heat.reading
    assert heat.scale[0] == 0
    assert 0.5 <= heat.scale[1] < 0.6
    assert r"\max\left(0, \frac{\tau - s}{\tau}\right)$ with $\tau$ the 5th" in above.shows


def test_blocks_of_a_distance_are_those_of_the_similarity():
    draw = np.random.default_rng(0).normal
    early, late = draw(size=(100, 8)), draw(size=(100, 8))
    layers = [(early if k < 4 else late) + 0.1 * draw(size=(100, 8)) for k in range(8)]
    by_angle, by_cosine = (ls.layer_blocks(ls.compare(layers, measure=name, ci=0.95)) for name in ("angular", "cosine"))
    for split in (by_angle, by_cosine):
        assert split.boundaries == ["4"]
        assert split.low < split.strength < split.high
        assert split.strength > 0.3
        assert split.p_value < 0.05


def test_tiny_memory_and_long_portions_change_nothing(monkeypatch):
    layers = [*data(), *data(seed=1, noise=1e-6)]
    expected = ls.compare(layers, measure=NAMES)
    monkeypatch.setattr("layerscope.similarity.row_means._AT_ONCE", 50)
    monkeypatch.setattr("layerscope.similarity.measures.rowwise._AT_ONCE", 20)
    monkeypatch.setattr("layerscope.similarity.layer_sources._SMALL_BLOCK", 7)
    for name, found in ls.compare(layers, measure=NAMES).items():
        np.testing.assert_allclose(found.values, expected[name].values, rtol=1e-10, atol=1e-15)
