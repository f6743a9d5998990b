"""Several processes, interrupted processes: the same result as one that runs through."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import layerscope as ls
from layerscope.store import Store
from tests.helpers.cli import TWO_PROCESSES
from tests.helpers.models import save_random


@pytest.fixture
def checkpoint(tmp_path):
    return save_random(tmp_path / "model", "bert")


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data.csv"
    words = ["file", "list", "of the value", "return this", "object in a string"]
    rows = [f"{words[i % 5]} {words[i * 7 % 4]} {'and ' * (i % 9)}{i},{i % 3}" for i in range(300)]
    path.write_text("text,label\n" + "\n".join(rows) + "\n")
    return path


def same(a, b):
    assert a.rows.difference(b.rows) is None
    assert a.labels.tolist() == b.labels.tolist()
    for layer in a.layers:
        torch.testing.assert_close(a[layer], b[layer], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pool", ["mean", pytest.param("tokens", marks=pytest.mark.slow)])
def test_two_processes_share_the_rows_and_give_the_same_result(pool, checkpoint, data, tmp_path):
    alone = ls.extract(checkpoint, data, pool=pool, store=False)
    script = tmp_path / "job.py"  # the command line with shards small enough that both processes get some
    script.write_text(
        "import sys, layerscope.extraction.extract\n"
        "sys.modules['layerscope.extraction.extract']._SHARD_BYTES = 1\n"
        "from layerscope.cli import main\nmain()\n"
    )
    command = [*TWO_PROCESSES, str(script), "extract", checkpoint, "--task", str(data), "--pool", pool]
    command += ["-o", str(tmp_path / "out")]
    environment = {**os.environ, "LAYERSCOPE_HOME": str(tmp_path / "shared"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("pool " + pool) == 1  # only one of them prints
    same(ls.Representations.load(tmp_path / "out"), alone)
    (entry,) = [e for e in Store(tmp_path / "shared").entries() if e.kind == "representations"]
    assert len(list(entry.path.glob("shard-*.safetensors"))) == 5
    assert entry.fault() is None


KILLED = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it starts in the background ignore Ctrl-C
import layerscope.extraction.extract
import layerscope as ls
module = sys.modules["layerscope.extraction.extract"]
module._SHARD_BYTES = 1
write = module.write_shard
def slow(path, *rest):
    write(path, *rest)
    print(path.name, flush=True)
    time.sleep(float(os.environ.get("PAUSE", "0")))
module.write_shard = slow
ls.extract(sys.argv[1], sys.argv[2], pool="mean")
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed_in_the_middle_it_goes_on_where_it_was(how, checkpoint, data, home):
    def start(pause):
        return subprocess.Popen(
            [sys.executable, "-c", KILLED, checkpoint, str(data)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PAUSE": pause},
        )

    victim = start("5")
    assert victim.stdout.readline().strip() == "shard-00000.safetensors"
    assert victim.stdout.readline().strip() == "shard-00001.safetensors"
    time.sleep(0.2)
    victim.send_signal(how)
    victim.wait(30)
    assert [e.state for e in Store().entries()] == ["unfinished"]
    survivor = start("0")
    written, _ = survivor.communicate(timeout=120)
    assert survivor.returncode == 0
    assert "shard-00000" not in written  # done before, not again
    assert "shard-00004" in written
    assert [e.state for e in Store().entries()] == ["done"]
    alone = ls.extract(checkpoint, data, pool="mean", store=False)
    (folder,) = (Path(home) / "done" / "representations").iterdir()
    same(ls.Representations.load(folder), alone)


def test_a_window_without_a_single_row_is_no_obstacle(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["layerscope.extraction.extract"], "_SHARD_BYTES", 1)
    path = tmp_path / "corpus.txt"
    long = "x" * 90
    path.write_text("\n".join([long] * 64 + ["the file is here"] * 3) + "\n")
    reps = ls.extract(checkpoint, path, pool="words", max_length=16)
    assert sorted(set(reps.rows.row.tolist())) == [64, 65, 66]
    assert reps.info["words_left_out"] == 64
