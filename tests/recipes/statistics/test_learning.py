"""A model that has not learned its task shows nothing."""

from types import SimpleNamespace

import numpy as np
import pytest

import layerscope as ls
from layerscope.recipes.statistics.learning import unlearned, unread


def training(score, majority, n=400, metric="accuracy"):
    job = SimpleNamespace(training_data=SimpleNamespace(validation=range(n)))
    return SimpleNamespace(score=score, majority=majority, metric=metric, job=job)


@pytest.mark.parametrize(
    ("score", "majority", "metric", "learned"),
    [
        (0.68, 0.68, "accuracy", False),
        (0.71, 0.68, "accuracy", False),  # 12 of 400 texts may be chance
        (0.75, 0.68, "accuracy", True),
        (0.05, float("nan"), "spearman", False),
        (0.2, float("nan"), "spearman", True),
        (0.05, 0.0, "mcc", False),
        (0.4, 0.0, "mcc", True),
    ],
)
def test_a_score_must_beat_the_most_frequent_class_by_more_than_chance(score, majority, metric, learned):
    reason = unlearned(training(score, majority, metric=metric))
    assert (reason == "") == learned
    assert learned or f"has not learned the task ({metric} {score:.3f}" in reason


def test_more_texts_are_surer():
    assert unlearned(training(0.71, 0.68, n=400))
    assert not unlearned(training(0.71, 0.68, n=4000))


def test_probes_must_beat_the_most_frequent_class_in_some_layer():
    reps = ls.Representations.from_arrays([np.zeros((10, 2))] * 3, np.asarray([0] * 6 + [1] * 4))
    low = np.asarray([0.9, 0.5, 0.55])
    probes = ls.Curve("accuracy", ["m"] * 3, [0, 1, 2], low + 0.1, low=low, high=low + 0.2)
    assert "no layer surely beat always giving the most frequent class (0.600)" in unread(probes, reps, [1, 2])
    assert unread(probes, reps, [0, 1, 2]) == ""
    assert unread(ls.Curve("accuracy", ["m"], [1], low[:1]), reps, [0]) == ""  # without intervals nothing is known
