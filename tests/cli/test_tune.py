"""`layerscope tune` and `layerscope strategies`"""

import json

import pytest

import layerscope as ls
from layerscope.errors import InputError
from tests.helpers.cli import run_here


def test_tuning_on_the_command_line(model, labelled, tmp_path):
    quick = ["--task", labelled, "--epochs", "1", "--batch", "8", "--format", "json"]
    done = run_here("tune", model, *quick, "--strategy", "(l*, L, L)", "--seeds", "2", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["table"]
    assert [row["seed"] for row in rows] == [0, 1]
    assert done.stderr.count("with the least nu") == 1
    assert ls.load(str(tmp_path / "out" / "seed-1" / "checkpoint")).depth == 4
    done = run_here("evaluate", tmp_path / "out" / "seed-0" / "checkpoint", "--task", labelled, "--format", "json")
    assert json.loads(done.stdout)["table"][0]["score"] == rows[0]["score"]
    done = run_here("tune", model, *quick, "--study", "--specialty-layer", "4", "-o", tmp_path / "study")
    assert done.returncode == 0, done.stderr
    assert {p.name for p in (tmp_path / "study").iterdir()} == {
        *("strategies.csv", "strategies.parquet", "strategies.png", "study-record"),
    }
    assert "(l*+1, L, L) with finetune is left out" in done.stderr
    assert "One seed gives no standard error" in done.stderr
    done = run_here("tune", model, *quick, "--learning-rate", "fast")
    assert done.returncode == 2
    assert "--learning-rate is 'fast'" in done.stderr


def test_a_training_that_learned_nothing_is_named(model, labelled):
    quick = ["--task", labelled, "--max-steps", 1, "--batch", 8, "--format", "json"]
    done = run_here("tune", model, *quick, "--learning-rate", "1e-12")
    (row,) = json.loads(done.stdout)["table"]
    assert ("no better than always giving the most frequent class" in done.stderr) == (row["score"] <= row["majority"])
    done = run_here("tune", model, *quick[:2], "--epochs", 12, *quick[4:], "--learning-rate", "1e-2")
    (row,) = json.loads(done.stdout)["table"]
    assert row["score"] > row["majority"]
    assert "no better than" not in done.stderr


def test_strategies_on_the_command_line(model, labelled):
    done = run_here("strategies", model, "--task", labelled, "--specialty-layer", "2", "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = {row["strategy"]: row for row in json.loads(done.stdout)["table"]}
    assert rows["(l*-2, l*, L)"]["blocks"] == "1-2"
    assert rows["(L, L, L)"]["blocks"] == "4"
    assert rows["full"]["trainable"] == rows["full"]["parameters"]


def test_a_training_and_its_record_are_put_in_place_together(model, labelled, tmp_path, monkeypatch):
    out, quick = tmp_path / "out", ["--max-steps", 1, "--batch", 8]
    assert run_here("tune", model, "--task", labelled, *quick, "-o", out).returncode == 0
    before = {path.name for path in out.iterdir()}
    assert {"training.json", "checkpoint", "tune-record"} <= before

    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("layerscope.results.record_folder", stopped)  # after the training's files are written
    assert run_here("tune", model, "--task", labelled, *quick, "--seed", 1, "-o", out, "--overwrite").returncode == 130
    assert {path.name for path in out.iterdir()} == before
    assert ls.read_record(out / "tune-record").settings["seed"] == 0


def test_several_trainings_run_where_they_are_asked_to(model, labelled, invoke, posted, tmp_path):
    given = ["tune", model, "--task", labelled, "--strategy", "head-only", "--max-steps", "2", "--engine", "posted"]
    assert invoke(*given, "--seeds", "2", "-o", tmp_path / "out").exit_code == 0
    assert [name.split(", ")[1] for name in posted] == ["seed 0", "seed 1"]
    assert ls.load(str(tmp_path / "out" / "seed-1" / "checkpoint")).depth == 4
    with pytest.raises(InputError, match=r"engine='posted' \(--engine\) spreads several trainings, and this is one"):
        invoke(*given)
