"""The page of claims is what its command makes of its data, and the plan behind it has every claim."""

import json
import math
from types import SimpleNamespace

import pandas
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from layerscope.recipes.claims import claims
from tests.helpers.cli import ROOT, script

RESULTS = ROOT / "docs" / "results"


@pytest.fixture(scope="module")
def claims_script():
    return script("docs/results/claims.py")


def test_the_page_is_made_of_the_data(monkeypatch):
    monkeypatch.syspath_prepend(str(RESULTS))
    data = json.loads((RESULTS / "claims.json").read_text(encoding="utf-8"))
    made = script("docs/results/claims_page.py")
    page = made.page(data["about"], data["missing"], data["jobs"])
    assert page == (RESULTS / "claims.md").read_text(encoding="utf-8")
    assert made.table(data["jobs"]) == (RESULTS / "claims.csv").read_text(encoding="utf-8")
    for claim in claims():
        assert f"| {claim.says.replace('|', chr(92) + '|')} ({claim.where}) |" in page
    papers = dict.fromkeys(claim.paper for claim in claims())
    assert all((RESULTS / f"claims-{paper}.png").is_file() for paper in papers)


def test_a_verdict_in_a_word_follows_from_the_decided_rows(monkeypatch):
    word = script("docs/results/claims_page.py").word
    cases = {"holds": "hhu", "fails": "ffn", "mostly holds": "hhf", "mixed": "hffn", "open": "un"}
    names = {"h": "holds", "f": "does not hold", "u": "undecided", "n": "not testable"}
    for expected, rows in cases.items():
        assert word(pandas.DataFrame({"verdict": [names[letter] for letter in rows]})) == expected


@pytest.mark.parametrize("claim", claims()[::9], ids=lambda claim: claim.name)
def test_words_about_no_row_stand_beside_the_threshold(claim):
    canvas = Figure(figsize=(9, 1), layout="constrained")
    FigureCanvasAgg(canvas)
    ax = canvas.subplots()
    script("docs/results/claims_page.py")._strip(ax, claim, pandas.DataFrame({"verdict": []}))
    canvas.draw_without_rendering()
    (words,) = [text for text in ax.texts if text.get_text() == "no row could be tested"]
    threshold = ax.lines[0].get_window_extent().x1
    assert words.get_window_extent().x0 > threshold + 2


def test_evidence_is_for_the_claims_that_have_little(claims_script, monkeypatch):
    """Strategies around l* only where nu picks no end; eight pairs of seeds; freezing of all models."""
    monkeypatch.setattr(claims_script, "_picks_inside", lambda step, *_: "bert" in step.models)
    planned = claims_script.cells(list(claims_script.evidence({"bge": "somewhere"})), False, {}, {})
    studied = [cell for cell in planned.values() if cell.experiment.name == "table6"]
    assert {cell.chosen["model"] for cell in studied} == {"bert"}
    assert studied[0].profile.settings["methods"] == ["finetune", "adapter"]
    couples = {tuple(c.chosen["couple"]) for c in planned.values() if c.experiment.name == "table5"}
    assert len({frozenset(couple) for couple in couples}) == 8
    frozen = {cell.chosen["model"] for cell in planned.values() if cell.experiment.name == "table1"}
    assert {"bge", "electra", "gpt2"} <= frozen
    for name in ("table3", "fig4"):
        own = [cell for cell in planned.values() if cell.experiment.name == name]
        assert {cell.chosen["task"] for cell in own} == {"sst2", "mnli", "mrpc"}
        settings = own[0].profile.settings
        assert "inn start=plain" in settings["known" if name == "table3" else "section5"]


def test_a_job_is_done_again_for_claims_that_it_knows_nothing_of(claims_script, tmp_path):
    findings = claims_script.Findings(tmp_path / "claims.json")
    cell = SimpleNamespace(claims=[SimpleNamespace(name="old"), SimpleNamespace(name="new")])
    findings.jobs = {"early": {"statistics": {"old": {}}}, "whole": {"statistics": {"old": {}, "new": {}}}}
    findings.jobs["failed"] = {"reason": "memory"}
    assert [findings.lacks(name, cell) for name in ("early", "whole", "failed", "none")] == [True, False, True, True]


def steps(claims_script):
    return list(claims_script.steps({"bge": "somewhere"}, {"smollm2": "elsewhere"}))


def test_every_claim_is_tested_on_the_first_task(claims_script):
    planned = claims_script.cells(steps(claims_script), False, {}, {})
    known = {(cell.paper, claim.name) for cell in planned.values() for claim in cell.claims}
    assert known == {(claim.paper, claim.name) for claim in claims()}
    first = [cell for name, cell in planned.items() if not {"mrpc", "stsb"} & set(map(str, cell.chosen.values()))]
    assert {claim.name for cell in first for claim in cell.claims} == {claim.name for claim in claims()}


def test_what_cannot_be_had_is_left_out_of_every_list(claims_script):
    planned = claims_script.cells(steps(claims_script), False, {"bge": "gone", "elmo": "gone", "mrpc": "gone"}, {})
    assert not [name for name in planned if "bge" in name or "mrpc" in name]
    everything = next(cell for name, cell in planned.items() if name.startswith("wu2020 fig1"))
    assert "elmo" not in everything.profile.models
    assert "elmo4" in everything.profile.models


def test_a_rehearsal_has_every_experiment_model_and_task(claims_script):
    planned = claims_script.cells(steps(claims_script), True, {}, {})
    some = claims_script.enough(planned)
    assert {(c.paper, c.experiment.name) for c in some.values()} == {
        (c.paper, c.experiment.name) for c in planned.values()
    }
    assert len(some) < len(planned) / 4


def test_what_jobs_gave_survives_being_written(claims_script, tmp_path):
    findings = claims_script.Findings(tmp_path / "claims.json")
    findings.jobs["a job"] = {"statistics": {"a claim": claims_script._plain({"value": math.nan, "low": math.inf})}}
    findings.write()
    again = claims_script.Findings(tmp_path / "claims.json")
    assert again.jobs == {"a job": {"statistics": {"a claim": {"value": None, "low": None}}}}
