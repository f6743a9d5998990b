"""The standard streams beside a command's output: notes are said once, closed streams are no error."""

import json
import subprocess
import sys

import pytest

from tests.helpers.cli import run


def test_a_measure_warns_in_one_note(model, tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(f"the file is {'a ' * (i % 7)}list {i}" for i in range(40)) + "\n")
    done = run("compare", model, "--task", path, "--pool", "mean", "--measure", "cca", "--ci", "0.9")
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert sum("for lack of rows" in line for line in lines) == 1
    assert all(line.startswith("note: ") for line in lines)


def test_a_note_is_said_once():
    code = (
        "from layerscope.cli.console import log, prepare\n"
        "prepare(False)\n"
        "for n in (1, 2, 1, 2): log.warning('%d texts are cut off.', n)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "note: 1 texts are cut off.\nnote: 2 texts are cut off.\n"


@pytest.mark.parametrize("format", ["table", "json"])
def test_names_that_the_terminal_cannot_spell_are_escaped(format, tmp_path):
    (tmp_path / "a.csv").write_text("text,label\nthe file,caf\u00e9\n", encoding="utf-8")
    done = run("tasks", tmp_path / "a.csv", "--format", format, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    if format == "json":
        assert json.loads(done.stdout)["table"][0]["labels"] == "caf\u00e9: 1"
    else:
        assert "caf\\xe9: 1" in done.stdout


def test_closed_streams_are_no_error():
    for closed in ("1>&-", "2>&-"):
        shell = f"{sys.executable} -m layerscope tasks {closed}"
        done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
