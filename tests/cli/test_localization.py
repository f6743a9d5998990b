"""`layerscope localization`"""

import json
from pathlib import Path

import pytest

import layerscope as ls
from tests.helpers.cli import run_here


def test_localization_on_the_command_line(model, tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(f"the file is {'a ' * (i % 7)}list {i}" for i in range(60)) + "\n")
    done = run_here("localization", model, "--task", path, "--format", "json", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["table"]
    curve = ls.localization(model, task=path, pool="mean")
    assert [row["layer"] for row in rows] == curve.layers
    assert [row["localization"] for row in rows] == pytest.approx(curve.values.tolist(), abs=1e-6)
    assert {p.name for p in (tmp_path / "out").iterdir()} >= {"localization.png", "localization-record"}
    done = run_here("localization", model, "--task", path, "--standardize", "--pool", "words")
    assert done.returncode == 0, done.stderr
    assert "Localization of the layers of" in done.stdout


def test_models_have_names_of_their_own_and_never_paths(model, tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(f"the file is {'a ' * (i % 7)}list {i}" for i in range(40)) + "\n")
    given = ("localization", model, model, "--task", path, "--format", "json")
    rows = json.loads(run_here(*given).stdout)["table"]
    assert {row["model"] for row in rows} == {f"{Path(model).name} ({k})" for k in (1, 2)}
    done = run_here(*given, "--names", "first, second", "-o", tmp_path / "out")
    assert {row["model"] for row in json.loads(done.stdout)["table"]} == {"first", "second"}
    record = ls.read_record(tmp_path / "out" / "localization-record")
    assert [series.name for series in record.figures[0].series] == ["first", "second"]
    assert record.title.startswith("Localization of the layers of first and second on")
    assert [(each["name"], each["label"]) for each in record.models] == [(str(model), "first"), (str(model), "second")]
    done = run_here(*given, "--names", "one")
    assert done.returncode == 2
    assert "--names gives one, and the command has 2 models" in done.stderr
    done = run_here("influence", model, "--task", path, "--names", "mine", "-o", tmp_path / "influence")
    assert "Influence of the blocks of mine on" in done.stdout
    assert ls.read_record(tmp_path / "influence" / "influence-record").figures[0].series[0].name == "mine"
