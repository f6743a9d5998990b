"""Statistics of curves: correlations with probes whose sign counts, with intervals over texts."""

import numpy as np
import pandas
import pytest

import layerscope as ls
from layerscope.data.resampling import jackknifed
from layerscope.evaluation.leaving_out import groups_of
from layerscope.recipes.statistics import statistic


@pytest.fixture(scope="module")
def reps():
    """Six layers; the classes lie further apart from layer to layer."""
    generator, labels = np.random.default_rng(0), np.arange(120) % 2
    layers = [generator.normal(size=(120, 4)) + 0.35 * k * labels[:, None] for k in range(6)]
    whole = ls.Representations.from_arrays(layers, labels)
    return whole.select(rows=slice(80)), whole.select(rows=slice(80, 120))


@pytest.fixture(scope="module")
def values(reps):
    train, validation = reps
    probes = ls.probe(train, validation, ci=None)
    return {"train": train, "nu": ls.specialty(train, null=0), "probes": probes, "rank": ls.numerical_rank(train)}


def correlation(x, y):
    return float(np.corrcoef(x[1:], y[1:])[0, 1])


def test_probes_know_their_scores_without_each_group(values):
    probes = values["probes"]
    assert probes.left_out.shape == (20, 6)
    np.testing.assert_allclose(probes.left_out.mean(axis=0), probes.values, atol=1e-9)  # accuracy is a mean


def test_nu_goes_with_probes_with_its_sign(values, reps):
    said = statistic("goes_with_probes")(values, "nu", "probes", sign=-1, rows="train")
    nu, scores = values["nu"].values, values["probes"]
    np.testing.assert_allclose(said.value, -correlation(nu, scores.values))
    scored = np.asarray([-correlation(nu, part) for part in scores.left_out])
    train = reps[0]
    group = groups_of(train.rows.row)
    others = [ls.specialty(train.select(rows=group != g), null=0).values for g in range(20)]
    learned = np.asarray([-correlation(each, scores.values) for each in others])
    half = np.hypot(jackknifed(scored), jackknifed(learned))
    np.testing.assert_allclose(said.low, said.value - half)
    assert said.high == min(said.value + half, 1)
    assert statistic("goes_with_probes")(values, "nu", "probes").value == -said.value


def test_one_measure_less_another(values):
    said = statistic("goes_with_probes")(values, "nu", "probes", sign=-1, over="rank", over_sign=-1)
    scores = values["probes"].values
    expected = correlation(values["rank"].values, scores) - correlation(values["nu"].values, scores)
    np.testing.assert_allclose(said.value, expected)


def test_a_curve_that_does_not_vary_is_not_testable(values):
    flat = ls.Curve("nu", ["m"] * 6, list(range(6)), np.ones(6))
    assert "does not vary" in statistic("goes_with_probes")({**values, "nu": flat}, "nu", "probes").reason


def test_rougher_is_the_difference_of_zeta(values, reps):
    train, other = reps[0], ls.Representations.from_arrays([reps[0][k] ** 2 for k in range(6)], reps[0].labels)
    said = statistic("rougher")({"a": train, "b": other}, "a", "b")
    expected = ls.smoothness(ls.specialty(train, null=0)) - ls.smoothness(ls.specialty(other, null=0))
    np.testing.assert_allclose(said.value, expected)
    assert said.low < said.value < said.high


def test_a_hard_setting_beside_the_easy_one(values):
    generator = np.random.default_rng(1)
    nu = {name: generator.normal(size=6) for name in ("p = 0.5", "p = 0.25", "p = 0.1")}
    frame = pandas.concat(
        pandas.DataFrame({"setting": name, "n": 40, "layer": range(6), "nu": each}) for name, each in nu.items()
    )
    given = {**values, "i": type("R", (), {"frame": frame})}
    said = statistic("still_agrees")(given, "i", "probes", setting=2)
    scores = values["probes"].values
    np.testing.assert_allclose(said.value, correlation(nu["p = 0.5"], scores) - correlation(nu["p = 0.1"], scores))
    assert said.note.startswith("p = 0.1: ")
    assert statistic("still_agrees")(given, "i", "probes", setting=3).reason == "there are only 3 settings"
