"""The command line, the README's code, the repository's scripts and a demo of seconds, for tests that run them."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import subprocess
import sys
import warnings
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from layerscope.__main__ import main
from layerscope.cli import demo
from layerscope.errors import log
from tests.helpers.models import save_random

ROOT = Path(__file__).resolve().parents[2]
# How two processes work together. Without GPUs `accelerate launch --num_processes 2` starts one, and says nothing.
TWO_PROCESSES = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "layerscope", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=300,
        check=False,
    )


def run_here(*arguments):
    """The same without the seconds that a new process needs to import everything."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    given = ["layerscope", *map(str, arguments)]
    with _notes_as_they_were(), redirect_stdout(out), redirect_stderr(err), patch.object(sys, "argv", given):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    return SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())


@contextmanager
def _notes_as_they_were():
    handlers, level, propagate = list(log.handlers), log.level, log.propagate
    with patch.object(warnings, "showwarning", warnings.showwarning):
        yield
    log.handlers[:], log.propagate = handlers, propagate
    log.setLevel(level)


def script(name):
    """The module of a file, such as docs/rehearse.py."""
    title = name.removesuffix(".py").replace("/", "_")
    spec = importlib.util.spec_from_file_location(title, ROOT / name)
    sys.modules[title] = module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str((ROOT / name).parent))  # as Python does for a script
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module


README = (ROOT / "README.md").read_text(encoding="utf-8")


def readme_blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


TINY_DEMO = {"steps": 4, "batch": 8, "max_length": 64, "texts": 48, "budget": 5, "language_budget": 5}
TINY_DEMO |= {"language_texts": 60, "window": 16}
DEMO_FOLDERS = [demo.TUNED, demo.STUDIED, demo.LANGUAGE]


@dataclass
class PlayedDemo:
    """A demo of seconds that has ended: a random model of four blocks, and few texts."""

    settings: demo.Settings
    out: Path
    home: Path
    done: list[demo.Done]
    said: str


def play_demo(model, out, home):
    """The whole of it, with a store of its own."""
    (model / "language").mkdir()
    reader = save_random(model / "language", "llama", "next")
    settings = demo.Settings(model=save_random(model, "bert"), language_model=reader, **TINY_DEMO)
    lines = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAYERSCOPE_HOME", str(home))
        done = demo.play(settings, out, say=lambda line, **_: lines.append(line))
    return PlayedDemo(settings, out, home, done, "\n".join(lines))


def numbers_in(text):
    return [float(n) for n in re.findall(r"\d+\.\d+", text)]
