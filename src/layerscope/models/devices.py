"""Devices and float types of networks, among them networks that accelerate spreads over devices or offloads.

Offloaded weights lie on the host or the disk, and are brought to a device when their module runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.errors import InputError, device_fault, log
from layerscope.models.extras import float_type
from layerscope.models.weight_files import weight_files

_ROOM = 0.8  # the share of a GPU's free memory that weights may take
_CGROUP = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60  # control groups of the first version write a number near 2**63 where there is no limit
AUTO = "auto"  # as a device all GPUs, as a float type what the checkpoint asks for


def device_of(device: str | torch.device | None) -> torch.device:
    """Return the one device that a name stands for; without a name, or for `auto`, the first."""
    if device is None or device == AUTO:
        return default_device()
    try:
        usable_device = torch.device(device)
        torch.empty(0, device=usable_device)
    except (RuntimeError, AssertionError) as error:
        usable = "cpu" + (", cuda" if torch.cuda.is_available() else "")
        raise InputError(f"The device {str(device)!r} cannot be used here; usable: {usable}.") from error
    return usable_device


def default_device() -> torch.device:
    """Return the first GPU, or the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def is_spread(device: str | torch.device | None, folder: Path, dtype: torch.dtype) -> bool:
    """Return whether a network goes onto several GPUs, or in part to the host, because it is asked for or too large."""
    if device not in (None, AUTO) or not torch.cuda.is_available():
        return False
    several = torch.cuda.device_count() > 1
    return (several and device == AUTO) or weights_in_memory(folder, dtype) > _ROOM * torch.cuda.mem_get_info(0)[0]


def weights_in_memory(folder: Path, dtype: torch.dtype) -> float:
    """Return how many bytes the weights in a folder take in a float type."""
    # Those that are opened: other copies may lie beside them, such as one file with all that the shards hold.
    size = sum(path.stat().st_size for path in weight_files(folder, str(folder)))
    return size * dtype.itemsize / (float_type(folder) or dtype).itemsize


def check_room(name: str, folder: Path, dtype: torch.dtype, spread: bool) -> None:
    """Warn before a model is opened of which a part will wait on the host; raise InputError where nothing has room."""
    needed, host, gpus = weights_in_memory(folder, dtype), free_memory(), 0.0
    if spread:
        gpus = sum(_ROOM * torch.cuda.mem_get_info(k)[0] for k in range(torch.cuda.device_count()))
    what = f"{name} takes {needed / 1e9:.1f} GB in {str(dtype).removeprefix('torch.')}"
    narrower = "" if dtype.itemsize == 2 else "in 16 bits (dtype=, --dtype) it takes half of that, and "
    if needed > host + gpus:
        there = f"{host / 1e9:.1f} GB of memory" + (f" and {gpus / 1e9:.1f} GB on GPUs" if spread else "")
        raise InputError(
            f"{what}, and {there} are free, so it is not opened; {narrower}its folder is cut on disk, which takes no "
            "memory (ls.cut_folder, or --save without a task)."
        )
    if spread and needed > gpus:
        log.warning(
            "%s, and the GPUs here have %.1f GB for it: the rest waits on the host or the disk and comes to a GPU each "
            "time it is needed, which is many times as slow; %sls.cut_folder cuts its folder on disk.",
            *(what, gpus / 1e9, narrower),
        )


def free_memory(cgroup: Path = _CGROUP) -> int:
    """Return how many bytes of the host can be allocated without swapping.

    That is within the limit of this process's control group, as a container has one.
    """
    import psutil

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
    # Cached files count as used, and are given up when memory is needed: they are added to what is free.
    for limit_file, used_file, stat_file, reclaimable in limits:
        limit, used = _number(limit_file), _number(used_file)
        if limit is not None and used is not None and limit < _NO_LIMIT:
            available = min(available, max(0, limit - used + _stat(stat_file, reclaimable)))
    return int(available)


def _number(path: Path) -> int | None:
    """Return the number in a file; None where the file is missing or says `max`."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _stat(path: Path, name: str) -> int:
    """Return the number in one line of memory.stat; 0 where the file or the line is missing."""
    try:
        lines = (line.split() for line in path.read_text(encoding="ascii").splitlines())
        return next((int(line[1]) for line in lines if line[0] == name), 0)
    except (OSError, ValueError, IndexError):
        return 0


def free_on(device: torch.device) -> int:
    """Return how many bytes can be allocated on a device: on a GPU also what this process has and does not use."""
    if device.type != "cuda":
        return free_memory()
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0] + unused)


def float_type_of(dtype: torch.dtype | str) -> torch.dtype:
    """Return the float type that a name stands for, or raise InputError."""
    named = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(named, torch.dtype) or not named.is_floating_point:
        raise InputError(f"There is no float type {dtype!r}; allowed: auto, float32, bfloat16, float16, float64.")
    return named


def check_opening(dtype: torch.dtype | str, device: str | torch.device | None) -> None:
    """Raise InputError where models cannot be opened in this float type or on this device."""
    if dtype != AUTO:
        float_type_of(dtype)
    device_of(device)


@contextmanager
def device_faults_told(doing: str, way_out: str) -> Iterator[None]:
    """Raise InputError for what memory or a device refuses within the block; other errors pass."""
    try:
        yield
    except Exception as error:
        if isinstance(error, InputError) or (fault := device_fault(error)) is None:
            raise
        raise InputError(f"{doing} was not possible: {fault}; {way_out}.") from error


def _hooks(module: nn.Module) -> Iterator[Any]:
    """Yield the hooks that accelerate has put around a module's forward."""
    hook = getattr(module, "_hf_hook", None)
    yield from getattr(hook, "hooks", () if hook is None else (hook,))


def input_device(network: nn.Module) -> torch.device:
    """Return the device for inputs: that of the first weights, or where they are offloaded that which they go to."""
    first = next(network.parameters()).device
    if first.type != "meta":
        return first
    for module in network.modules():
        for hook in _hooks(module):
            if (device := getattr(hook, "execution_device", None)) is not None:
                return torch.device(device)
    return first


def is_offloaded(network: nn.Module) -> bool:
    """Return whether some weights wait on the host or the disk, and are on no device between two forwards."""
    return any(parameter.is_meta for parameter in network.parameters())


def weight(network: nn.Module, name: str, tensor: Tensor) -> Tensor | None:
    """Return a parameter or buffer by its name, from where it waits if it is offloaded; None where it is nowhere."""
    if not tensor.is_meta:
        return tensor
    parts = name.split(".")
    for count in range(len(parts) - 1, -1, -1):  # a hook on a module may keep the weights of those below it
        for hook in _hooks(network.get_submodule(".".join(parts[:count]))):
            weights = getattr(hook, "weights_map", None)
            if weights is not None:
                return torch.as_tensor(weights[".".join(parts[count:])])
    return None
