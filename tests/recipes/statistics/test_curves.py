"""Statistics of curves: correlations with probes whose sign counts, with intervals over texts."""

from types import SimpleNamespace

import numpy as np
import pandas
import pytest

import layerscope as ls
from layerscope.evaluation.evaluator import groups_of
from layerscope.probing.robustness import drawn
from layerscope.registry import STATISTICS
from layerscope.resampling import jackknifed


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
    said = STATISTICS["goes_with_probes"](values, "nu", "probes", sign=-1, rows="train")
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
    assert said.note == f"5 layers; R2 = {said.value**2:.3g}"
    assert said.n == 5
    assert STATISTICS["goes_with_probes"](values, "nu", "probes").value == -said.value


def test_one_measure_less_another_with_both_measured_again(values, reps):
    said = STATISTICS["goes_with_probes"](values, "nu", "probes", sign=-1, rows="train", over="rank", over_sign=-1)
    scores, train = values["probes"], reps[0]

    def gap(nu, rank, scored):
        return correlation(rank, scored) - correlation(nu, scored)

    nu, rank = values["nu"].values, values["rank"].values
    np.testing.assert_allclose(said.value, gap(nu, rank, scores.values))
    group = groups_of(train.rows.row)
    parts = [train.select(rows=group != g) for g in range(20)]
    again = [(ls.specialty(part, null=0).values, ls.numerical_rank(part).values) for part in parts]
    learned = jackknifed(np.asarray([gap(*curves, scores.values) for curves in again]))
    scored = jackknifed(np.asarray([gap(nu, rank, part) for part in scores.left_out]))
    np.testing.assert_allclose(said.low, max(said.value - np.hypot(learned, scored), -2))
    assert said.note == "5 layers"


def test_what_takes_long_stays_as_it_is_and_the_note_says_so(values):
    cca = ls.Curve("label_cca", ["m"] * 6, list(range(6)), np.arange(6.0))
    given = {**values, "cca": cca}
    said = STATISTICS["goes_with_probes"](given, "cca", "probes", over="nu", over_sign=-1, rows="train")
    assert said.note == "5 layers; label_cca is not resampled"
    assert said.low < said.value < said.high


def test_a_curve_that_does_not_vary_is_not_testable(values):
    flat = ls.Curve("nu", ["m"] * 6, list(range(6)), np.ones(6))
    assert "does not vary" in STATISTICS["goes_with_probes"]({**values, "nu": flat}, "nu", "probes").reason


def test_rougher_is_the_difference_of_zeta(values, reps):
    train, other = reps[0], ls.Representations.from_arrays([reps[0][k] ** 2 for k in range(6)], reps[0].labels)
    said = STATISTICS["rougher"]({"a": train, "b": other}, "a", "b")
    expected = ls.smoothness(ls.specialty(train, null=0)) - ls.smoothness(ls.specialty(other, null=0))
    np.testing.assert_allclose(said.value, expected)
    assert said.low < said.value < said.high


@pytest.fixture(scope="module")
def robust(values):
    """Few rows and fewer, with what was drawn."""
    return {**values, "i": ls.scarcity_study(values["train"], [70, 60, 40])}


def test_a_hard_setting_beside_the_easy_one(robust, reps):
    said = STATISTICS["still_agrees"](robust, "i", "probes", setting=2, rows="train")
    train, scores, frame = reps[0], robust["probes"], robust["i"].frame
    nu = {name: part["nu"].to_numpy() for name, part in frame.groupby("setting")}

    def gap(easy, hard, scored):
        return correlation(easy, scored) - correlation(hard, scored)

    np.testing.assert_allclose(said.value, gap(nu["N = 70"], nu["N = 40"], scores.values))
    assert said.note.startswith("N = 40: ")
    scored = jackknifed(np.asarray([gap(nu["N = 70"], nu["N = 40"], part) for part in scores.left_out]))
    group, learned = groups_of(train.rows.row), []
    for g in range(20):
        left = []
        for size in (70, 40):
            drawn_rows = drawn(train, [size // 2, size // 2], 0)
            out = np.isin(drawn_rows.rows.row, train.rows.row[group == g])
            left.append(ls.specialty(drawn_rows.select(rows=~out), null=0).values)
        learned.append(gap(*left, scores.values))
    half = np.hypot(scored, jackknifed(np.asarray(learned)))
    np.testing.assert_allclose([said.low, said.high], [said.value - half, said.value + half])
    alone = STATISTICS["still_agrees"](robust, "i", "probes", setting=2)
    np.testing.assert_allclose(alone.high - alone.value, scored)
    assert STATISTICS["still_agrees"](robust, "i", "probes", setting=3).reason == "there are only 3 settings"


def test_what_does_not_go_with_probes_has_nothing_to_lose(values):
    """nu that falls where scores fall, in every setting: no correlation is lost, and nothing is shown."""
    scores = values["probes"].values
    frame = pandas.concat(
        pandas.DataFrame({"setting": name, "n": 40, "layer": range(6), "nu": scores}) for name in ("p = 0.5", "p = 0.1")
    )
    said = STATISTICS["still_agrees"]({**values, "i": SimpleNamespace(frame=frame)}, "i", "probes", setting=1)
    assert said.reason.startswith("nu does not surely go with probes at p = 0.5 already (-1, ")


def test_nu_towards_the_top(values, reps):
    said = STATISTICS["rises"](values, "nu", rows="train")
    layers, train = np.arange(6), reps[0]
    np.testing.assert_allclose(said.value, correlation(values["nu"].values, layers))
    group = groups_of(train.rows.row)
    others = [ls.specialty(train.select(rows=group != g), null=0).values for g in range(20)]
    np.testing.assert_allclose(said.high - said.value, jackknifed(np.asarray([correlation(o, layers) for o in others])))
