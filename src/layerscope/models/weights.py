"""Networks that are built without weights and given the tensors of another: nothing is drawn, or copied twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.store import TensorFile

_PART = 1 << 22  # numbers that are compared together


def without_weights(kind: Any, config: Any, dtype: torch.dtype) -> Any:
    """Return a network of a class whose parameters lie on the meta device, and whose buffers are as they should be.

    Drawing the first weights of seven billion parameters on a CPU takes minutes, and all of them are overwritten.
    """
    from accelerate import init_empty_weights

    with torch.random.fork_rng(devices=[]), init_empty_weights(include_buffers=False):
        return kind._from_config(config, dtype=dtype).eval()


def other_tensors(network: nn.Module, tensors: Mapping[str, Tensor]) -> list[str]:
    """Return the names of tensors that a network has and `tensors` lacks, or has in another shape, or the reverse."""
    places = {name: tensor.shape for name, tensor in network.state_dict().items()}
    given = {name: tensor.shape for name, tensor in tensors.items()}
    return sorted(name for name in places.keys() | given.keys() if places.get(name) != given.get(name))


def give_tensors(network: nn.Module, tensors: Mapping[str, Tensor], *, share: bool) -> None:
    """Give a network built by `without_weights` its tensors.

    Args:
        network: The network, which is changed.
        tensors: Every tensor of its state dict (`other_tensors` says whether that is so), as
            `state_dict(keep_vars=True)` of another network has them: what is one parameter there, such as tied weights,
            is one here.
        share: Whether the numbers of parameters are those of the other network itself. What is then written into them
            is written into the other network too. Buffers are small and are always copied.
    """
    made: dict[int, nn.Parameter] = {}
    for name, tensor in tensors.items():
        path, _, leaf = name.rpartition(".")
        module, numbers = network.get_submodule(path), tensor.detach()
        empty = module._parameters.get(leaf)
        if empty is None:
            module._buffers[leaf] = numbers.clone()
            continue
        if id(tensor) not in made:
            numbers = numbers if share else numbers.clone(memory_format=torch.contiguous_format)
            made[id(tensor)] = nn.Parameter(numbers, requires_grad=empty.requires_grad)
        module._parameters[leaf] = made[id(tensor)]


def is_in_file(tensor: Tensor, file: TensorFile, name: str) -> bool:
    """Return whether a file holds these very numbers under a name; few of them are in memory a second time."""
    if file.shape(name) != tuple(tensor.shape):
        return False
    mine = tensor.detach()
    if not mine.ndim or not mine.numel():
        return torch.equal(mine, file.tensor(name).to(mine))
    rows = max(1, _PART * len(mine) // mine.numel())
    starts = range(0, len(mine), rows)
    return all(torch.equal(mine[at : at + rows], file.tensor(name, at, at + rows).to(mine)) for at in starts)
