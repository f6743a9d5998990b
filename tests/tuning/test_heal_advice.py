"""Advice with healing: what is healed, on what, and which texts choose and score."""

import math
from types import SimpleNamespace

import numpy as np
import pandas
import pytest

import layerscope as ls
from layerscope.cutting.selection_test import Comparison, lower_bound
from layerscope.cutting.targets import Tolerance
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
    assert "no bound was asked for" in str(result.findings()[0]) or target
    assert frame["change_low"].isna().all()  # confidence 0
    assert (frame["over_cut_low"][1:] <= frame["over_cut_high"][1:]).all()
    verdict = result.verdict
    assert verdict.regains == pytest.approx(chosen["before"] - chosen["after"])  # of perplexity: less is better
    assert verdict.regains_low <= verdict.regains <= verdict.regains_high
    assert [figure.kind for figure in result.figures()] == ["curve", "table"]
    assert not np.isnan(frame[["low", "high"]].to_numpy()).any()


def healed_advice(change_low=-0.03, chosen=1, **asked):
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
            "change_low": change_low,
            "over_cut_low": 0.1,
            "over_cut_high": 0.25,
            "parameters": [100, 80, 60],
            "metric": "accuracy",
            "chosen": [k == chosen for k in range(3)],
        }
    )
    evaluator = SimpleNamespace(model=SimpleNamespace(depth=4), resampled=lambda rows: "")
    given = {"tolerance": 0.05, "confidence": 0.99, "target": None, "within": None, "evaluator": evaluator, **asked}
    choice = ls.LayerPlan([1, 2, 3]) if chosen else None
    return HealedAdvice(SimpleNamespace(**given), frame, [], choice, {}, [], np.arange(20), evaluator)


def test_what_healed_advice_says():
    first, second = healed_advice().findings()
    assert first.text.startswith("Healed, blocks 1-3 are enough")
    assert "with 99% confidence it loses at most 0.0300, which is within the tolerance of 0.05." in first.text
    assert first.text.endswith(
        "On these 20 rows it gains between -0.02 and +0.01 accuracy over the whole model (95% interval)."
    )
    assert first.sure is True
    assert second.text == "Healing improves 2 of 2 plans of the front."
    assert healed_advice().next_step().arguments[:2] == ("--without", "4")
    assert healed_advice().next_step().why == "Heal the cut model for longer"
    none = healed_advice(chosen=None)
    assert "still loses more than 0.05 accuracy" in none.findings()[0].text
    assert none.verdict.met is False
    assert none.next_step() is None


def test_the_verdict_on_a_healed_plan_rests_on_a_bound_at_the_confidence_asked_for():
    verdict = healed_advice(within=False, target="keep 3 blocks").verdict
    assert (verdict.met, verdict.loses, verdict.misses) == (True, 0.03, 0.0)
    assert "with 99% confidence it loses at most 0.0300, which is within the tolerance of 0.05." in verdict.says
    assert "95% interval +0.1000 to +0.2500" in verdict.says
    assert "Healing regains 0.1900 accuracy over the plain cut on the same rows" in verdict.says
    assert (verdict.regains_low, verdict.regains_high) == (0.1, 0.25)
    free = healed_advice(change_low=math.nan, confidence=0).verdict
    assert free.met is True  # by the score alone
    assert "it changes by -0.0100, within the tolerance of 0.05; no bound was asked for" in free.says
    few = healed_advice(change_low=-math.inf).verdict
    assert few.met is False
    assert "20 rows are too few to bound what it loses" in few.says


@pytest.mark.parametrize(
    ("target", "are"), [("keep 3 blocks", "are the best:"), (None, "are the smallest that look to be enough:")]
)
def test_blocks_are_enough_only_where_the_verdict_is_met(target, are):
    missed = healed_advice(change_low=-0.2, target=target, within=False)
    assert missed.verdict.met is False
    assert missed.verdict.misses == pytest.approx(0.15)
    first = missed.findings()[0]
    assert first.text.startswith(f"Healed, blocks 1-3 {are}")
    assert first.sure is False


def test_a_target_without_a_tolerance_is_met_by_the_best_healed_plan():
    free = healed_advice(change_low=-0.2, target="keep 3 blocks")
    assert free.verdict.met is True
    assert free.findings()[0].text.startswith("Healed, blocks 1-3 are the best:")
    assert "tolerance" not in free.verdict.says


@pytest.mark.slow
def test_the_bound_of_a_healed_plan_is_that_of_a_plain_cut():
    task = texts()
    low = {}
    for confidence in (0.6, 0.99):
        advice = advice_on(task, blocks=2, remove=None, rules=["last"], confidence=confidence)
        result = heal_advice(advice, task, steps=2, **FEW)
        row = result.frame[result.frame["chosen"]].iloc[0]
        place = list(result.frame["blocks"]).index(row["blocks"]) - 1
        pair = np.stack([result.evaluator.logits(note=False), result.answers[place]])
        compared = Comparison(result.evaluator, pair, result.scoring, Tolerance(0.0))
        bound = compared.in_metric(lower_bound(compared.changes(1), confidence))
        low[confidence] = row["change_low"]
        assert row["change_low"] == pytest.approx(bound, rel=1e-4)
        assert result.verdict.loses == max(-row["change_low"], 0.0)
    assert low[0.99] < low[0.6]
