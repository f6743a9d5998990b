"""`layerscope report` and `layerscope figures`"""

import json
from pathlib import Path

import pytest

import layerscope as ls
from tests.helpers.cli import run_here
from tests.helpers.figures import record_of_every_kind


@pytest.fixture
def record(tmp_path):
    return ls.write_record(tmp_path / "out" / "compare-record", record_of_every_kind())


def test_a_report_is_one_file(record, tmp_path):
    page = tmp_path / "page.html"
    done = run_here("report", record.parent, "-o", page, "--title", "Ours")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"The report is {page} ({page.stat().st_size / 1e6:.1f} MB).\n"
    assert "<title>Ours</title>" in page.read_text()


def test_every_figure_is_a_file(record, tmp_path):
    done = run_here("figures", record, "--format", "svg", "--width", "8cm", "-o", tmp_path / "figures")
    assert done.returncode == 0, done.stderr
    paths = done.stdout.split()
    assert len(paths) == len(record_of_every_kind().figures)
    assert {path.rsplit(".", 1)[1] for path in paths} == {"svg", "csv"}


@pytest.mark.parametrize("command", ["report", "figures"])
def test_what_holds_no_record_is_a_sentence(command, tmp_path):
    done = run_here(command, tmp_path / "absent", "-o", tmp_path / "x.html")
    assert done.returncode == 2
    assert "There is no record" in done.stderr
    (tmp_path / "empty").mkdir()
    done = run_here(command, tmp_path / "empty", "-o", tmp_path / "x.html")
    assert done.returncode == 2
    assert "is not a record and holds none" in done.stderr


def test_a_width_that_is_none(record, tmp_path):
    done = run_here("figures", record, "--width", "wide", "-o", tmp_path / "figures")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")


def test_a_report_answers_in_json(record, tmp_path):
    page = tmp_path / "page.html"
    done = run_here("report", record.parent, "-o", page, "--format", "json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["asked"]["command"] == "report"
    assert said["saved"] == {"file": str(page), "how": "one page that needs no network"}
    assert said["table"] == [{"file": str(page), "megabytes": round(page.stat().st_size / 1e6, 1)}]


@pytest.mark.parametrize(("format", "suffixes"), [("json", {".pdf", ".csv"}), ("svg, json", {".svg", ".csv"})])
def test_figures_answer_in_json_beside_any_format_of_pictures(record, tmp_path, format, suffixes):
    out = tmp_path / "figures"
    done = run_here("figures", record, "--format", format, "-o", out)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["saved"]["folder"] == str(out)
    assert said["asked"]["options"]["format"] == format
    assert {Path(row["file"]).suffix for row in said["table"]} == suffixes
    assert all(Path(row["file"]).is_file() and row["file"].endswith(row["format"]) for row in said["table"])


def test_figures_for_latex(record, tmp_path):
    done = run_here("figures", record, "--format", "tex", "-o", tmp_path / "figures")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == str(tmp_path / "figures" / "figures.tex")
    done = run_here("figures", record, "--format", "gif", "-o", tmp_path / "figures")
    assert done.returncode == 2
    assert "no figure format 'gif'; allowed: pdf, svg, png, tex" in done.stderr
