"""Where training stands: weights and optimizer as safetensors, the rest as JSON, written whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

_WEIGHTS, _STATE = "state.safetensors", "state.json"


def save(folder: Path, module: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Replace the checkpoint in `folder`."""
    from safetensors.torch import save_file

    tensors = {f"weight.{name}": p.detach().contiguous() for name, p in module.named_parameters()}
    for index, entry in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{key}": value for key, value in entry.items()}
    fresh, old = folder.with_name(f"{folder.name}.{os.getpid()}"), folder.with_name(f"{folder.name}.old")
    fresh.mkdir(parents=True, exist_ok=True)
    save_file(tensors, fresh / _WEIGHTS)
    (fresh / _STATE).write_text(json.dumps(state, indent=2), encoding="utf-8")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def load(folder: Path, module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any] | None:
    """Bring module and optimizer to the checkpoint's state and return the rest of it; None if there is none."""
    from safetensors.torch import load_file

    if not (folder / _STATE).is_file():
        folder = folder.with_name(f"{folder.name}.old")  # a save that was cut between its two renames
        if not (folder / _STATE).is_file():
            return None
    tensors = load_file(folder / _WEIGHTS)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(tensors[f"weight.{name}"])
    entries: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".", 2)
            entries.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": entries, "param_groups": optimizer.state_dict()["param_groups"]})
    return json.loads((folder / _STATE).read_text(encoding="utf-8"))


def remove(folder: Path) -> None:
    for path in (folder, folder.with_name(f"{folder.name}.old")):
        shutil.rmtree(path, ignore_errors=True)
