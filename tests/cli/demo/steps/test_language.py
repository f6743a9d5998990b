"""The step of the demo on a language model."""

import importlib.util
from types import SimpleNamespace

import pandas
import pytest

import layerscope as ls
from layerscope.cli.demo import stage as demo_stage
from layerscope.cli.demo import steps as demo_steps
from layerscope.cli.demo import steps as language
from layerscope.errors import ModelError
from tests.helpers.cli import numbers_in
from tests.helpers.data import random_texts
from tests.helpers.models import language_model


def test_what_is_said_is_what_was_measured(played):
    found = next(each for each in played.done if each.step == "language")
    record = ls.read_record(found.record)
    s, model = played.settings, ls.load(played.settings.language_model)
    stage = demo_stage.Stage(s, played.out)
    options = {"limit": language.fitting(model, stage.texts, s.language_tokens), "max_length": s.window}
    frame = record.tables["advice"]
    assert 3 <= len(frame) <= 12
    assert set(", ".join(frame["rule"]).split(", ")) >= {"angular", "last", "random"}
    smaller = ls.load(str(played.out / language.SMALLER_LM))
    assert smaller.depth < model.depth
    score = ls.evaluate(smaller, ls.task(s.task, kind="text"), **options)
    assert f"perplexity {float(score):.1f} over all {int(score.metrics['tokens']):,} tokens" in found.findings[-1]
    distance = ls.compare(model, measure="angular", task=s.task, pool="tokens", **options).values
    steps = [round(float(distance[k - 1, k]), 3) for k in range(1, model.depth + 1)]
    assert sorted(numbers_in(found.findings[0])) == [min(steps), max(steps)]
    assert any("angular" in figure.title.lower() or "angular" in figure.shows for figure in record.figures)


def test_no_more_tokens_are_read_than_were_asked_for():
    model = language_model("llama")
    examples = SimpleNamespace(texts=random_texts(20))
    for tokens in (10, 50, 100):
        count = language.fitting(model, examples, tokens)
        joined = len(model.tokenizer("\n\n".join(examples.texts[:count]), add_special_tokens=False)["input_ids"])
        assert joined <= tokens or count == 1
    assert language.fitting(model, examples, 10**6) == 20


def test_where_every_plan_loses_too_much_the_least_loss_is_taken():
    frame = pandas.DataFrame(
        {"blocks": ["1-4", "1-3", "2-4"], "removed": [0, 1, 1], "chosen_on": [9.0, 30.0, 20.0], "savable": True}
    )
    whole = SimpleNamespace(
        choice=ls.LayerPlan([1, 2, 3, 4]), frame=frame, evaluator=SimpleNamespace(model=SimpleNamespace(depth=4))
    )
    plan, row = language._chosen(whole)
    assert (plan.keep, row["chosen_on"]) == ((2, 3, 4), 20.0)


def test_without_the_model_the_step_is_left_out_by_name(monkeypatch):
    settings = demo_stage.Settings()
    step = next(step for step in demo_steps.STEPS if step.name == "language")

    def absent():
        raise ModelError("install it so.")

    monkeypatch.setattr(language, "demo_lm_file", absent)
    assert step.missing(settings) == "install it so."
    monkeypatch.setattr(language, "demo_lm_file", lambda: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert "layerscope[gguf]" in step.missing(settings)


@pytest.mark.parametrize("model", ["a/folder", "garden:gpt-s0"])
def test_another_language_model_needs_nothing_more(model):
    assert language.missing(demo_stage.Settings(language_model=model)) == ""
