"""The first page of a study."""

from types import SimpleNamespace

import pandas
import pytest

from layerscope.recipes import study_page
from layerscope.recipes.study_page import commands_of, first_page, on_sample, smallest_cut
from layerscope.results import Finding, NextStep, Record
from layerscope.results.finding import ANSWER, DETAIL, SUPPORT


def record(kind="evaluate", findings=(), tables=None, **more):
    return Record(kind=kind, title=kind, figures=[], findings=list(findings), tables=tables or {}, **more)


def subject(**changes):
    model = SimpleNamespace(name="mine", label="mine", depth=4, head="classes", positions=512)
    task = SimpleNamespace(words=("--task", "my.csv"), name="my", label_names=("a", "b"))
    usual = {"model": model, "task": task, "base": None, "split": None, "window": None, "whole": 1500, "scored": True}
    return SimpleNamespace(**{**usual, "running": False, "seed": 3, "tokens_per_text": 20.0, **changes})


def advice(chosen=None):
    frame = pandas.DataFrame(
        {
            "blocks": ["1-4", "1-3", "1, 4"],
            "removed": [0, 1, 2],
            "metric": "perplexity",
            "chosen_on": [500.0, 900.0, 880.0],
            "score": [539.0, 950.0, 876.0],
            "savable": True,
        }
    )
    return record("advise", tables={"advice": frame.assign(chosen=[k == chosen for k in range(3)])})


def skips(scores=(800.0, 700.0, 950.0, 940.0)):
    frame = pandas.DataFrame({"first": [1, 2, 3, 4], "last": [1, 2, 3, 4], "score": scores, "metric": "perplexity"})
    return record("truncate", tables={"skips": frame.assign(whole=520.0)})


def test_free_places_go_to_what_is_sure():
    shown = {
        "score": record(findings=[Finding("It has accuracy 0.8.", "n = 40", True, ANSWER)]),
        "changes": record(
            findings=[
                Finding("Layer 5 changed most.", "", None, ANSWER),
                Finding("Blocks 3 and 4 carry 100%.", "", True, SUPPORT),
                Finding("Perhaps more.", "", None, SUPPORT),
                Finding("A detail.", "", True, DETAIL),
            ]
        ),
    }
    page = first_page(shown, {"score": "a sample of 40 of 90 texts"})
    assert [(each.finding.text, each.record) for each in page] == [
        ("It has accuracy 0.8.", 0),
        ("Layer 5 changed most.", 1),
        ("Blocks 3 and 4 carry 100%.", 1),
    ]
    assert page[0].finding.evidence == "n = 40; a sample of 40 of 90 texts"
    many = {f"other-{k}": shown["score"] for k in range(9)}
    assert len(first_page(many, {})) == study_page.MOST


def test_a_finding_has_two_sentences_there():
    text = "No block can go (p = 0.2). It loses 0.3 accuracy, e.g. more than 1 %. That would take 400 rows. And so on."
    page = first_page({"smaller": record(findings=[Finding(text, "", None, ANSWER)])}, {})
    weights = Finding("Block 3 carries 90%. l*, the layer, is 6. More.", "every weight was compared", True, ANSWER)
    told = first_page({"changes": record(findings=[weights])}, {"changes": "a sample of 40 of 90 texts"})[0].finding
    assert str(told) == "Block 3 carries 90%. l*, the layer, is 6 (every weight was compared)."
    assert page[0].finding.text == "No block can go (p = 0.2). It loses 0.3 accuracy, e.g. more than 1 %."


def test_a_better_single_block_of_the_same_report_is_what_is_cut():
    """Advice may try few plans; the skip map tries every block."""
    cut, count = smallest_cut(subject(), {"smaller": advice(), "cuts": skips()})
    assert (cut.gone, count) == ((2,), 5)  # blocks 4 and 2-3 by advice, and 1, 2 and 3 by the map
    assert str(cut) == "perplexity 700, the whole model 520, on the rows that it was picked on, so a little too good"
    worse, count = smallest_cut(subject(), {"smaller": advice(), "cuts": skips((1e4,) * 4)})
    assert (worse.gone, count) == ((2, 3), 5)
    assert str(worse) == "perplexity 876, the whole model 539, on the rows that did not choose it"
    chosen, _ = smallest_cut(subject(), {"smaller": advice(1), "cuts": skips()})
    assert chosen.gone == (4,)
    assert chosen.tolerated
    assert smallest_cut(subject(), {}) is None


def test_commands_are_ready_to_copy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tuned").mkdir()
    step = NextStep("tune", ("--strategy", "(3, 4, 4)"), "Tune under one of several strategies that tie")
    shown = {"smaller": advice(), "cuts": skips(), "tuning": record("specialty", next=step)}
    lines = commands_of(subject(window=64, split="dev"), shown, 0.01)
    assert list(lines.values()) == [
        "layerscope skip mine --blocks 2 --task my.csv --split dev --max-length 64 --save smaller",
        "layerscope heal mine --without 2 --task my.csv --steps 300 -o healed",
        "layerscope tune mine --task my.csv --strategy '(3, 4, 4)' -o tuned-2",
    ]
    why = next(iter(lines))
    assert "picked of 5 plans as losing least: perplexity 700, the whole model 520" in why
    assert "the command scores all 1,500 texts" in why
    assert list(lines)[2] == "Tune under one of several strategies that tie"
    base = SimpleNamespace(name="before", label="before")
    told = commands_of(subject(base=base), shown, 0.01)
    assert list(told)[2].endswith("(of before, the base)")
    assert list(told.values())[2].startswith("layerscope tune before ")


@pytest.mark.parametrize("head", ["next", "tags"])
def test_language_models_and_taggers_have_three_commands_too(head, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = subject(running=head == "next")
    one.model.head = head
    lines = list(commands_of(one, {"cuts": skips()}, 0.01).values())
    assert [line.split()[1] for line in lines] == ["skip", "heal", "heal"]
    assert lines[2] == "layerscope heal mine --task my.csv --steps 300 -o tuned"
    assert [line.split()[1] for line in commands_of(one, {}, 0.01).values()] == ["advise", "heal"]


def test_a_step_on_running_text_is_of_windows():
    assert study_page._step(subject(), 0.01) == pytest.approx(16 * 3 * 0.01)
    assert study_page._step(subject(running=True), 0.01) == pytest.approx(16 * 3 * 512 * 0.01 / 20)


def test_a_sample_is_told_in_its_section():
    told = on_sample(record(), subject(), "a sample of 40 of 90 texts").findings[-1]
    assert (
        told.text == "This part read a sample of 40 of 90 texts, drawn with every class in proportion from my (seed 3)."
    )
    assert "runs of neighbouring texts" in on_sample(record(), subject(running=True), "x").findings[-1].text
    assert on_sample(record(), subject(), "").findings == []
