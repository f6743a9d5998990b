"""Verdicts as a table, and what is made of it."""

from pathlib import Path

import pandas
import pytest

import layerscope as ls
from layerscope.recipes.claims import Claim, Statistic
from layerscope.recipes.experiment_run import ExperimentRun
from layerscope.recipes.recipe import Experiment, Profile
from layerscope.recipes.reproduction import COLUMNS, Reproduction, summarised, verdicts

EXPERIMENT = Experiment(name="fig1", title="t", where="figure 1", calls=())
PROFILE = Profile.model_validate({"models": {"a": "x", "b": "y"}})


def claim(name, **changes):
    return Claim(
        name=name,
        paper="p",
        experiment="fig1",
        where="w",
        says="s",
        about="c",
        statistic="diagonal",
        refuted="r",
        **{"above": 0.0, **changes},
    )


ALONE, COMPARED = claim("alone"), claim("compared", over=("a", "b"))


def done(*entries):
    """(model, task, value): decided clearly."""
    return [
        (
            ExperimentRun("p", EXPERIMENT, {"model": m, "task": t}, PROFILE),
            {n: Statistic(v, v - 1, v + 1) for n in ("alone", "compared")},
        )
        for m, t, v in entries
    ]


@pytest.fixture
def frame():
    return verdicts([ALONE, COMPARED], done(("a", "x", 5), ("a", "y", -5), ("b", "x", 3), ("b", "y", 0.5)))


def test_one_row_per_claim_and_combination(frame):
    assert list(frame) == COLUMNS
    alone = frame[frame["claim"] == "alone"]
    assert alone["on"].tolist() == ["a, x", "a, y", "b, x", "b, y"]
    assert alone["verdict"].tolist() == ["holds", "does not hold", "holds", "undecided"]


def test_two_models_are_compared_where_all_else_is_the_same(frame):
    compared = frame[frame["claim"] == "compared"]
    assert compared["on"].tolist() == ["a less b, x", "a less b, y"]
    assert compared["value"].tolist() == [2, -5.5]
    assert compared["high"].iloc[0] == pytest.approx(2 + 2**0.5)
    missing = verdicts([COMPARED], done(("a", "x", 5)))
    assert missing["note"].tolist() == ["b is none of the models that were run"]
    assert missing["verdict"].tolist() == ["not testable"]


def test_a_comparison_that_lacks_one_side_is_named():
    """A job that failed leaves its partner alone: the claim must not drop out of the table."""
    table = verdicts([COMPARED], done(("a", "x", 5), ("b", "x", 3), ("a", "y", 5), ("b", "z", 3)))
    assert table["on"].tolist() == ["a less b, x", "a less b, y", "a less b, z"]
    assert table["verdict"].tolist() == ["holds", "not testable", "not testable"]
    assert table["note"].tolist()[1:] == [f"{m} was not run, or failed, on the same" for m in ("b", "a")]


def test_the_summary_counts_and_names_the_models(frame):
    row = summarised(frame).iloc[0]
    assert [row[v] for v in ("holds", "does not hold", "undecided", "not testable")] == [2, 1, 1, 0]
    assert (row["held in"], row["held in part in"], row["models decided"]) == ("b", "a", 2)


def test_a_reproduction_is_a_result(frame, tmp_path):
    result = Reproduction(frame, {}, {"sst2": "it is not here"}, Path("out"))
    assert result.claims is result.frame
    assert str(result.findings()[0]) == "alone: holds in 2 of 4, does not hold in 1, undecided in 1."
    never = Reproduction(verdicts([COMPARED], done(("a", "x", 5))), {}, {}, Path("out"))
    assert [finding.text for finding in never.findings()] == [
        "compared: not testable in 1.",
        "No claim could be tested.",
    ]
    assert str(result.findings()[-1]) == "Left out: sst2: it is not here"
    assert "1 left out" in repr(result)
    record = ls.Record.of("reproduce", "t", {"claims": result})
    assert ls.read_record(ls.write_record(tmp_path / "r", record)).figures[0].title == "Claims"
    assert "Reproduction(no claim was decided" in repr(Reproduction(pandas.DataFrame(columns=COLUMNS), {}, {}, Path()))


def test_claims_are_counted_and_undecided_ones_are_not_sure():
    verdicts = {
        "claim": ["A", "A", "B", "B", "C"],
        "verdict": ["holds", "holds", "holds", "undecided", "not testable"],
    }
    frame = pandas.DataFrame(verdicts).reindex(columns=COLUMNS).assign(paper="p", where="here", models="m")
    a, b, c, first = Reproduction(frame, {}, {}, Path("out")).findings()
    assert first.text == "1 of 2 claims hold wherever they were tested: A."
    assert first.sure is False
    assert a.text == "A: holds in 2 of 2."
    assert a.sure is True
    assert b.text == "B: holds in 1 of 2, undecided in 1."
    assert b.sure is False
    assert c.sure is None
