"""Advice with healing: what is healed, on what, and which texts choose and score."""

import healed
import language
import numpy as np
import pytest

import layerscope as ls
from layerscope.errors import InputError
from layerscope.tuning.healed_advice import heal_advice, healing_texts, plan_of

FEW = {"batch": 4, "learning_rate": 1e-2, "max_length": 16}


def advice_on(task, **options):
    asked = {"rules": ["last", "spans"], "remove": [1, 2], "timed": False, "max_length": 16, "confidence": 0}
    return ls.advise(healed.decoder(), task, tolerance="50%", **{**asked, **options})


def texts():
    frames = {"train": language.frame(60, most=20), "validation": language.frame(60, seed=1, least=10)}
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
    single = ls.task(language.frame(60, least=10), kind="text")
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
    frame, exam = result.frame, advice.exam
    front = advice.frame[(advice.frame["front"] | advice.frame["chosen"]) & (advice.frame["removed"] > 0)]
    assert set(frame["blocks"]) == {*front["blocks"], "1-3"}
    assert (frame["after"][1:] < frame["before"][1:]).all()
    used = {*advice.parts.picking, *advice.parts.confirming}
    assert not used & set(result.scoring)
    assert len(result.scoring) < len(advice.parts.scoring)
    chosen = frame[frame["chosen"]].iloc[0]
    place = list(frame["blocks"]).index(chosen["blocks"]) - 1
    model = ls.load(result.model)
    assert model.depth == len(result.choice.keep)
    assert float(result.score) == pytest.approx(exam.value(result.answers[place], result.scoring), rel=1e-5)
    assert float(result.score) == pytest.approx(float(chosen["after"]), rel=1e-5)
    assert "without a bound" in result.findings()[0]
    assert [figure.kind for figure in result.figures()] == ["curve", "table"]
    assert not np.isnan(frame[["low", "high"]].to_numpy()).any()
