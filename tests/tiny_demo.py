"""The demo on a tiny model, and what its tests read of it."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import zoo

from layerscope.cli import demo
from layerscope.cli.demo import stage as demo_stage
from layerscope.cli.demo import steps as demo_steps

TINY = {"steps": 4, "batch": 8, "max_length": 64, "texts": 40, "learned": 48, "attended": 8, "map_steps": 5}
TINY |= {"language_tokens": 400, "window": 16, "language_sizes": (1, 2)}
SCORED = {"limit": 40, "max_length": 64}
FOLDERS = [f"{number}-{step.name}" for number, step in enumerate(demo_steps.STEPS, 1)]


@dataclass
class Played:
    """A demo of seconds that has ended: a random model of four blocks, and few texts."""

    settings: demo_stage.Settings
    out: Path
    home: Path
    done: list[demo.Done]
    said: str


def play(model, out, home):
    """The whole of it, with a store of its own."""
    (model / "language").mkdir()
    reader = zoo.save(model / "language", "llama", "next")
    settings = demo_stage.Settings(model=zoo.save(model, "bert"), language_model=reader, **TINY)
    lines = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAYERSCOPE_HOME", str(home))
        done = demo.play(settings, out, say=lambda line, **_: lines.append(line))
    return Played(settings, out, home, done, "\n".join(lines))


def numbers(text):
    return [float(n) for n in re.findall(r"\d+\.\d+", text)]
