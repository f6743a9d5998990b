"""`ls.layer_scores`: several scores of the same rows, with intervals and permuted labels."""

import numpy as np
import pytest

import layerscope as ls
from layerscope.errors import InputError, LayerscopeWarning
from layerscope.extraction.row_store import Rows
from layerscope.registry import LAYER_SCORES
from tests.helpers.data import three_class_frame, two_class_task
from tests.helpers.models import random_model


def test_every_score_finds_the_planted_layer(planted, tmp_path):
    result = ls.layer_scores(planted, list(LAYER_SCORES))
    assert {curve.best for curve in result.curves.values()} == {2}
    assert all(curve.p_best == pytest.approx(1 / 21) for curve in result.curves.values())
    assert list(result.frame) == ["score", "layer", "value", "low", "high", "wins", "null", "p"]
    assert len(result.frame) == 4 * len(LAYER_SCORES)
    frame = result.frame.set_index(["score", "layer"])
    assert (frame["low"] <= frame["value"]).all()
    assert frame.loc[("press", 2), "wins"] == 1
    assert result["press"].ties == [2]
    assert abs(frame.loc["press", "null"]).max() < 0.01
    assert repr(result).startswith("LayerScores(best layers: cka_debiased 2, hscore 2")
    assert any(
        str(finding) == "press was measured with each text left out in turn, exactly." for finding in result.findings()
    )
    assert len(result.figures()) == len(LAYER_SCORES)
    assert result.save(tmp_path / "scores.parquet").is_file()
    with pytest.raises(InputError, match="'nuu' was not measured; there are cka_debiased"):
        result["nuu"]


def test_nu_is_that_of_specialty(planted):
    nu, curve = ls.layer_scores(planted, ["nu"], null=30)["nu"], ls.specialty(planted, ci=0.95, null=30)
    for part in ("values", "low", "high", "wins", "null", "p", "permuted", "draws"):
        np.testing.assert_allclose(getattr(nu, part), getattr(curve, part))
    assert [str(f) for f in nu.findings()] == [str(f) for f in curve.findings()[:2]]  # PRESS's follow


def test_rows_of_a_text_may_lie_anywhere():
    generator = np.random.default_rng(0)
    text = np.repeat(np.arange(40), 3)
    labels = text % 2
    x = generator.normal(size=(40, 4))[text] + 0.4 * generator.normal(size=(120, 4)) + labels[:, None]
    order = generator.permutation(120)
    results = []
    for at in (np.arange(120), order):
        rows = Rows("t", "train", "", text[at], None, np.arange(120)[at], "word")
        reps = ls.Representations.from_arrays([x[at], 2 * x[at] ** 3], labels[at], rows=rows)
        results.append(ls.layer_scores(reps, ["press", "knn", "cka_debiased"], null=0).frame)
    np.testing.assert_allclose(results[0]["value"], results[1]["value"], rtol=1e-6)
    np.testing.assert_allclose(results[0]["low"], results[1]["low"], rtol=1e-5)
    alone = ls.Representations.from_arrays([x, 2 * x**3], labels)
    both = results[0]["value"][0], ls.layer_scores(alone, ["press"], null=0, ci=None).frame["value"][0]
    assert both[0] < both[1] - 0.05  # rows of one text tell each other's labels


def test_random_labels_show_in_no_layer():
    generator = np.random.default_rng(0)
    layers = [generator.normal(size=(200, width)) for width in (5, 20, 60)]
    shown = []
    for seed in range(20):
        labels = np.random.default_rng(seed).permutation(np.arange(200) % 2)
        curve = ls.layer_scores(ls.Representations.from_arrays(layers, labels), ["press"], null=39, seed=seed)["press"]
        shown.append(curve.shown)
    assert sum(shown) <= 3


def test_layers_that_are_copies_up_to_noise_are_not_told_apart():
    told = 0
    for seed in range(10):
        generator = np.random.default_rng(seed)
        labels = np.arange(150) % 2
        x = generator.normal(size=(150, 6)) + labels[:, None]
        layers = [x, *(x + 0.2 * generator.normal(size=x.shape) for _ in range(3))]
        told += (
            len(ls.layer_scores(ls.Representations.from_arrays(layers, labels), ["press"], null=0)["press"].ties) == 1
        )
    assert told <= 1


def test_numbers_and_choices():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(100, 5))
    reps = ls.Representations.from_arrays([x, x[:, 1:]], x[:, 0] + 0.3 * generator.normal(size=100))
    result = ls.layer_scores(reps, ["press", "logme", "knn", "cka_debiased"])
    assert result["press"].values[0] > 0.8
    assert result["press"].values[1] < 0.1
    with pytest.raises(
        InputError, match=r"numbers, and nu is defined for classes; take cka_debiased, knn, logme, press"
    ):
        ls.layer_scores(reps)
    with pytest.raises(InputError, match="All 100 labels are 3, so there is nothing to tell"):
        ls.layer_scores(reps.with_labels(np.full(100, 3.0)), ["press"])


def test_a_model_and_a_task():
    task = ls.task({"train": three_class_frame(60, 0), "validation": three_class_frame(20, 1)})
    result = ls.layer_scores(random_model(), ["press"], task=task, null=0)
    assert result.provenance["data"]["split"] == "train"
    assert result.provenance["settings"]["scores"] == ["press"]
    assert "undefined" not in result["press"].provenance
    summary = ls.layer_scores(random_model(), ["press"], task=task, pool="cls", null=0)["press"]
    assert np.isnan(summary.values[0])
    assert "every row is the same there" in summary.provenance["undefined"]


def test_without_rows_scores_come_from_moments():
    task = ls.task({"train": three_class_frame(120, 0), "validation": three_class_frame(20, 1)})
    how = {"task": task, "null": 5}
    kept, summed = (ls.layer_scores(random_model(), **how, keep=keep) for keep in (True, False))
    np.testing.assert_allclose(summed["logme"].values, kept["logme"].values, atol=1e-5)
    np.testing.assert_allclose(summed["logme"].permuted, kept["logme"].permuted, atol=1e-5)
    np.testing.assert_allclose(summed["nu"].permuted, kept["nu"].permuted, rtol=1e-3)
    np.testing.assert_allclose(summed["press"].values, kept["press"].values, atol=0.03)
    assert summed["press"].left_out.shape == summed["logme"].left_out.shape == (10, 5)
    assert (summed["press"].low < summed["press"].values).all()
    assert summed["nu"].low is None
    assert summed["press"].ties is not None
    assert "from moments" in str(summed["press"].findings()[-1])
    assert list(summed.frame["score"].unique()) == ["press", "logme", "nu"]
    with pytest.raises(InputError, match=r"knn needs the rows, and without them .*keep=True"):
        ls.layer_scores(random_model(), ["press", "knn"], task=task, keep=False)
    with pytest.raises(InputError, match="a text has one row"):
        ls.layer_scores(random_model(), ["press"], task=task, keep=False, pool="words")


def test_what_cannot_be_scored_is_a_sentence(planted):
    few = planted.select(rows=slice(3))
    alone = ls.Representations.from_arrays([np.random.default_rng(0).normal(size=(5, 2))], np.arange(5))
    for call, message in (
        (lambda: ls.layer_scores(planted, ["pres"]), "no layer score 'pres'. Did you mean 'press'"),
        (lambda: ls.layer_scores(planted, []), "it is a list with at least one of cka_debiased, hscore"),
        (lambda: ls.layer_scores(planted, ["press"], task=two_class_task()), "task was given together with repr"),
        (lambda: ls.layer_scores(planted, ["press"], limit=3), "limit"),
        (lambda: ls.layer_scores(random_model()), "scored for a task: name one"),
        (lambda: ls.layer_scores(few, ["press"]), "it needs 4, and there are 3"),
        (lambda: ls.layer_scores(alone, ["press"]), "Each of the 5 rows has a class of its own"),
    ):
        with pytest.raises(ls.LayerscopeError, match=message):
            call()
    single = planted.with_labels(np.r_[3, np.asarray(planted.labels)[1:]])
    with pytest.warns(LayerscopeWarning, match="1 class has one row only"):
        ls.layer_scores(single, ["nu"], ci=None, null=0)
