"""What this machine has for a comparison: memory of host and device, room on the disk, and rough speeds."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import psutil
import torch

from layerscope.similarity.precision import float64_is_free
from layerscope.similarity.routes import GIB, Resources
from layerscope.store import home

_SHARE = 0.5  # of the memory that is free: batches, the tokenizer and other programs need some as well
_DISK_SHARE = 0.8
_CGROUP = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60  # control groups of the first version write a number near 2**63 where there is no limit
_FORWARD = {"cpu": 3e10, "cuda": 3e13, "mps": 3e12}  # operations per second in float32; a CPU's per core
_HALF = 5  # times as fast in 16 bits, where the device has units for them
_FLOAT64 = {"cpu": 2e10, "cuda": 3e13, "mps": 2e10}
_SLOW_FLOAT64 = 5e11


def resources_for(
    device: torch.device, memory: float | None, *, processes: int = 1, dtype: torch.dtype = torch.float32
) -> Resources:
    """What may be used by one of `processes` that run beside one another; `memory` is a bound in GiB, or None."""
    here = min(processes, int(os.environ.get("LOCAL_WORLD_SIZE", processes)))
    bound = float("inf") if memory is None else memory * GIB
    cores = torch.get_num_threads() if device.type == "cpu" else 1
    half = _HALF if dtype.itemsize == 2 and device.type == "cuda" else 1
    fast = device.type != "cuda" or float64_is_free(device)
    return Resources(
        host=int(min(bound, _SHARE * free_host_memory() / here)),
        device=int(min(bound, _SHARE * _free_on(device))) if device.type == "cuda" else None,
        disk=int(_DISK_SHARE * _free_on_disk(home())),
        forward=_FORWARD.get(device.type, 3e12) * cores * half,
        products=(_FLOAT64.get(device.type, 2e10) if fast else _SLOW_FLOAT64) * cores,
    )


def free_host_memory(cgroup: Path = _CGROUP) -> int:
    """Bytes that are free on the host, within the limit of this process's control group (of its container)."""
    available = psutil.virtual_memory().available
    limits = [
        (cgroup / "memory.max", cgroup / "memory.current", cgroup / "memory.stat", "inactive_file"),
        (
            cgroup / "memory" / "memory.limit_in_bytes",
            cgroup / "memory" / "memory.usage_in_bytes",
            cgroup / "memory" / "memory.stat",
            "total_inactive_file",
        ),
    ]
    for limit_file, used_file, stat_file, reclaimable in limits:
        limit, used = _number(limit_file), _number(used_file)
        if limit is not None and used is not None and limit < _NO_LIMIT:
            available = min(available, max(0, limit - used + _stat(stat_file, reclaimable)))
    return int(available)


def _number(path: Path) -> int | None:
    """The number in a file; None where there is no file, or `max` in it."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _stat(path: Path, name: str) -> int:
    """A line of memory.stat: cached files count as used, and are given up when memory is needed."""
    try:
        lines = (line.split() for line in path.read_text(encoding="ascii").splitlines())
        return next((int(line[1]) for line in lines if line[0] == name), 0)
    except (OSError, ValueError, IndexError):
        return 0


def _free_on(device: torch.device) -> int:
    """What is free on a GPU, with what torch holds and does not use."""
    free, _ = torch.cuda.mem_get_info(device)
    return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))


def _free_on_disk(folder: Path) -> int:
    """What is free on the disk of a folder that need not be there yet."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def peak_of(device: torch.device) -> dict[str, int]:
    """The most bytes that this process has held so far, on the host and on a GPU."""
    try:
        import resource
    except ImportError:  # Windows
        return {"host": int(psutil.Process().memory_info().rss)}
    unit = 1 if os.uname().sysname == "Darwin" else 1024
    peak = {"host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}
    if device.type == "cuda":
        peak["device"] = int(torch.cuda.max_memory_allocated(device))
    return peak
