"""`layerscope extract`"""

import json

from command import run_here

import layerscope as ls


def test_extract_prints_a_table_or_json_and_saves(model, reviews, tmp_path):
    out = tmp_path / "rows"
    done = run_here("extract", model, "--task", reviews, "--text", "review", "--label", "stars", "-o", out)
    assert done.returncode == 0, done.stderr
    assert "reviews (all), pool cls" in done.stdout
    assert "Saved in" in done.stdout
    reps = ls.Representations.load(out)
    assert reps.labels.tolist() == [1, 0, 0]
    assert reps.label_names == ("1", "5")
    done = run_here("extract", model, "--task", reviews, "--text", "review", "--layers", "0,2-3", "--format", "json")
    records = json.loads(done.stdout)
    assert [r["layer"] for r in records] == ["0", "2", "3"]
    assert records[0]["top_direction"] is None  # the summary token of layer 0: undefined, not 0


def test_bad_rows_stop_or_are_skipped(model, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("text,label\nthe file,1\n,0\na list,0\n")
    done = run_here("extract", model, "--task", path)
    assert done.returncode == 2
    assert "line 3, column 'text'" in done.stderr
    done = run_here("extract", model, "--task", path, "--skip-bad", "--format", "json")
    assert json.loads(done.stdout)[0]["rows"] == 2
    assert "note: 1 of 3 rows" in done.stderr
