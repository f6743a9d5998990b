"""A store that an older version filled is still hit; version 0.2.0 made `before`."""

import json
import shutil
from pathlib import Path

import pandas
import pytest

import layerscope as ls
from layerscope.store import Artifact, Store

BEFORE = Path(__file__).parent / "before"


def frame(count):
    words = [("file" if k % 2 else "list", "this" if k % 3 else "that", 1 + k % 2) for k in range(count)]
    texts = [f"the {noun} of {which} value" * times for noun, which, times in words]
    return pandas.DataFrame({"text": texts, "label": [k % 2 for k in range(count)]})


@pytest.fixture
def world(home, monkeypatch):
    """The old store in the place of the test's own, and nothing may be made anew."""
    shutil.copytree(BEFORE / "store", home, dirs_exist_ok=True)

    def refuse(self, *_, **__):
        raise AssertionError(f"{self.kind} is made again, though the store has it")

    for kind in [Artifact, *_subclasses(Artifact)]:
        if "build" in vars(kind):
            monkeypatch.setattr(kind, "build", refuse)
    return ls.load(str(BEFORE / "model")), ls.task({"train": frame(24), "validation": frame(20)})


def _subclasses(kind):
    import layerscope.cutting.sweep
    import layerscope.extraction.extract
    import layerscope.tuning.heal
    import layerscope.tuning.tune  # noqa: F401  (so that their artifacts are defined)

    return [each for child in kind.__subclasses__() for each in (child, *_subclasses(child))]


def test_what_was_made_before_is_found_and_read(world):
    model, task = world
    expected = json.loads((BEFORE / "expected.json").read_text())
    stored = {entry.key for entry in Store().entries()}
    assert len(stored) == 6
    assert ls.extract(model, task, pool="mean")[1].double().sum().item() == expected["extract"]
    assert ls.truncation_curve(model, task).frame["score"].tolist() == expected["truncation_curve"]
    training = ls.tune(model, task, max_steps=1, batch=4, strategy="top-1", method="lora", size=1)
    assert training.score == expected["tune"]
    assert ls.heal(model, ls.LayerPlan([2]), task, steps=1, batch=4, size=1).scores == expected["heal"]
    assert {entry.key for entry in Store().entries()} == stored
