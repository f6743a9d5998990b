"""Trials of measures: statistics against loops of their own, and cases whose outcome is known."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.stats import mannwhitneyu, spearmanr

import layerscope as ls
from layerscope.errors import LayerscopeError
from layerscope.registry import MEASURES
from layerscope.similarity.measure_trial import (
    STATISTICS,
    _differences,
    _grouped,
    _outputs,
    auprc,
    conformity,
    layer_conformity,
    layer_correlation,
    spearman,
)
from tests.helpers.data import two_class_task
from tests.helpers.models import shared_classifier

FEW = ["cka", "procrustes_angular", "neuron"]


def reps(rows):
    return ls.Representations.from_arrays(rows if isinstance(rows, list) else [rows])


@pytest.fixture(scope="module")
def groups():
    rng = np.random.default_rng(0)
    kinds = [rng.normal(size=(80, 5)) for _ in range(2)]
    return {n: [reps(k + 0.2 * rng.normal(size=k.shape)) for _ in range(3)] for n, k in zip("ab", kinds, strict=True)}


def test_conformity_is_the_probability_that_ranks_give():
    rng = np.random.default_rng(1)
    within, across = rng.normal(1, 1, 30), rng.normal(0, 1, 40)
    assert conformity(within, across) == pytest.approx(mannwhitneyu(within, across).statistic / (30 * 40))
    assert conformity(np.ones(3), np.ones(4)) == 0  # ties are no conformity
    assert conformity(np.array([2.0, np.nan]), np.array([1.0, np.nan])) == 1
    assert math.isnan(conformity(np.array([np.nan]), across))


def test_auprc_is_the_mean_precision_at_every_pair_of_a_group():
    rng = np.random.default_rng(2)
    within, across = rng.normal(1, 1, 20), rng.normal(0, 1, 35)
    ranked = sorted([(value, 1) for value in within] + [(value, 0) for value in across], reverse=True)
    hits, precisions = 0, []
    for place, (_, same) in enumerate(ranked, 1):
        hits += same
        if same:
            precisions.append(hits / place)
    assert auprc(within, across) == pytest.approx(np.mean(precisions))
    assert auprc(np.array([3.0, 2.0]), np.array([1.0, np.nan])) == 1
    assert math.isnan(auprc(within, np.array([np.nan])))


def test_statistics_of_layers_against_loops():
    rng = np.random.default_rng(3)
    alike = rng.normal(size=(6, 6))
    held, correlations = [], []
    for i in range(6):
        for near in range(6):
            for far in range(6):
                if abs(far - i) > abs(near - i) > 0 and (far - i) * (near - i) > 0:
                    held.append(alike[i, near] >= alike[i, far])
        for side in (range(i + 1, 6), range(i)):
            if len(side) > 1:
                correlations.append(spearmanr([-alike[i, j] for j in side], [abs(i - j) for j in side]).statistic)
    assert layer_conformity(alike) == pytest.approx(np.mean(held))
    assert layer_correlation(alike) == pytest.approx(np.mean(correlations))
    falling = -np.abs(np.subtract.outer(np.arange(6), np.arange(6))).astype(float)
    assert layer_conformity(falling) == layer_correlation(falling) == 1
    falling[0] = np.nan  # a layer without values says nothing, and spoils nothing
    falling[:, 0] = np.nan
    assert layer_conformity(falling) == layer_correlation(falling) == 1
    assert math.isnan(layer_conformity(np.full((3, 3), np.nan)))


def test_rank_correlation_against_scipy():
    rng = np.random.default_rng(4)
    a, b = rng.integers(0, 5, 40).astype(float), rng.normal(size=40)
    assert spearman(a, b) == pytest.approx(spearmanr(a, b).statistic)
    a[3] = np.nan
    assert spearman(a, b) == pytest.approx(spearmanr(np.delete(a, 3), np.delete(b, 3)).statistic)
    assert math.isnan(spearman(np.ones(4), np.arange(4.0)))


def test_answers_are_compared_as_scipy_does():
    rng = np.random.default_rng(5)
    logits = [rng.normal(size=(12, 3)) for _ in range(3)]
    chances = [np.exp(part) / np.exp(part).sum(axis=1, keepdims=True) for part in logits]
    divergence, disagreement = _outputs(logits)
    for i, j in combinations(range(3), 2):
        apart = [jensenshannon(p, q, base=2) ** 2 for p, q in zip(chances[i], chances[j], strict=True)]
        assert divergence[i, j] == divergence[j, i] == pytest.approx(np.mean(apart))
        assert disagreement[i, j] == np.mean(logits[i].argmax(1) != logits[j].argmax(1))
    assert _differences([0.5, 0.8])[0, 1] == pytest.approx(0.3)
    never = np.array([[0.0, -np.inf]])  # a choice that a text does not have
    assert _outputs([never, never])[0][0, 1] == 0


def test_groups_are_averaged_and_asymmetric_measures_count_in_both_directions():
    rng = np.random.default_rng(6)
    alike, group = rng.normal(size=(5, 5)), np.array([0, 0, 1, 1, 1])
    expected = []
    for name in (0, 1):
        inside, outside = np.flatnonzero(group == name), np.flatnonzero(group != name)
        within = np.array([alike[i, j] for i in inside for j in inside if i != j])
        expected.append(conformity(within, np.array([alike[i, j] for i in inside for j in outside])))
    found = _grouped(group)["conformity"](alike, False, np.arange(5))
    assert found == pytest.approx(np.mean(expected))
    assert math.isnan(_grouped(group)["conformity"](alike, False, np.array([0, 2, 3, 4])))  # one of group 0 is left


def test_models_of_one_kind_are_told_from_others_by_every_measure_but_those_that_cannot_see_it(groups):
    trial = ls.measure_trial(groups)
    known = sorted(name for name, entry in MEASURES.items() if entry.needs != "attention")
    assert trial.frame["measure"].unique().tolist() == known
    first = trial.frame[trial.frame["statistic"] == "auprc"].set_index("measure")["value"]
    blind = {name for name, entry in MEASURES.items() if entry.family == "statistic"}  # of each side by itself
    assert (first.drop(blind) == 1).all()
    assert set(trial.frame["statistic"]) == set(STATISTICS["groups"])
    assert (trial.frame["seconds"] > 0).all()
    assert trial.frame["pairs"].isin([15, 30]).all()


def test_groups_of_nothing_are_not_told_apart():
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(80, 5))
    made = [reps(rows + rng.normal(size=rows.shape)) for _ in range(8)]
    trial = ls.measure_trial({"a": made[:4], "b": made[4:]}, measures=FEW)
    conform = trial.frame[trial.frame["statistic"] == "conformity"]
    assert conform["value"].between(0.2, 0.8).all()
    assert (conform["low"] < 0.5).all()
    assert (conform["high"] > 0.5).all()


def test_intervals_leave_out_one_model_at_a_time_and_are_missing_where_that_says_nothing(groups):
    perfect = ls.measure_trial(groups, measures="cka").frame
    assert perfect["value"].tolist() == [1, 1]
    assert perfect[["low", "high"]].isna().all(axis=None)
    assert not ls.measure_trial(groups, measures="cka").findings()[0].sure
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(60, 4))
    noisy = {n: [reps(rows + s * rng.normal(size=rows.shape)) for s in (0.1, 0.5, 1, 2)] for n in "ab"}
    frame = ls.measure_trial(noisy, measures="cka").frame
    assert (frame["low"] <= frame["value"]).all()
    assert (frame["value"] <= frame["high"]).all()
    assert ls.measure_trial(noisy, measures="cka", ci=None).frame["low"].isna().all()


def test_layers_that_drift_are_in_order():
    rng = np.random.default_rng(9)
    models = []
    for _ in range(2):
        layers = [rng.normal(size=(100, 6))]
        for _ in range(4):
            layers.append(layers[-1] + 0.7 * rng.normal(size=(100, 6)))
        models.append(reps(layers))
    frame = ls.measure_trial(models, test="layers", measures=FEW).frame
    assert set(frame["statistic"]) == set(STATISTICS["layers"])
    assert (frame["value"] > 0.8).all()
    assert (frame["models"] == 2).all()
    one = ls.measure_trial(models[:1], test="layers", measures="cka").frame
    values = ls.compare(models[0], measure="cka").values
    assert one["value"].tolist() == pytest.approx([layer_conformity(values), layer_correlation(values)])
    assert one[["low", "high"]].isna().all(axis=None)


def test_accuracy_and_output_of_classifiers():
    task, models = two_class_task(), [shared_classifier(seed=seed) for seed in range(4)]
    settings = {"limit": 24, "max_length": 16, "measures": ["cka", "gulp"]}
    accuracy = ls.measure_trial(models, task, test="accuracy", **settings)
    output = ls.measure_trial(models, task, test="output", **settings)
    assert accuracy.frame["statistic"].tolist() == ["accuracy_spearman"] * 2
    assert output.frame["statistic"].tolist() == ["divergence_spearman", "disagreement_spearman"] * 2
    scores = [float(ls.evaluate(m, task, limit=24, max_length=16)) for m in models]
    states = [ls.extract(m, task, layers=[m.depth], limit=24, max_length=16) for m in models]
    pairs = list(combinations(range(4), 2))
    alike = [ls.measure("cka")(states[i][states[i].layers[0]], states[j][states[j].layers[0]]) for i, j in pairs]
    expected = spearman(-np.array(alike), np.array([abs(scores[i] - scores[j]) for i, j in pairs]))
    assert accuracy.frame["value"][0] == pytest.approx(expected, nan_ok=True)
    assert accuracy.provenance["settings"]["test"] == "accuracy"
    assert len(accuracy.provenance["models"]) == 4


def test_a_measure_that_cannot_be_computed_is_nan_with_its_reason():
    rng = np.random.default_rng(10)
    wide = {name: [reps(rng.normal(size=(30, width))) for _ in range(2)] for name, width in (("a", 4), ("b", 5))}
    frame = ls.measure_trial(wide, measures=["cosine", "cka"]).frame
    own = frame[frame["measure"] == "cosine"]
    assert own["value"].isna().all()
    assert own["reason"].str.contains("width").all()
    assert frame[frame["measure"] == "cka"]["value"].notna().all()


def test_the_result_is_drawn_and_says_what_came_out(groups, tmp_path):
    trial = ls.measure_trial(groups, measures=FEW)
    bars, table = trial.figures()
    assert set(bars.names) == set(FEW)
    assert list(trial.ranking["value"]) == sorted(trial.ranking["value"], reverse=True)
    assert "does best in the test groups" in str(trial.findings()[0])
    trial.save(tmp_path / "trial.parquet")
    assert "MeasureTrial" in repr(trial)
    assert len(table.table)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"models": [1, 2, 3]}, "Say which test is meant"),
        ({"models": {"a": [], "b": []}, "test": "layers"}, "takes a list of models"),
        ({"models": [], "test": "groups"}, "takes a mapping"),
        ({"models": {"a": [1, 2]}}, "two groups or more"),
        ({"models": {"a": [1, 2], "b": [1]}}, "b has 1"),
        ({"models": [1, 2], "test": "accuracy"}, "needs 3 models"),
        ({"models": [], "test": "layers"}, "models is empty"),
        ({"models": [1, 2, 3], "test": "rank"}, "rank"),
    ],
)
def test_what_cannot_be_tested_is_a_sentence(arguments, reason):
    with pytest.raises(LayerscopeError, match=reason):
        ls.measure_trial(**arguments)


def test_options_that_do_not_fit_are_a_sentence(groups):
    with pytest.raises(LayerscopeError, match="one or the other"):
        ls.measure_trial(groups, two_class_task())
    with pytest.raises(LayerscopeError, match="compares attention"):
        ls.measure_trial(groups, measures=["attention_norm"])
    with pytest.raises(LayerscopeError, match="measures is empty"):
        ls.measure_trial(groups, measures=[])
    with pytest.raises(LayerscopeError, match="asks the models themselves"):
        ls.measure_trial(groups["a"], test="output")
