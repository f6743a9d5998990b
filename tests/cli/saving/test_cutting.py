"""`layerscope truncate` and `layerscope skip` on a tuned model: curve, map, and what is saved agree."""

import json

import pytest

from tests.helpers.cli import run_here


@pytest.mark.slow
def test_cutting_on_the_command_line(tuned_minilm, tmp_path):
    data = ["--task", "pydocs", "--limit", "60"]
    done = run_here("truncate", tuned_minilm, *data, "--curve", "-o", tmp_path / "out", "--format", "json")
    assert done.returncode == 0, done.stderr
    curve = json.loads(done.stdout)["table"]
    assert [row["layer"] for row in curve] == list(range(7))
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        *("truncation.csv", "truncation.parquet", "truncation.png", "truncate-record"),
    }
    done = run_here("truncate", tuned_minilm, *data, "--keep", 5, "--save", tmp_path / "small")
    assert done.returncode == 0, done.stderr
    assert "reopened and compared" in done.stdout
    done = run_here("evaluate", tmp_path / "small", *data, "--format", "json")
    assert json.loads(done.stdout)["table"][0]["score"] == curve[5]["score"]
    assert f"{curve[5]['score']:.4f}" in (tmp_path / "small" / "README.md").read_text()
    done = run_here("skip", tuned_minilm, *data, "--map", "--max-span", 1, "-o", tmp_path / "out", "--format", "json")
    spans = json.loads(done.stdout)["table"]
    assert [(row["first"], row["last"]) for row in spans] == [(b, b) for b in range(1, 7)]
    done = run_here("skip", tuned_minilm, *data, "--blocks", "3", "--format", "json")
    assert json.loads(done.stdout)["table"][1]["score"] == spans[2]["score"]
