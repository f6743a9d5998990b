"""What the machine has: memory, disk, and a bound that was given."""

import torch

from layerscope.similarity import budget
from layerscope.similarity.budget import peak_of, resources_for

CPU = torch.device("cpu")


def test_a_bound_and_processes_that_share_the_host(monkeypatch, tmp_path):
    monkeypatch.setattr(budget, "free_memory", lambda: 16 << 30)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert resources_for(CPU, None).host == 8 << 30
    assert resources_for(CPU, None, processes=4).host == 2 << 30
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # the other two run on another host
    assert resources_for(CPU, None, processes=4).host == 4 << 30
    assert resources_for(CPU, 0.5).host == 1 << 29
    assert resources_for(CPU, 100.0).host == 8 << 30
    assert resources_for(CPU, None).device is None
    monkeypatch.setenv("LAYERSCOPE_HOME", str(tmp_path / "not" / "there"))
    assert resources_for(CPU, None).disk > 0


def test_the_peak_so_far():
    assert peak_of(CPU)["host"] > 1 << 20
