"""Networks whose weights are spread over devices, or wait on the host or the disk until needed (accelerate)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn


def _hooks(module: nn.Module) -> Iterator[Any]:
    """What accelerate does around a module's forward."""
    hook = getattr(module, "_hf_hook", None)
    yield from getattr(hook, "hooks", () if hook is None else (hook,))


def input_device(network: nn.Module) -> torch.device:
    """Where inputs go: where the first weights are; where those wait elsewhere, the device that they are brought to."""
    first = next(network.parameters()).device
    if first.type != "meta":
        return first
    for module in network.modules():
        for hook in _hooks(module):
            if (device := getattr(hook, "execution_device", None)) is not None:
                return torch.device(device)
    return first


def is_offloaded(network: nn.Module) -> bool:
    """Whether some weights wait on the host or the disk, and are on no device between two forwards."""
    return any(parameter.is_meta for parameter in network.parameters())


def weight(network: nn.Module, name: str, tensor: Tensor) -> Tensor | None:
    """A parameter or buffer by its name, from where it waits if it is offloaded; None where it is nowhere."""
    if not tensor.is_meta:
        return tensor
    parts = name.split(".")
    for count in range(len(parts) - 1, -1, -1):  # a hook on a module may keep the weights of those below it
        for hook in _hooks(network.get_submodule(".".join(parts[:count]))):
            weights = getattr(hook, "weights_map", None)
            if weights is not None:
                return torch.as_tensor(weights[".".join(parts[count:])])
    return None
