"""What was asked, and the command that goes on from it."""

import shlex

import numpy as np
import pandas
import pytest

import layerscope as ls
from layerscope.alignment.alignment_study import AlignmentStudy
from layerscope.alignment.injection_study import InjectionStudy
from layerscope.cutting.curves import SkipMap
from layerscope.extraction.representations import LayerSummary
from layerscope.reporting.summary import next_step, question
from layerscope.results import NextStep
from layerscope.results.finding import ADVISE
from layerscope.similarity.influence import Influence
from layerscope.tuning.costs import Strategies

HEADED = "BertForSequenceClassification"


def described(*names, kind=HEADED):
    return [{"name": name, "class": kind, "blocks": 6} for name in names]


def record(kind="truncate", command="", next=ADVISE, models=("m",), **about):
    given = {"data": {"task": "sst2@1"}, "title": "The title", "figures": [], "models": described(*models), **about}
    return ls.Record(kind=kind, command=command, next=next, **given)


def test_a_question_names_models_and_task():
    assert question(record("advise")) == "Which blocks can m lose on sst2, and what does that cost?"
    assert question(record("align", models=("a", "b"))) == "Are a and b the same up to a map on sst2?"
    assert question(record("mine")) == "The title"


def test_a_whole_command_line_is_taken_as_it_is():
    line = "layerscope tune m --task sst2 --strategy '(4, 6, 6)'"
    made = record("specialty", next=NextStep("tune", line=line, why="It is recommended"), models=())
    assert (next_step(made).command, next_step(made).why) == (line, "It is recommended")


@pytest.mark.parametrize("kind", ["truncate", "skip", "evaluate", "influence"])
def test_what_may_go_is_tested_next_on_the_same_data(kind):
    command = shlex.join(
        ["layerscope", kind, "m", "--task", "my data.csv", "--text", "review", "--limit", "9", "-o", "x"]
    )
    assert next_step(record(kind, command)).command == (
        "layerscope advise m --task 'my data.csv' --text review -o advice"
    )
    assert next_step(record(kind)).command == "layerscope advise m --task sst2 -o advice"


def test_a_model_without_a_head_is_not_cut_but_tuned_next():
    def influence(kind):
        models = {"models": described("m", kind=kind)}
        return Influence("influence", ["m"], [1], np.array([0.1]), models).next_step()

    bare = record("influence", next=influence("BertModel"))
    assert next_step(bare).command == "layerscope specialty m --task sst2 -o specialty"
    assert next_step(bare).target == ("specialty", "m")
    headed = record("influence", next=influence(HEADED))
    assert next_step(headed).command == "layerscope advise m --task sst2 -o advice"


def test_what_a_step_is_given_beside_the_task_comes_after_it():
    heal = NextStep("heal", ("--without", "3-4", "-o", "healed"))
    assert next_step(record("advise", next=heal)).command == ("layerscope heal m --task sst2 --without 3-4 -o healed")


def test_a_command_is_run_again_with_more_words():
    asked = "layerscope compare m --task sst2 -o out"
    step = NextStep("compare", ("--measure", "cka"), again=("--ci", "0.95", "--baseline", "200"))
    assert next_step(record("compare", asked, step)).command == f"{asked} --ci 0.95 --baseline 200 --overwrite"
    equal = "layerscope compare m --task sst2 --out=out"
    assert next_step(record("compare", equal, step)).command.endswith("--overwrite")
    bare = "layerscope compare m --task sst2"
    assert next_step(record("compare", bare, step)).command == f"{bare} --ci 0.95 --baseline 200"
    assert next_step(record("compare", "", step)).command == "layerscope compare m --task sst2 --measure cka"


def test_a_step_goes_on_from_what_was_saved():
    step = NextStep("evaluate", saved="")
    assert next_step(record("heal", "layerscope heal m -o out", step)).command == "layerscope evaluate out --task sst2"
    seeds = NextStep("advise", ("-o", "advice"), saved="seed-0")
    told = next_step(record("tune", "layerscope tune m --seeds 2 -o t", seeds)).command
    assert told == "layerscope advise t/seed-0 --task sst2 -o advice"
    assert next_step(record("tune", "layerscope tune m", seeds)) is None  # nothing was saved


def test_no_command_is_given_for_what_a_command_cannot_open():
    """A training in Python is called after its base; that is no source."""
    for name in ("m, tuned", "m, tuned (2)"):
        assert next_step(record("compare", models=(name,))) is None
        assert next_step(record("skip", models=(name, "m"))) is None


def test_a_step_names_its_models():
    pair = NextStep("inject", ("-o", "injected"), models=("a", "b"))
    assert next_step(record("align", next=pair, models=("a", "b"))).command.startswith("layerscope inject a b")
    assert next_step(record("mine", next=None)) is None
    assert next_step(record("truncate", models=())) is None


def test_every_command_that_is_recommended_is_one(invoke_help):
    pair = {"models": described("a", "b")}
    plain = ls.compare([np.eye(6)[:, :2], np.eye(6)[:, 1:3]])
    results = [
        SkipMap(pandas.DataFrame(), {}),
        plain,
        AlignmentStudy(pandas.DataFrame(), pair),
        InjectionStudy(pandas.DataFrame(), pair),
        Strategies([], {}),
        LayerSummary(pandas.DataFrame(), "m", [], {}),
    ]
    steps = [NextStep("advise", ("--heal", "300", "-o", "x")), NextStep("heal", ("--without", "3", "-o", "x"))]
    steps += [NextStep("truncate", ("--curve", "-o", "x")), *(result.next_step() for result in results)]
    made = [record(next=step) for step in steps] + [
        record("compare", "layerscope compare m --task t", plain.next_step())
    ]
    for each in made:
        words = shlex.split(next_step(each).command)
        known = invoke_help(words[1])
        assert [word for word in words if word.startswith("--") and word not in known] == []


@pytest.fixture
def invoke_help():
    """The options of a command."""
    from typer.main import get_command

    from layerscope.cli import app

    def options(name):
        return {opt for parameter in get_command(app).get_command(None, name).params for opt in parameter.opts}

    return options
