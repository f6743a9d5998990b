"""Curves of layer scores from one pass: what is kept, groups of texts, and moments that take the place of rows."""

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.probing import score_curves
from layerscope.probing.layer_score import column_scales, joined, targets
from layerscope.probing.score_curves import rows_fit, streamed_curves
from layerscope.probing.scores.knn import Knn
from layerscope.probing.scores.logme import LogME
from layerscope.probing.scores.nu import Nu
from layerscope.probing.scores.press import GRID, Press
from layerscope.similarity.moments import Moments
from tests.helpers.data import three_class_frame
from tests.helpers.models import random_model

HOW = {"pool": "mean", "max_length": 32, "ci": None, "null": 3, "seed": 0}


@pytest.fixture(scope="module")
def examples():
    return ls.task(three_class_frame(90, 0)).split("all")


def test_groups_of_texts_are_left_out_exactly(examples):
    """The grouped form from a pass is ridge regression without each of the groups, on the rows of an extraction."""
    curve = streamed_curves(random_model(), examples, [Press()], keep=False, **HOW)["press"]
    reps = ls.extract(random_model(), examples, pool="mean", max_length=32)
    group = score_curves.folds(examples.rows, 10, seed=0)
    assert np.bincount(group).tolist() == [9] * 10
    y = np.eye(3)[examples.labels]
    for layer in (1, 4):
        z = reps[layer].double().numpy()
        z = (z - z.mean(axis=0)) / z.std(axis=0)
        squares = np.zeros((len(GRID) + 1, 10))
        for k in range(10):
            out = group == k
            far, centre = z[out] - z[~out].mean(axis=0), y[~out].mean(axis=0)
            inner = z[~out] - z[~out].mean(axis=0)
            for g, strength in enumerate(90 * GRID):
                weights = np.linalg.solve(inner.T @ inner + strength * np.eye(z.shape[1]), inner.T @ y[~out])
                squares[g, k] = ((y[out] - centre - far @ weights) ** 2).sum()
            squares[-1, k] = ((y[out] - centre) ** 2).sum()
        total = squares.sum(axis=1)
        assert curve.values[curve.layers.index(layer)] == pytest.approx(1 - total.min() / total[-1], abs=1e-5)


def test_rows_that_are_kept_are_those_of_an_extraction(examples):
    curves = streamed_curves(random_model(), examples, [Nu(), Knn()], keep=True, **HOW)
    reps = ls.extract(random_model(), examples, pool="mean", max_length=32)
    stored = score_curves.score_curves(reps, [Nu(), Knn()], ci=None, null=3, seed=0)
    for name, curve in curves.items():
        np.testing.assert_allclose(curve.values, stored[name].values, rtol=1e-3)
        assert curve.provenance["models"] == stored[name].provenance["models"]
        assert curve.provenance["data"] == stored[name].provenance["data"]


def test_what_takes_less_memory_is_kept(monkeypatch):
    model = random_model()
    assert rows_fit(1000, model, [Press()], 0)
    monkeypatch.setattr(score_curves, "ROOM", 0)
    moments = 8 * sum(width**2 for width in model.widths) / (4 * sum(model.widths))
    assert rows_fit(int(10 * moments), model, [Press()], 0)
    assert not rows_fit(int(10 * moments) + 1, model, [Press()], 0)
    assert rows_fit(int(15 * moments), model, [Press(), Nu()], 4)
    assert not rows_fit(100, model, [Knn()], 20)


def test_joined_moments_leave_the_parts_as_they_are():
    generator = np.random.default_rng(0)
    rows = torch.from_numpy(generator.normal(size=(30, 3)) * [1, 5, 0] + 2)
    parts = []
    for part in rows.split(10):
        parts.append(Moments([3], exact=True))
        parts[-1].update([part])
    total = joined(parts)
    assert (total.n, [part.n for part in parts]) == (30, [10, 10, 10])
    torch.testing.assert_close(total.mean(0), rows.mean(dim=0))
    scales = column_scales(total, 0)
    torch.testing.assert_close(scales[:2], 1 / rows.std(dim=0, correction=0)[:2])
    assert scales[2] == 0


def test_logme_without_each_group_is_that_of_the_rest():
    generator = np.random.default_rng(0)
    labels = np.arange(60) % 2
    x = torch.from_numpy(generator.normal(size=(60, 4)) + labels[:, None])
    y = targets(labels[None]).flatten(1)
    parts = []
    for k in range(3):
        parts.append(Moments([4, 2], pairs=[(0, 1)], exact=True))
        parts[-1].update([x[k::3], y[k::3]])
    values, without = LogME().of_moments(parts, 1, 2, intervals=True)
    rest = Moments([4, 2], pairs=[(0, 1)], exact=True)
    at = np.arange(60) % 3 != 1
    rest.update([x[at], y[at]])
    assert without[1, 0] == pytest.approx(LogME().of_moments([rest], 1, 2, intervals=False)[0][0, 0])
    assert without.shape == (3, 1)
    assert values.shape == (1, 1)
