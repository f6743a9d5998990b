"""What is decided, and refused, before anything is trained."""

import sys
from types import SimpleNamespace

import pandas
import pytest
from quick import QUICK, model, rows

import layerscope as ls
from layerscope.analysis.tuning import plan
from layerscope.errors import InputError, ModelError
from layerscope.store import Store


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "magic"}, "no method 'magic'"),
        ({"preset": "xie2023"}, "Did you mean 'xie2022'"),
        ({"epoch": 3}, "no training option 'epoch'"),
        ({"batch": 0}, "training option batch is 0"),
        ({"method": "adapter", "strategy": "head-only"}, "nothing for adapter to sit in"),
        ({"method": "prefix", "strategy": "(2, 4, 4)"}, "cannot choose blocks"),
        ({"seeds": []}, "seeds is empty"),
        ({"seed": -1}, "seed is -1; it must be a whole number from 0"),
        ({"learning_rate": 0}, "A learning rate is 0; it must be above 0"),
        ({"learning_rate": [1e-3, float("nan")]}, "A learning rate is nan"),
        ({"epochs": 1, "max_steps": 2}, "Both epochs and max_steps"),
        ({"size": 8}, "size is 8, and finetune has none"),
        ({"method": "lora", "size": 0}, "size is 0; the rank of LoRA must be at least 1"),
        ({"learning_rate": 1e9, "max_steps": 3}, r"diverged.* a learning rate below 1e\+09"),
        ({"learning_rate": 1e9, "max_steps": 3, "method": "adapter"}, "diverged"),
    ],
)
def test_mistakes_are_sentences(options, message, task):
    with pytest.raises(ls.LayerscopeError, match=message):
        ls.tune(model(), task, **options)


def test_of_a_single_split_the_scored_rows_are_not_those_learned_from(caplog):
    whole = rows(50, 3)
    job = plan(model(), ls.task(whole), "full", "finetune", None, None, None, {})
    assert (len(job.train), len(job.validation)) == (40, 10)
    assert sorted([*job.train.rows, *job.validation.rows]) == list(range(50))
    assert "of its 50 rows 10 are held out and scored, and 40 others" in caplog.text
    again = plan(model(), ls.task(whole), "full", "finetune", None, None, None, {"train_limit": 5})
    assert len(again.train) == 5
    assert again.validation.rows.tolist() == job.validation.rows.tolist()
    with pytest.raises(InputError, match=r"Heads are trained on one split of .* and scored on another"):
        ls.truncation_curve(model(kind="classifier"), ls.task(whole), mode="tuned")
    two = ls.task({"train": whole, "validation": whole[:9]})
    with pytest.raises(InputError, match="train was to serve for both"):
        ls.truncation_curve(model(kind="classifier"), two, mode="tuned", split="train")


def test_the_best_layer_is_looked_for_in_the_rows_that_are_learned_from(monkeypatch):
    def streamed(model, train, **_):
        seen.append(train.rows.tolist())
        return SimpleNamespace(best=2)

    seen = []
    monkeypatch.setattr(sys.modules["layerscope.analysis.tuning"], "streamed", streamed)
    job = plan(model(), ls.task(rows(50, 3)), "(l*, L, L)", "finetune", None, None, None, {})
    assert seen == [job.train.rows.tolist()]
    assert job.strategy.bottom == 2


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": ["a b", "c d"]}, "no labels, so there is nothing to learn; name the column"),
        ({"text": ["a b", "c d"], "label": ["x", "x"]}, "of one class, 'x'"),
        ({"text": ["a b"], "label": [0.5]}, "has one row"),
    ],
)
def test_data_with_nothing_to_learn_is_refused_before_the_work(columns, message):
    with pytest.raises(InputError, match=message):
        ls.tune(model(), pandas.DataFrame(columns), **QUICK)
    assert not list(Store().entries())


def test_a_study_is_checked_before_anything_is_trained(task):
    with pytest.raises(InputError, match=r"l\* is 9; this model has layers 1..4"):
        ls.strategies(model(), task, best=9)
    with pytest.raises(InputError, match="no method 'magic'"):
        ls.strategies(model(), task, best=2, method="magic")
    with pytest.raises(InputError, match=r"l\* is 9"):
        ls.strategy_study(model(), task, best=9, **QUICK)


def test_what_a_family_cannot_do_is_refused(task):
    with pytest.raises(ModelError, match="runs one block 4 times"):
        ls.tune(model("albert"), task, strategy="(2, 4, 4)")
    with pytest.raises(ModelError, match="no prefix tuning for xlnet"):
        ls.tune(model("xlnet"), task, method="prefix")


def test_presets_hold_the_papers_numbers(task):
    def planned(strategy, preset, method="finetune", **options):
        return plan(model(), task, strategy, method, preset, 2, None, options).training

    assert planned("full", "phang2021").max_steps == 10_000
    assert (planned("full", "wu2020").batch, planned("full", "wu2020").rates) == (8, (5e-5,))
    assert planned("full", "xie2022").rates == (1e-6, 5e-6, 8e-6, 1e-5, 2e-5)
    assert planned("(l*+1, L, L)", "xie2022").rates == (1e-6, 3e-6, 1e-5, 3e-5)
    assert planned("(1, l*, l*)", "xie2022").rates == (5e-6, 1e-5, 5e-5, 1e-4)
    assert planned("(l*-1, l*, L)", "xie2022", "adapter").rates == (3e-5, 1e-4, 3e-4)
    assert planned("full", "xie2022", learning_rate=1e-3).rates == (1e-3,)
    assert planned("full", "phang2021", epochs=2).max_steps is None


def test_strategies_are_listed_with_their_cost(task):
    base = model()
    frame = ls.strategies(base, task, best=3).set_index("strategy")
    assert frame.loc["full", "trained"] == frame.loc["full", "parameters"]
    assert frame.loc["(l*, l*, l*)", "resolved"] == "(3, 3, 3)"
    assert frame.loc["(l*, l*, l*)", "parameters"] < frame.loc["full", "parameters"]
    assert frame.loc["head-only", "trained"] == ls.tune(base, task, strategy="head-only", **QUICK).trainable
    assert frame.loc["(l*+1, L, L)", "cached"] < frame.loc["full", "cached"]


def test_the_best_layer_is_that_of_the_least_nu(task, caplog):
    base = model()
    best = ls.specialty(base, task).best
    job = plan(base, task, "(l*, L, L)", "finetune", None, None, None, {})
    assert job.strategy.bottom == best
    assert f"l* is {best}" in caplog.text
    assert f"({best}, {best}, {best})" in set(ls.strategies(base, task)["resolved"])
