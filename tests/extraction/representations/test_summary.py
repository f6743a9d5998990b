"""What each layer holds, in plain numbers."""

import numpy as np
import pytest

import layerscope as ls
from layerscope.results import Result
from tests.helpers.models import random_model


def test_the_summary_token_of_layer_0_is_one_vector(task):
    reps = ls.extract(random_model("bert"), task, store=False)
    assert reps.summary().frame["spread"][0] == pytest.approx(0, abs=1e-6)
    assert np.isnan(reps.summary().frame["top_direction"][0])
    assert reps.summary().frame["spread"][1] > 1e-3


def test_numbers_are_the_plain_formulas():
    x = np.random.default_rng(0).normal(size=(50, 4)) * [1, 2, 3, 10] + 5
    summary = ls.Representations.from_arrays([x, np.ones((50, 2))], names=["in", "out"]).summary()
    first, second = summary.frame.to_dict("records")
    x = x.astype(np.float32).astype(float)
    variances = np.linalg.svd(x - x.mean(axis=0), compute_uv=False) ** 2
    assert (first["layer"], first["rows"], first["width"]) == ("in", 50, 4)
    assert first["mean_norm"] == pytest.approx(np.linalg.norm(x, axis=1).mean())
    assert first["spread"] == pytest.approx(x.std(axis=0).mean())
    assert first["top_direction"] == pytest.approx(variances[0] / variances.sum())
    assert second["spread"] == 0
    assert np.isnan(second["top_direction"])


def test_fewer_rows_than_features_and_a_single_row():
    x = np.random.default_rng(0).normal(size=(3, 40))
    frame = ls.Representations.from_arrays([x, x[:, :2]]).summary().frame
    assert frame["top_direction"].between(0.3, 1).all()
    assert np.isnan(ls.Representations.from_arrays([x[:1]]).summary().frame["top_direction"][0])


def test_a_summary_is_a_result(task):
    summary = ls.extract(random_model("bert"), task, store=False, pool="mean").summary()
    assert isinstance(summary, Result)
    assert [figure.kind for figure in summary.figures()] == ["curve"] * 3 + ["table"]
    assert summary.figures()[0].n == 7
    assert summary.provenance["settings"]["pool"] == "mean"
    assert summary.provenance["data"]["n"] == 7
    assert summary.provenance["models"][0]["weights"]
    assert repr(summary).endswith("5 layers)")
