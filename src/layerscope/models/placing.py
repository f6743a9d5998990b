"""Where the weights of a network go, on which device or over several, and in which float type."""

from __future__ import annotations

from pathlib import Path

import torch

from layerscope.errors import InputError
from layerscope.models.belongings import float_type

_ROOM = 0.8  # of a GPU's free memory that weights may take
_AUTO = "auto"


def device_of(device: str | torch.device | None) -> torch.device:
    """The one device that a name stands for; without a name, or where several are asked for, the first."""
    if device is None or device == _AUTO:
        return default_device()
    try:
        usable_device = torch.device(device)
        torch.empty(0, device=usable_device)
    except (RuntimeError, AssertionError) as error:
        usable = "cpu" + (", cuda" if torch.cuda.is_available() else "")
        raise InputError(f"The device {str(device)!r} cannot be used here; usable: {usable}.") from error
    return usable_device


def default_device() -> torch.device:
    """The first GPU, or the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def is_spread(device: str | torch.device | None, folder: Path, dtype: torch.dtype) -> bool:
    """Whether a network goes onto several GPUs, or in part to the host: where that is asked for, or where it must."""
    if device not in (None, _AUTO) or not torch.cuda.is_available():
        return False
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    needed = size * dtype.itemsize / (float_type(folder) or dtype).itemsize
    several = torch.cuda.device_count() > 1
    return (several and device == _AUTO) or needed > _ROOM * torch.cuda.mem_get_info(0)[0]


def float_type_of(dtype: torch.dtype | str) -> torch.dtype:
    """The float type that a name stands for."""
    named = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(named, torch.dtype) or not named.is_floating_point:
        raise InputError(f"There is no float type {dtype!r}; allowed: float32, bfloat16, float16, float64.")
    return named


def check_opening(dtype: torch.dtype | str, device: str | torch.device | None) -> None:
    """Raise a sentence where models cannot be opened in this float type or on this device."""
    float_type_of(dtype)
    device_of(device)
