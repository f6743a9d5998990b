"""The section on language models: plans, rules and healing side by side."""

import math

import pandas
import pytest

import layerscope as ls
from layerscope.reporting.language import WHOLE, healing_rows, language_section, plan_rows
from layerscope.results import Finding

MODEL = {"name": "lm", "class": "LlamaForCausalLM", "blocks": 4}


def record(name, table, **settings):
    about = {"title": name, "figures": [], "models": [MODEL], "data": {"task": "wikitext", "n": 40}}
    findings = [Finding(f"This is {name}.")]
    return ls.Record(kind="x", tables={name: table}, settings=settings, findings=findings, **about)


def candidates():
    rows = [("1-4", 0, "", 20.0), ("1-3", 1, "last", 90.0), ("1, 3-4", 1, "angular", 25.0), ("2-4", 1, "random", 40.0)]
    frame = pandas.DataFrame(rows, columns=["blocks", "removed", "rule", "score"])
    frame = frame.assign(low=frame["score"] - 2, high=frame["score"] + 2, chosen_on=frame["score"], parameters=10)
    about = {"metric": "perplexity", "chosen": [False, False, True, False], "change": math.nan, "change_low": math.nan}
    return record("advice", frame.assign(**about), rules=["last", "angular", "random"], confidence=0)


def healed():
    row = {"model": "lm", "metric": "perplexity", "uncut": 20.0, "cut": 80.0, "healed": 40.0, "tokens": 100}
    return record("healing", pandas.DataFrame([row]), without="2")


def test_there_is_no_section_without_a_language_model():
    frame = pandas.DataFrame([{"model": "m", "task": "t", "metric": "accuracy", "score": 0.5, "majority": 0.3}])
    assert language_section([record("score", frame)]) is None


def test_plans_rules_and_healing_stand_side_by_side():
    section = language_section([candidates(), healed()])
    figures = {figure.title: figure for figure in section.figures}
    assert list(figures) == [
        "Perplexity by the number of blocks that go",
        "Perplexity by plan",
        "Rules side by side",
        "Before and after healing",
        "Before and after healing: the numbers",
    ]
    curve = figures["Perplexity by the number of blocks that go"]
    assert [(series.name, series.y) for series in curve.series] == [
        ("last", (20.0, 90.0)),
        ("angular", (20.0, 25.0)),
        ("random", (20.0, 40.0)),
    ]
    side = figures["Rules side by side"].table
    assert (side["last"], side["angular"], side["best"]) == ([90.0], [25.0], ["angular"])
    assert figures["Before and after healing"].values == (20.0, 80.0, 40.0)
    brought = math.log(80 / 40) / math.log(80 / 20)
    assert figures["Before and after healing: the numbers"].table["brought back"] == [f"{brought:.0%}"]
    assert [finding.text for finding in section.findings] == ["This is advice.", "This is healing."]


def test_a_curve_of_the_lens_is_a_rule_of_its_own():
    frame = pandas.DataFrame({"layer": [0, 1, 2], "score": [1e9, 200.0, 20.0], "low": 1.0, "high": 2.0})
    made = record("truncation", frame.assign(majority=math.nan, macs=1, metric="perplexity"))
    assert [(row["rule"], row["removed"], row["blocks"]) for row in plan_rows(made)] == [
        ("top blocks", 2, "none"),
        ("top blocks", 1, "1"),
        ("", 0, "1-2"),
    ]
    drawn = language_section([made]).figures[0]
    assert drawn.series[0].y == (20.0, 200.0)  # without the embeddings alone, which would flatten the rest
    assert not drawn.log


def test_scores_that_lie_far_apart_get_powers_of_ten():
    made = candidates()
    made.tables["advice"].loc[1, "score"] = 900.0
    assert language_section([made]).figures[0].log


def test_a_healed_front_is_read_too():
    frame = pandas.DataFrame(
        {"blocks": ["1-4", "1-3"], "removed": [0, 1], "before": [20.0, 90.0], "after": [20.0, 30.0]}
    )
    rows = healing_rows(record("healed", frame.assign(metric="perplexity", chosen=False, low=1.0, high=2.0)))
    assert rows == [{"model": "lm", "plan": "keep 1-3", "uncut": 20.0, "cut": 90.0, "healed": 30.0}]


@pytest.mark.parametrize("name", ["score", "cut"])
def test_whole_models_are_plans_too(name):
    frame = pandas.DataFrame([{"model": "lm", "task": "t", "metric": "perplexity", "score": 9.0, "majority": math.nan}])
    if name == "cut":
        frame = pandas.DataFrame({"blocks": ["1-4", "keep 1-2"], "metric": "perplexity", "score": [9.0, 50.0]})
        frame = frame.assign(parameters=1)
    assert plan_rows(record(name, frame))[0]["blocks"] == WHOLE


def test_the_page_has_the_section(tmp_path):
    page = ls.report([candidates(), healed()], tmp_path / "r.html").read_text()
    assert '<section class="record" id="language-models"' in page
    assert page.index('id="summary"') < page.index('id="language-models"') < page.index('id="record-1"')


def test_a_table_is_known_by_its_result_whatever_it_is_called(tmp_path):
    made = ls.Score(
        9.0, metric="perplexity", metrics={}, n=5, majority=math.nan, provenance={"models": [MODEL], "data": {}}
    )
    written = ls.write_record(tmp_path / "r", ls.Record.of("evaluate", "x", {"whatever": made}))
    for each in (ls.Record.of("evaluate", "x", {"whatever": made}), ls.read_record(written)):
        assert plan_rows(each)[0]["score"] == 9.0
    assert plan_rows(record("mine", made.frame)) == []


@pytest.mark.parametrize("name", ["advice", "truncation", "skip-map", "cut", "score", "healing", "healed"])
def test_a_table_of_somebody_else_is_left_out(name, tmp_path, caplog):
    columns = ["blocks", "removed", "rule", "score", "chosen", "layer", "uncut", "cut", "healed", "before", "after"]
    odd = pandas.DataFrame({column: ["x"] for column in columns})
    for frame in (odd, odd.assign(metric="perplexity"), pandas.DataFrame({"metric": ["perplexity"]}), odd.iloc[:0]):
        ls.report(record(name, frame), tmp_path / "r.html")
    assert name == "skip-map" or "not as layerscope writes them" in caplog.text
