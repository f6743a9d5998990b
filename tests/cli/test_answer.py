"""What programs read of a command: exit codes, and one JSON object."""

import json
import subprocess
import sys

import pytest

from tests.helpers.cli import run_here

KEYS = {"asked", "verdict", "choice", "saved", "table", "more", "findings", "record", "warnings"}
# As the page on scripts has it, with what the test fills in.
SCRIPT = """
{python} -m layerscope advise {model} --task {task} --no-timed --rules last --blocks 2 --tolerance {tolerance} \\
    --format json --save {out} > answer.json 2> notes.txt
code=$?
case $code in
    0) echo "ship $(jq_of saved folder)" ;;
    3) echo "keep the whole model: $(jq_of verdict says)" ;;
    2) echo "mistake: $(tail -n 1 notes.txt)" ;;
    *) echo "broken" ;;
esac
exit $code
"""
JQ = """
jq_of() {{ {python} -c 'import json, sys; print(json.load(open("answer.json"))[sys.argv[1]][sys.argv[2]])' "$@"; }}
"""


@pytest.mark.parametrize(
    ("tolerance", "code", "line"),
    [("1.0", 0, "ship "), ("0.0", 3, "keep the whole model: The best plan"), ("much", 2, "mistake: error: tolerance")],
)
def test_a_shell_script_reads_what_came_out(classifier, words, tmp_path, tolerance, code, line):
    out = tmp_path / "small"
    given = {"python": sys.executable, "model": classifier, "task": words, "tolerance": tolerance, "out": out}
    done = subprocess.run(
        ["sh", "-c", (JQ + SCRIPT).format(**given)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert done.stdout.startswith(line)
    assert out.exists() == (code == 0)


@pytest.mark.parametrize(
    "given",
    [
        ("evaluate", "MODEL", "--task", "WORDS"),
        ("truncate", "MODEL", "--task", "WORDS", "--keep", 2),
        ("strategies", "MODEL", "--task", "WORDS", "--specialty-layer", 2),
        ("models", "MODEL"),
        ("models",),
        ("measures",),
        ("tasks",),
        ("cache", "ls"),
    ],
    ids=lambda given: " ".join(map(str, given[:2])),
)
def test_every_command_prints_one_object(given, classifier, words):
    filled = [{"MODEL": classifier, "WORDS": words}.get(each, each) for each in given]
    done = run_here(*filled, "--format", "json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert set(said) == KEYS
    assert isinstance(said["table"], list)
    assert said["asked"]["line"].startswith("layerscope")
    assert said["verdict"] is None
    if given[0] == "truncate":
        assert said["choice"]["keep"] == [1, 2]
        assert any("LABEL_0 is" in warning for warning in said["warnings"])


def test_what_is_met_by_nothing_is_no_mistake(classifier, words, monkeypatch):
    monkeypatch.setattr("layerscope.cutting.targets.Target.meets", lambda *_: False)
    done = run_here("advise", classifier, "--task", words, "--no-timed", "--blocks", 2, "--format", "json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["verdict"]["met"] is False
    assert "not met: No plan of" in done.stderr


def test_every_command_has_the_option():
    import typer

    from layerscope.cli import app

    def without(command, name=""):
        if hasattr(command, "list_commands"):
            inner = ((each, command.get_command(None, each)) for each in command.list_commands(None))
            return [lack for each, found in inner for lack in without(found, f"{name} {each}")]
        return [] if any("--format" in parameter.opts for parameter in command.params) else [name]

    assert without(typer.main.get_command(app)) == []
