"""Advice with healing: what is healed, on what, and which texts choose and score."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas
import pytest

import layerscope as ls
from layerscope.errors import InputError
from layerscope.tuning.heal_advice import HealedAdvice, heal_advice, healing_texts, plan_of
from tests.helpers.data import text_frame
from tests.helpers.models import small_decoder

FEW = {"batch": 4, "learning_rate": 1e-2, "max_length": 16}


def advice_on(task, **options):
    asked = {"rules": ["last", "spans"], "remove": [1, 2], "timed": False, "max_length": 16, "confidence": 0}
    return ls.advise(small_decoder(), task, tolerance="50%", **{**asked, **options})


def texts():
    frames = {"train": text_frame(60, most=20), "validation": text_frame(60, seed=1, least=10)}
    return ls.task(frames, kind="text")


def test_the_plan_of_a_list_of_blocks():
    assert plan_of("1-4, 7") == ls.LayerPlan([1, 2, 3, 4, 7])
    assert plan_of("2") == ls.LayerPlan([2])


def test_healing_needs_texts_that_do_not_choose():
    task = texts()
    advice = advice_on(task)
    alone = healing_texts(advice, task, None)
    assert alone.splits == ("train",)
    assert list(alone.split().texts) == list(task.split("train").texts)
    single = ls.task(text_frame(60, least=10), kind="text")
    with pytest.raises(InputError, match=r"nothing is left to heal on; .* \(on=, --heal-on\)"):
        healing_texts(advice_on(single), single, None)
    assert healing_texts(advice, task, single) is single
    with pytest.raises(InputError, match="at least one step"):
        heal_advice(advice, task, steps=0)


@pytest.mark.slow
@pytest.mark.parametrize("target", [False, True])
def test_the_front_is_healed_and_chosen_on_texts_that_did_neither(target):
    task = texts()
    advice = advice_on(task, **({"blocks": 2, "remove": None} if target else {}))
    result = heal_advice(advice, task, steps=8, **FEW)
    frame, evaluator = result.frame, result.evaluator
    front = advice.frame[(advice.frame["front"] | advice.frame["chosen"]) & (advice.frame["removed"] > 0)]
    assert set(frame["blocks"]) == {*front["blocks"], "1-3"}
    assert (frame["after"][1:] < frame["before"][1:]).all()
    picked = {*advice.evaluator.made_of(advice.parts.picking)}
    chose = {*evaluator.made_of(np.setdiff1d(np.arange(len(evaluator.examples)), result.scoring))}
    scored = {*evaluator.made_of(result.scoring)}
    assert picked
    assert chose
    assert scored
    assert not picked & chose
    assert not scored & (picked | chose)
    chosen = frame[frame["chosen"]].iloc[0]
    place = list(frame["blocks"]).index(chosen["blocks"]) - 1
    model = ls.load(result.model)
    assert model.depth == len(result.choice.keep)
    assert float(result.score) == pytest.approx(evaluator.value(result.answers[place], result.scoring), rel=1e-5)
    assert float(result.score) == pytest.approx(float(chosen["after"]), rel=1e-5)
    assert "without a bound" in str(result.findings()[0])
    assert [figure.kind for figure in result.figures()] == ["curve", "table"]
    assert not np.isnan(frame[["low", "high"]].to_numpy()).any()


def test_healed_advice_is_told_without_a_bound():
    frame = pandas.DataFrame(
        {
            "blocks": ["1-4", "1-3", "1-2"],
            "removed": [0, 1, 2],
            "before": [0.8, 0.6, 0.4],
            "after": [0.8, 0.79, 0.5],
            "low": [0.7, 0.7, 0.4],
            "high": [0.9, 0.85, 0.6],
            "over_whole_low": -0.02,
            "over_whole_high": 0.01,
            "parameters": [100, 80, 60],
            "metric": "accuracy",
            "chosen": [False, True, False],
        }
    )
    evaluator = SimpleNamespace(model=SimpleNamespace(depth=4), resampled=lambda rows: "")
    advice = SimpleNamespace(tolerance=0.05, target=None, evaluator=evaluator)
    healed_advice = HealedAdvice(advice, frame, [], ls.LayerPlan([1, 2, 3]), {}, [], np.arange(20), evaluator)
    first, second = healed_advice.findings()
    assert first.text.startswith("Healed, blocks 1-3 are enough")
    assert first.sure is False
    assert second.text == "Healing improves 2 of 2 plans of the front."
    assert healed_advice.next_step().arguments[:2] == ("--without", "4")
    assert healed_advice.next_step().why == "Heal the cut model for longer"
    none = replace(healed_advice, table=frame.assign(chosen=False), choice=None)
    assert "still loses more than 0.05 accuracy" in none.findings()[0].text
    assert none.next_step() is None
