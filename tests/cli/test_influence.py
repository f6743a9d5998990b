"""`layerscope influence`"""

import json

import pytest

import layerscope as ls
from tests.helpers.cli import run_here


def test_influence_on_the_command_line(model, tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(f"the file is {'a ' * (i % 7)}list {i}" for i in range(60)) + "\n")
    given = ["influence", model, "--task", path, "--ci", "0.9", "--special", "--max-length", "16"]
    done = run_here(*given, "--format", "json", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["table"]
    curve = ls.block_influence(model, path, ci=0.9, special=True, max_length=16)
    assert [row["block"] for row in rows] == curve.layers
    for name, expected in (("influence", curve.values), ("low", curve.low), ("high", curve.high)):
        assert [row[name] for row in rows] == pytest.approx(expected.tolist(), abs=1e-6)
    assert {p.name for p in (tmp_path / "out").iterdir()} >= {"influence.png", "influence.csv", "influence-record"}
    record = ls.read_record(tmp_path / "out" / "influence-record")
    assert record.title.startswith("Influence of the blocks of")
    done = run_here("influence", model, "--task", path, "--limit", "10")
    assert done.returncode == 0, done.stderr
    assert "Influence of the blocks of" in done.stdout
    order = ", ".join(str(block) for block in _least(ls.block_influence(model, path, limit=10)))
    assert f"Blocks by influence, the least first: {order}." in done.stdout


def _least(curve):
    return [block for _, block in sorted(zip(curve.values, curve.layers, strict=True))]
