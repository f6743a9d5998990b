"""Findings of specialty, trainings and studies."""

import numpy as np
import pandas
import pytest
from scipy.stats import t

import layerscope as ls
from layerscope.reporting.findings.tuning import costs, over_seeds, specialty, study, trainings


def record(*said, n=100):
    return ls.Record(kind="specialty", title="x", figures=[], findings=said, data={"n": n})


def nu(values, wins, p=0.01, **more):
    size = len(values)
    frame = pandas.DataFrame({"layer": range(size), "nu": values, "low": np.array(values) - 0.1, "wins": wins})
    return frame.assign(high=frame["nu"] + 0.1, null=5.0, p=p, **more)


def test_real_specialty_of_separated_classes_is_sure():
    draw = np.random.default_rng(0).normal
    labels = np.repeat([0, 1], 40)
    apart = draw(size=(80, 3)) + 4 * labels[:, None]
    reps = ls.Representations.from_arrays([draw(size=(80, 3)), apart, draw(size=(80, 3))], labels=labels)
    found = ls.specialty(reps, ci=0.95, null=99)
    told = specialty(found.frame, record())
    assert told[0].text.startswith("Layer 1 separates the classes best")
    assert told[0].sure is True
    assert told[1].sure is True  # no other layer wins


def test_the_p_value_is_the_one_that_allows_for_the_choice():
    frame = nu([3.0, 1.0, 2.0], [0, 1.0, 0], p=0.02)
    assert specialty(frame, record())[0].sure is True  # 0.04 at most, for two layers
    said = "l* is layer 1; p = 0.2 after allowing for the choice among layers."
    told = specialty(frame, record(said))[0]
    assert told.sure is False
    assert told.text.startswith("No layer is shown to separate the classes")


def test_layers_that_win_too_and_probes_that_tie_are_not_sure():
    probes = {"probe": [0.5, 0.7, 0.69], "probe_low": [0.4, 0.6, 0.6], "probe_high": [0.6, 0.8, 0.8]}
    told = specialty(nu([3.0, 1.0, 1.1], [0, 0.6, 0.4], **probes), record())
    assert told[0].text.endswith(
        "layer 1 with the least nu, 1.000, and 5.000 with permuted labels; layer 2 may be as good."
    )
    assert "layer 2 may be as good as layer 1" in told[1].text
    assert told[1].sure is False
    assert "layer 2 may do as well" in told[2].text
    assert told[2].sure is False


def scores(values, majority=0.4):
    return pandas.DataFrame({"seed": range(len(values)), "metric": "accuracy", "score": values}).assign(
        majority=majority, trainable=50, parameters=100
    )


def test_seeds_have_students_interval():
    values = pandas.Series([0.7, 0.8, 0.75])
    low, high = over_seeds(values)
    half = t.ppf(0.975, 2) * values.std(ddof=1) / np.sqrt(3)
    assert (low, high) == pytest.approx((0.75 - half, 0.75 + half))
    assert trainings(scores([0.7, 0.8, 0.75]), record())[0].sure is True
    assert trainings(scores([0.7, 0.8, 0.75], majority=0.74), record())[0].sure is False
    alone = trainings(scores([0.7]), record())[0]
    assert alone.sure is None
    assert "one seed" in alone.evidence


def test_a_study_names_the_best_and_the_cheapest_that_ties():
    frame = pandas.DataFrame(
        {
            "strategy": ["full", "top-2", "head-only"],
            "method": "finetune",
            "score": [0.8, 0.79, 0.5],
            "low": [0.78, 0.7, 0.4],
            "high": [0.82, 0.85, 0.6],
            "seeds": 3,
            "trainable": [100, 40, 1],
            "parameters": 100,
            "metric": "accuracy",
        }
    )
    best, tie = study(frame, record())
    assert best.text.startswith("Of 3 strategies and methods full with finetune scores best: accuracy 0.800")
    assert best.sure is False
    assert "The cheapest of these is top-2 with finetune" in tie.text
    assert [f.sure for f in study(frame.iloc[[0, 2]], record())] == [True]


def test_costs_are_counted():
    frame = pandas.DataFrame({"strategy": ["full", "head-only"], "trainable": [100, 5], "forward": 1, "backward": 1})
    assert "head-only trains the fewest parameters (5)" in costs(frame, record())[0].text
