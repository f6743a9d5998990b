"""Findings of maps between models."""

import numpy as np
import pandas

import layerscope as ls
from layerscope.reporting.findings.maps import alignment, injection, synthetic

RECORD = ls.Record(kind="align", title="x", figures=[])


def errors(pairs=1):
    rows = []
    for pair in range(pairs):
        for layer in (0, 1, 2):
            for method, relative in (("identity", 1.5), ("linear", 0.1 * (layer + 1))):
                bounds = {"relative": relative, "relative_low": relative - 0.02, "relative_high": relative + 0.02}
                about = {"source": f"a{pair}", "target": "b", "layer": layer, "target_layer": layer, "n": 100}
                rows.append({**about, "method": method, "split": "test", **bounds})
    return pandas.DataFrame(rows)


def test_the_best_map_of_the_top_layer_is_told_with_its_interval():
    top, over = alignment(errors(), RECORD)
    assert top.text == (
        "In layer 2 a linear map leaves 30% of the other model's spread unexplained, and no map at all 150%."
    )
    assert top.sure is True
    assert "between 10% (layer 0) and 30% (layer 2)" in over.text


def test_a_mean_over_pairs_has_no_interval():
    assert alignment(errors(2), RECORD)[0].sure is None


def test_real_synthetic_maps_name_the_method_that_comes_nearest():
    reps = ls.Representations.from_arrays([np.random.default_rng(0).normal(size=(200, 4))])
    study = ls.synthetic_study(reps, truths=["linear"], noise=[0.0], methods=["mean", "linear"], repeats=1)
    told = synthetic(study.frame, RECORD)[0]
    assert told.text.startswith("Where the true map is linear, linear comes nearest: 0.0% of the spread")


def test_injection_says_whether_a_loss_is_shown():
    rows = [
        {"layer": 6, "method": "identity", "score": 0.3},
        {"layer": 6, "method": "linear", "score": 0.78},
        {"layer": 2, "method": "linear", "score": 0.4},
        {"layer": 6, "method": "random label", "score": 0.9},
    ]
    frame = pandas.DataFrame(rows).assign(target_score=0.8, metric="accuracy", n=200)
    frame = frame.assign(low=frame["score"] - 0.05, high=frame["score"] + 0.05)
    high, low = injection(frame, RECORD)
    assert "mapped by linear, accuracy is 0.780" in high.text
    assert high.text.endswith("No loss is shown.")
    assert high.sure is False
    assert low.text.startswith("With layer 2 replaced")
    assert low.text.endswith("Something is lost.")
    assert low.sure is True
