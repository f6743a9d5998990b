"""Logits under every plan are kept, also of a command that was killed."""

import signal
import subprocess
import sys

import numpy as np
import pandas
import pytest

import layerscope as ls
from layerscope.cutting.sweep import Sweep, Trial, sweep
from layerscope.evaluation.evaluate import make_evaluator
from layerscope.extraction import loop
from layerscope.store import Store
from tests.helpers.data import labelled_frame
from tests.helpers.models import random_classifier, save_random


def test_a_second_call_reads_the_store(monkeypatch):
    opened = random_classifier("bert")
    first = ls.truncation_curve(opened, labelled_frame())
    monkeypatch.setattr(Trial, "logits", None)
    pandas.testing.assert_frame_equal(ls.truncation_curve(opened, labelled_frame()).frame, first.frame)


KILLED = """
import sys, time, pandas
import layerscope as ls
from layerscope.cutting import sweep
from layerscope.extraction import loop
loop.WINDOW = 8
seal = sweep.seal
def slow(path):
    seal(path)
    print(path.name, flush=True)
    time.sleep(float(sys.argv[3]))
sweep.seal = slow
print(ls.truncation_curve(sys.argv[1], sys.argv[2]).frame["score"].tolist())
"""


@pytest.mark.slow
def test_killed_in_the_middle_it_goes_on_where_it_was(tmp_path):
    folder, data = save_random(tmp_path / "model", "bert"), tmp_path / "data.csv"
    labelled_frame().to_csv(data, index=False)

    def start(pause):
        command = [sys.executable, "-c", KILLED, folder, str(data), pause]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    victim = start("1")
    assert "shard-00000" in victim.stdout.readline()
    assert "shard-00001" in victim.stdout.readline()
    victim.send_signal(signal.SIGKILL)
    victim.wait(30)
    assert [e.state for e in Store().entries()] == ["unfinished"]
    written, _ = start("0").communicate(timeout=120)
    assert "shard-00000" not in written
    assert "shard-00004" in written
    assert written.splitlines()[-1] == str(ls.truncation_curve(folder, data).frame["score"].tolist())


def test_shards_that_are_there_are_not_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "WINDOW", 16)
    plans = [ls.LayerPlan([1, 2]), ls.LayerPlan([4])]
    whole = Sweep(make_evaluator(random_classifier("bert"), labelled_frame()), plans, "a")
    whole.build(tmp_path)
    names = [f"shard-{k:05d}.safetensors" for k in range(3)]  # forty texts, sixteen at a time
    assert sorted(path.name for path in tmp_path.glob("[!.]*")) == names
    (tmp_path / names[1]).unlink()
    before = {name: (tmp_path / name).stat().st_mtime_ns for name in (names[0], names[2])}
    whole.build(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("[!.]*")) == names
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in before} == before


def test_every_plan_has_its_logits_and_is_in_the_key():
    evaluator = make_evaluator(random_classifier("bert"), labelled_frame())
    plans = [ls.LayerPlan([1, 2]), ls.LayerPlan([1, 2, 3, 4])]
    logits = sweep(evaluator, plans, "a")
    assert logits.shape == (2, 40, 3)
    np.testing.assert_allclose(logits[1], evaluator.logits(), rtol=1e-4, atol=1e-5)
    keys = {Sweep(evaluator, some, "a").key for some in (plans, plans[:1], plans[::-1])}
    assert len(keys) == 3
    assert Sweep(evaluator, plans, "another title").key == Sweep(evaluator, plans, "a").key
