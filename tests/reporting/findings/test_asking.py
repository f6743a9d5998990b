"""What was asked, and the command that goes on from it."""

import shlex

import pandas
import pytest

import layerscope as ls
from layerscope.reporting.findings.asking import next_step, numbers_in, question


def record(kind="truncate", command="", tables=None, models=("m",), **about):
    listed = [{"name": name, "class": "BertForSequenceClassification", "blocks": 6} for name in models]
    given = {"data": {"task": "sst2@1"}, "title": "The title", "figures": [], **about}
    return ls.Record(kind=kind, command=command, tables=tables or {}, models=listed, **given)


def test_a_question_names_models_and_task():
    assert question(record("advise")) == "Which blocks can m lose on sst2, and what does that cost?"
    assert question(record("align", models=("a", "b"))) == "Are a and b the same up to a map on sst2?"
    assert question(record("mine")) == "The title"


def test_a_sentence_that_recommends_a_command_is_believed():
    made = record("specialty", findings=("l* is 3.", "Next: layerscope tune m --task sst2 --strategy '(4, 6, 6)'"))
    assert next_step(made).command == "layerscope tune m --task sst2 --strategy '(4, 6, 6)'"


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
    bare = ls.Record(
        **{"kind": "influence", "title": "x", "figures": [], "data": {"task": "sst2"}},
        models=[{"name": "m", "class": "BertModel", "blocks": 6}],
    )
    assert next_step(bare).command == "layerscope specialty m --task sst2 -o specialty"
    assert next_step(bare).target == ("specialty", "m")


def test_advice_goes_on_to_healing_what_it_leaves_out():
    frame = pandas.DataFrame({"blocks": ["1-6", "1-2, 5-6"], "removed": [0, 2], "chosen": [False, True]})
    step = next_step(record("advise", tables={"advice": frame}))
    assert step.command == "layerscope heal m --task sst2 --without 3-4 -o healed"
    kept = frame.assign(chosen=[True, False])
    assert "--heal 300" in next_step(record("advise", tables={"advice": kept})).command


def test_a_comparison_gets_intervals_first_and_then_goes_on():
    asked = "layerscope compare m --task sst2 -o out"
    again = next_step(record("compare", asked)).command
    assert again == f"{asked} --ci 0.95 --baseline 200 --overwrite"
    assert next_step(record("compare", again)).command == "layerscope truncate m --task sst2 --curve -o truncated"


def test_no_command_is_given_for_what_a_command_cannot_open():
    """A training in Python is called after its base; that is no source."""
    for name in ("m, tuned", "m, tuned (2)"):
        assert next_step(record("compare", models=(name,))) is None
        assert next_step(record("skip", models=(name, "m"))) is None


def test_other_commands_go_on_too():
    best = pandas.DataFrame(
        {"resolved": ["(1, 6, 6)", "(5, 6, 6)"], "method": "lora", "score": [0.7, 0.8], "metric": "accuracy"}
    )
    assert "--strategy '(5, 6, 6)' --method lora" in next_step(record("study", tables={"s": best})).command
    assert next_step(record("align", models=("a", "b"))).command.startswith("layerscope inject a b")
    assert next_step(record("heal", "layerscope heal m -o out")).command == "layerscope evaluate out --task sst2"
    assert "--without 5-6" in next_step(record("cut", title="m on t: keep 1-4, head on layer 4")).command
    assert next_step(record("tune", "layerscope tune m -o t")).command == "layerscope advise t --task sst2 -o advice"
    assert next_step(record("mine")) is None
    assert next_step(record("truncate", models=())) is None


def test_every_command_that_is_recommended_is_one(invoke_help):
    frame = pandas.DataFrame({"blocks": ["1-6", "1-4"], "removed": [0, 2], "chosen": [False, True]})
    made = [
        record("truncate"),
        record("advise", tables={"advice": frame}),
        record("compare", "layerscope compare m --task t"),
        record("align", models=("a", "b")),
        record("inject", models=("a", "b")),
        record("strategies"),
        record("extract"),
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
        return {opt for parameter in get_command(app).commands[name].params for opt in parameter.opts}

    return options


def test_blocks_are_read_as_they_are_written():
    assert numbers_in("1-3, 5") == {1, 2, 3, 5}
