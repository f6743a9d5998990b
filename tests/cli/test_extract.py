"""`layerscope extract`"""

import json

import pytest

import layerscope as ls
import layerscope.cli.extract
from tests.helpers.cli import run_here


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
    records = json.loads(done.stdout)["table"]
    assert [r["layer"] for r in records] == ["0", "2", "3"]
    assert records[0]["top_direction"] is None  # the summary token of layer 0: undefined, not 0


def test_bad_rows_stop_or_are_skipped(model, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("text,label\nthe file,1\n,0\na list,0\n")
    done = run_here("extract", model, "--task", path)
    assert done.returncode == 2
    assert "line 3, column 'text'" in done.stderr
    done = run_here("extract", model, "--task", path, "--skip-bad", "--format", "json")
    assert json.loads(done.stdout)["table"][0]["rows"] == 2
    assert "note: 1 of 3 rows" in done.stderr


def test_a_field_that_is_too_long_is_a_sentence(model, tmp_path):
    path = tmp_path / "long.csv"
    path.write_text(f"text,label\n{'the file ' * 100},1\na list,0\n")
    done = run_here("extract", model, "--task", path, "--max-field", "500")
    assert done.returncode == 2
    assert "line 2: a field has more than 500 characters" in done.stderr
    assert run_here("extract", model, "--task", path, "--max-field", "1000").returncode == 0


def test_rows_and_their_record_are_there_together_or_not_at_all(model, reviews, tmp_path, monkeypatch):
    """Another command that writes the same folder in between leaves one of them whole."""
    out, once = tmp_path / "rows", []
    arguments = ("extract", model, "--task", reviews, "--text", "review", "-o", out, "--overwrite")
    keep = layerscope.cli.extract.keep

    def crowded(*given, **options):
        if not once:
            once.append(1)
            assert run_here(*arguments).returncode == 0
        keep(*given, **options)

    monkeypatch.setattr(layerscope.cli.extract, "keep", crowded)
    done = run_here(*arguments)
    assert done.returncode == 0, done.stderr
    assert str(out / "extract-record") in done.stderr
    assert sorted(path.name for path in out.iterdir()) == [
        *("extract-record", "representations.json", "shard-00000.safetensors"),
    ]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert ls.read_record(out / "extract-record").kind == "extract"
    monkeypatch.setattr(layerscope.cli.extract, "keep", lambda *_, **__: 1 / 0)
    before = (out / "representations.json").read_text()
    with pytest.raises(ZeroDivisionError):
        run_here(*arguments, "--limit", "2")
    assert (out / "representations.json").read_text() == before
