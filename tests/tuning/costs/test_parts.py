"""The rows that are learned from, those that are scored, and the layer that the first ones point to."""

from types import SimpleNamespace

import pytest

import layerscope as ls
from layerscope.errors import InputError
from layerscope.tuning import costs
from layerscope.tuning.tune import plan_tuning
from tests.helpers.data import three_class_frame
from tests.helpers.models import random_model


def test_of_a_single_split_the_scored_rows_are_not_those_learned_from(caplog):
    whole = three_class_frame(50, 3)
    training_data = plan_tuning(random_model(), ls.task(whole)).training_data
    assert (len(training_data.train), len(training_data.validation)) == (40, 10)
    assert sorted([*training_data.train.rows, *training_data.validation.rows]) == list(range(50))
    assert "of its 50 rows, 10 are held out and scored, and 40 others" in caplog.text
    again = plan_tuning(random_model(), ls.task(whole), train_limit=5).training_data
    assert len(again.train) == 5
    assert again.validation.rows.tolist() == training_data.validation.rows.tolist()


def test_a_metric_that_does_not_fit_the_labels_is_refused_before_anything_is_trained():
    with pytest.raises(InputError, match="perplexity was asked for, and the labels of table are classes"):
        plan_tuning(random_model(), ls.task(three_class_frame(50, 3)), metric="perplexity")


def test_the_best_layer_is_looked_for_in_the_rows_that_are_learned_from(monkeypatch, caplog):
    def specialty(model, train, **_):
        seen.append(train.rows.tolist())
        return SimpleNamespace(best=2, p_best=0.5)

    seen = []
    monkeypatch.setattr(costs, "specialty", specialty)
    plan = plan_tuning(random_model(), ls.task(three_class_frame(50, 3)), strategy="(l*, L, L)")
    assert seen == [plan.training_data.train.rows.tolist()]
    assert plan.strategy.bottom == 2
    assert "no lower there than with permuted labels (p = 0.50" in caplog.text


def test_a_strategy_without_numbers_is_refused_before_nu_is_measured(monkeypatch):
    def specialty(*_, **__):
        raise AssertionError("nothing may run")

    monkeypatch.setattr(costs, "specialty", specialty)
    with pytest.raises(InputError, match=r"no numbers for any l\* from 1 to 4\. .*nearest .* is \(4, 4, 4\)"):
        plan_tuning(random_model(), ls.task(three_class_frame(50, 3)), strategy="(l*+4, L, L)")
    with pytest.raises(InputError, match=r"starts above the model: l\* = 4 .*nearest .* is \(4, 4, 4\)"):
        plan_tuning(random_model(), ls.task(three_class_frame(50, 3)), strategy="(l*+1, L, L)", specialty_layer=4)


def test_there_is_one_best_layer(task):
    """In the choice, among the strategies and in tuning, of a task with two splits and of one with a single split."""
    base = random_model()
    for data in (task, ls.task(three_class_frame(60, 4))):
        best = ls.recommend(base, data, probes=False, null=20).best
        assert plan_tuning(base, data, strategy="(l*, L, L)").strategy.bottom == best
        assert ls.strategies(base, data).provenance["settings"]["best"] == best
    assert ls.recommend(base, task, probes=False, null=20).best == ls.specialty(base, task).best


def test_the_best_layer_is_that_of_the_least_nu(task, caplog):
    base = random_model()
    best = ls.specialty(base, task).best
    plan = plan_tuning(base, task, strategy="(l*, L, L)")
    assert plan.strategy.bottom == best
    assert f"l* is {best}" in caplog.text
    assert f"({best}, {best}, {best})" in set(ls.strategies(base, task).frame["resolved"])


def test_the_held_out_rows_have_the_classes_in_proportion():
    whole = three_class_frame(100, 2)
    whole["label"] = ["rare" if i < 11 else "often" for i in range(100)]
    training_data = plan_tuning(random_model(), ls.task(whole), validation_limit=10).training_data
    assert training_data.validation.labels.tolist().count(1) == 1
    training_data = plan_tuning(random_model(), ls.task(whole)).training_data
    assert len(training_data.validation) == 20
    assert training_data.validation.labels.tolist().count(1) == 2
