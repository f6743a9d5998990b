"""What a terminal, a pipe and a key press see of a command: notes, widths, encodings, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from types import SimpleNamespace

import pytest

from layerscope.__main__ import main
from tests.helpers.cli import run, run_here

INTERRUPTED = "Interrupted. What was finished is kept: the same command goes on from there."


@pytest.mark.slow
def test_ctrl_c_says_that_nothing_is_lost(model, home):
    command = [sys.executable, "-m", "layerscope", "extract", model, "--task", "pydocs", "--split", "train"]

    def listen():  # a shell's background jobs ignore Ctrl-C, and so would what they start
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    process = subprocess.Popen([*command, "--pool", "tokens"], stderr=subprocess.PIPE, text=True, preexec_fn=listen)  # noqa: PLW1509  (nothing else runs here)
    while not list(home.glob("unfinished/representations/*")):  # at work
        assert process.poll() is None, "the run ended before it could be interrupted"
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.endswith(INTERRUPTED + "\n")
    assert "Traceback" not in said


def test_ctrl_c_while_modules_are_imported_is_the_same_sentence(monkeypatch, capsys):
    def interrupt(name, *_):
        if name == "layerscope.cli":
            raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "layerscope.cli", raising=False)
    monkeypatch.setattr(sys, "meta_path", [SimpleNamespace(find_spec=interrupt), *sys.meta_path])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 130
    assert capsys.readouterr().err == INTERRUPTED + "\n"


def test_what_was_cut_off_is_said_every_time(model, tmp_path):
    path = tmp_path / "long.txt"
    path.write_text("the file " * 30 + "\n")
    for _ in range(2):
        done = run_here("extract", model, "--task", path, "--pool", "words", "--max-length", "600")
        assert "note: 1 of 1 texts of long are cut off at 80 tokens" not in done.stderr
        done = run_here("extract", model, "--task", path, "--pool", "words", "--max-length", "20")
        assert "note: 1 of 1 texts of long are cut off at 20 tokens" in done.stderr
        assert "words are left out" in done.stderr


def test_debug_shows_where_it_came_from():
    done = run("extract", "/no/such", "--task", "pydocs", "--debug")
    assert "Traceback" in done.stderr
    assert done.returncode != 0


def in_a_terminal(columns, *arguments):
    """What a command prints on a terminal so wide, line by line, without its escapes."""
    import pty
    import re
    import struct
    import termios
    from fcntl import ioctl

    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    command = [sys.executable, "-m", "layerscope", *map(str, arguments)]
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")} | {"TERM": "xterm"}
    process = subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL, env=environment)
    os.close(theirs)
    said = b""
    with suppress(OSError):  # how a terminal says that the other side is closed
        while part := os.read(ours, 65536):
            said += part
    os.close(ours)
    assert process.wait(60) == 0
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said.decode()).splitlines()]


@pytest.mark.slow
def test_no_number_is_broken_in_a_narrow_terminal(model, reviews):
    columns = 60
    given = ["compare", model, model, "--task", reviews, "--text", "review", "--pool", "mean"]
    lines = in_a_terminal(columns, *given)
    assert max(len(line) for line in lines if line.startswith(" ")) <= columns
    expected = [row["value"] for row in json.loads(run(*given, "--format", "json").stdout)["table"]]
    shown = sorted(cell for line in lines if line[:3].strip().isdigit() for cell in line.split()[1:])
    assert shown == sorted("nan" if value is None else f"{value:.4g}" for value in expected)
    text = in_a_terminal(columns, "tasks", reviews)
    assert any("split" in line and "examples" in line for line in text)


def test_a_closed_pipe_is_no_error():
    shell = f"{sys.executable} -m layerscope tasks | head -n 1"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


def test_verbose_says_which_side_is_taken(model, reviews):
    done = run_here("compare", model, "--task", reviews, "--pool", "mean", "--verbose")
    assert done.returncode == 0, done.stderr
    assert "d x d side" in done.stderr
    assert "side" not in run_here("compare", model, "--task", reviews, "--pool", "mean").stderr
