"""Free memory of the host, within the limit of a container."""

from types import SimpleNamespace

import psutil
import pytest

from layerscope.models.devices import free_memory


def test_the_memory_of_this_machine():
    assert 0 < free_memory() <= psutil.virtual_memory().total


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
    assert free_memory(tmp_path) == (5000 if free is None else free)
