"""Statistics of aligners' errors."""

import math
from types import SimpleNamespace

import numpy as np
import pandas
import pytest

from layerscope.registry import STATISTICS
from layerscope.resampling import jackknifed


@pytest.fixture
def study():
    """Two pairs of models, layers 1..4 of both, two methods; the error grows with the layer and the distance."""
    table = [
        {
            "source": source,
            "target": "t",
            "layer": a,
            "target_layer": b,
            "method": method,
            "split": split,
            "relative": (value := 0.1 * a + 0.05 * abs(a - b) + (0.2 if method == "mean" else 0.0) + 0.01 * k),
            "relative_low": value - 0.01,
            "relative_high": value + 0.03,
            "n": 50,
        }
        for k, source in enumerate(("s", "r"))
        for a in range(1, 5)
        for b in range(1, 5)
        for method in ("linear", "mean")
        for split in ("train", "test")
    ]
    return {"e": SimpleNamespace(frame=pandas.DataFrame(table))}


def test_layers_of_the_same_number_above_less_below(study):
    said = STATISTICS["error_gap"](study, "e", layers=[0.51, 1], minus_layers=[0.01, 0.5])
    np.testing.assert_allclose(said.value, 0.35 - 0.15)
    np.testing.assert_allclose([said.value - said.low, said.high - said.value], math.hypot(0.01, 0.03))
    assert said.note == "pair by pair 0.2, 0.2"


def test_one_method_less_another(study):
    said = STATISTICS["error_gap"](study, "e", method="mean", minus_method="linear")
    np.testing.assert_allclose(said.value, 0.2)
    assert "inn has no error" in STATISTICS["error_gap"](study, "e", method="inn").reason


def test_distant_layers_less_neighbours(study):
    frame = study["e"].frame
    rows = frame[(frame["split"] == "test") & (frame["method"] == "linear")]
    far = np.mean([r.relative for r in rows.itertuples() if abs(r.layer - r.target_layer) >= 2])
    near = np.mean([r.relative for r in rows.itertuples() if abs(r.layer - r.target_layer) == 1])
    np.testing.assert_allclose(STATISTICS["distance_gap"](study, "e").value, far - near)
    assert STATISTICS["distance_gap"](study, "e", method="inn").reason


def test_repeats_without_noise_are_averaged_and_shown_one_by_one():
    """Each is another map: a claim of a large error must not rest on the worst of them."""
    row = {"truth": "inn", "method": "inn", "n": 9}
    errors = [(0.0, 0.02), (0.0, 0.06), (0.1, 0.9)]
    frame = pandas.DataFrame(
        [{**row, "noise": z, "relative": e, "relative_low": e - 0.01, "relative_high": e + 0.03} for z, e in errors]
    )
    study = {"s": SimpleNamespace(frame=frame)}
    said = STATISTICS["recovers"](study, "s", truth="inn", method="inn")
    np.testing.assert_allclose([said.low, said.value, said.high], [0.03, 0.04, 0.07])
    assert said.note == "repeat by repeat 0.02, 0.06"
    assert "not tried" in STATISTICS["recovers"](study, "s", truth="inn", method="cca").reason


def test_errors_of_the_same_texts_are_compared_text_for_text(study):
    """Texts on which every map errs alike leave no doubt about which errs more."""
    frame = study["e"].frame
    shared = np.random.default_rng(0).normal(0, 0.1, 20)
    own = np.random.default_rng(1).normal(0, 0.001, (len(frame), 20))
    e = SimpleNamespace(frame=frame, left_out=frame["relative"].to_numpy()[:, None] + shared + own)
    e.left_out[:, 19] = np.nan  # there were texts for nineteen groups
    said = STATISTICS["error_gap"]({"e": e}, "e", method="mean", minus_method="linear")
    np.testing.assert_allclose(said.value, 0.2)
    test = (frame["split"] == "test") & (frame["layer"] == frame["target_layer"])
    sides = [e.left_out[np.asarray(test & (frame["method"] == m)), :19].mean(axis=0) for m in ("mean", "linear")]
    np.testing.assert_allclose(said.high - said.value, jackknifed(sides[0] - sides[1]))
    assert said.high - said.value < 0.1 * jackknifed(sides[0])
    far = STATISTICS["distance_gap"]({"e": e}, "e")
    assert far.high - far.value < 0.01
    other = SimpleNamespace(frame=frame.assign(n=49), left_out=e.left_out)  # of other texts
    apart = STATISTICS["error_gap"]({"e": e, "o": other}, "e", minus="o")
    np.testing.assert_allclose(apart.high - apart.value, math.hypot(0.01, 0.03))


def test_attention_beside_states_relative_and_by_squared_error():
    """The two may disagree: small numbers are small errors, whatever share of their spread is left."""
    row = {"source": "s", "target": "t", "layer": 1, "target_layer": 1, "method": "linear", "split": "test", "n": 9}
    studies = {
        name: SimpleNamespace(
            frame=pandas.DataFrame(
                [
                    {
                        **{
                            **row,
                            "relative": relative,
                            "relative_low": relative - 0.1,
                            "relative_high": relative + 0.1,
                        },
                        **{"mse": squared, "mse_low": squared / 2, "mse_high": squared * 2},
                    }
                ]
            )
        )
        for name, relative, squared in (("states", 0.5, 0.06), ("attention", 0.8, 0.02))
    }
    relative = STATISTICS["error_gap"](studies, "attention", minus="states")
    squared = STATISTICS["squared_error_gap"](studies, "attention", minus="states")
    np.testing.assert_allclose([relative.value, squared.value], [0.3, -0.04])
    np.testing.assert_allclose(squared.low, -0.04 - math.hypot(0.01, 0.06))
