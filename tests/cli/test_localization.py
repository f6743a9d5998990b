"""`layerscope localization`"""

import json

import pytest

import layerscope as ls
from tests.helpers.cli import run_here


def test_localization_on_the_command_line(model, tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(f"the file is {'a ' * (i % 7)}list {i}" for i in range(60)) + "\n")
    done = run_here("localization", model, "--task", path, "--format", "json", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    curve = ls.localization(model, task=path, pool="mean")
    assert [row["layer"] for row in rows] == curve.layers
    assert [row["localization"] for row in rows] == pytest.approx(curve.values.tolist(), abs=1e-6)
    assert {p.name for p in (tmp_path / "out").iterdir()} >= {"localization.png", "localization-record"}
    done = run_here("localization", model, "--task", path, "--standardize", "--pool", "words")
    assert done.returncode == 0, done.stderr
    assert "Localization of the layers of" in done.stdout
