"""What the machine has: free memory within the limit of a container, the disk, and a bound that was given."""

from types import SimpleNamespace

import psutil
import pytest
import torch

from layerscope.similarity import budget
from layerscope.similarity.budget import free_host_memory, peak_of, resources_for

CPU = torch.device("cpu")


def test_the_memory_of_this_machine():
    assert 0 < free_host_memory() <= psutil.virtual_memory().total


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, None),
        ({"memory.max": "max", "memory.current": "7"}, None),
        ({"memory.max": "1000", "memory.current": "700"}, 300),
        ({"memory.max": "1000", "memory.current": "700", "memory.stat": "file 500\ninactive_file 400\n"}, 700),
        ({"memory.max": "1000", "memory.current": "1200"}, 0),
        ({"memory/memory.limit_in_bytes": "9223372036854771712", "memory/memory.usage_in_bytes": "5"}, None),
        (
            {
                "memory/memory.limit_in_bytes": "900",
                "memory/memory.usage_in_bytes": "500",
                "memory/memory.stat": "total_inactive_file 100",
            },
            500,
        ),
        ({"memory.max": "1000", "memory.current": "700", "memory.stat": "nonsense"}, 300),
    ],
)
def test_a_container_has_what_its_control_group_allows(files, free, tmp_path, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=5000))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert free_host_memory(tmp_path) == (5000 if free is None else free)


def test_a_bound_and_processes_that_share_the_host(monkeypatch, tmp_path):
    monkeypatch.setattr(budget, "free_host_memory", lambda: 16 << 30)
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
