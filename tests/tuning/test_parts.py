"""The rows that are learned from, those that are scored, and the layer that the first ones point to."""

from types import SimpleNamespace

import pytest
from quick import model, rows

import layerscope as ls
from layerscope.errors import InputError
from layerscope.tuning import parts
from layerscope.tuning.tuning import plan_tuning


def test_of_a_single_split_the_scored_rows_are_not_those_learned_from(caplog):
    whole = rows(50, 3)
    lesson = plan_tuning(model(), ls.task(whole)).lesson
    assert (len(lesson.train), len(lesson.validation)) == (40, 10)
    assert sorted([*lesson.train.rows, *lesson.validation.rows]) == list(range(50))
    assert "of its 50 rows, 10 are held out and scored, and 40 others" in caplog.text
    again = plan_tuning(model(), ls.task(whole), train_limit=5).lesson
    assert len(again.train) == 5
    assert again.validation.rows.tolist() == lesson.validation.rows.tolist()


def test_a_metric_that_does_not_fit_the_labels_is_refused_before_anything_is_trained():
    with pytest.raises(InputError, match="perplexity was asked for, and the labels of table are classes"):
        plan_tuning(model(), ls.task(rows(50, 3)), metric="perplexity")


def test_the_best_layer_is_looked_for_in_the_rows_that_are_learned_from(monkeypatch, caplog):
    def specialty(model, train, **_):
        seen.append(train.rows.tolist())
        return SimpleNamespace(best=2, p_best=0.5)

    seen = []
    monkeypatch.setattr(parts, "specialty", specialty)
    plan = plan_tuning(model(), ls.task(rows(50, 3)), strategy="(l*, L, L)")
    assert seen == [plan.lesson.train.rows.tolist()]
    assert plan.strategy.bottom == 2
    assert "no lower there than with permuted labels (p = 0.50" in caplog.text


def test_a_strategy_without_numbers_is_refused_before_nu_is_measured(monkeypatch):
    def specialty(*_, **__):
        raise AssertionError("nothing may run")

    monkeypatch.setattr(parts, "specialty", specialty)
    with pytest.raises(InputError, match=r"no numbers for any l\* from 1 to 4\. .*nearest .* is \(4, 4, 4\)"):
        plan_tuning(model(), ls.task(rows(50, 3)), strategy="(l*+4, L, L)")
    with pytest.raises(InputError, match=r"starts above the model: l\* = 4 .*nearest .* is \(4, 4, 4\)"):
        plan_tuning(model(), ls.task(rows(50, 3)), strategy="(l*+1, L, L)", best=4)


def test_there_is_one_best_layer(task):
    """In the choice, among the strategies and in tuning, of a task with two splits and of one with a single split."""
    base = model()
    for data in (task, ls.task(rows(60, 4))):
        best = ls.choose(base, data, probes=False, null=20).best
        assert plan_tuning(base, data, strategy="(l*, L, L)").strategy.bottom == best
        assert ls.strategies(base, data).provenance["settings"]["best"] == best
    assert ls.choose(base, task, probes=False, null=20).best == ls.specialty(base, task).best


def test_the_best_layer_is_that_of_the_least_nu(task, caplog):
    base = model()
    best = ls.specialty(base, task).best
    plan = plan_tuning(base, task, strategy="(l*, L, L)")
    assert plan.strategy.bottom == best
    assert f"l* is {best}" in caplog.text
    assert f"({best}, {best}, {best})" in set(ls.strategies(base, task).frame["resolved"])


def test_the_held_out_rows_have_the_classes_in_proportion():
    whole = rows(100, 2)
    whole["label"] = ["rare" if i < 11 else "often" for i in range(100)]
    lesson = plan_tuning(model(), ls.task(whole), validation_limit=10).lesson
    assert lesson.validation.labels.tolist().count(1) == 1
    lesson = plan_tuning(model(), ls.task(whole)).lesson
    assert len(lesson.validation) == 20
    assert lesson.validation.labels.tolist().count(1) == 2
