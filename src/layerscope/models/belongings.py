"""What a checkpoint holds beside the network that is opened: it goes with the network, and is saved again.

The float type of its weights on disk, tensors of heads beside the one that was opened, and, in a folder of
sentence-transformers, what makes embeddings of states.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from layerscope.models.embedding import Embedding
from layerscope.models.headers import weight_files

_CARRIED = "_layerscope_belongings"  # an attribute of networks
_FLOATS = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}
# What old checkpoints keep beside their weights and every network makes for itself.
_NO_WEIGHTS = re.compile(r"position_ids$|inv_freq$|\.masked_bias$|\.attn\.bias$|\.attention\.bias$")


@dataclass(frozen=True)
class Belongings:
    """What belongs to a network and is not in it."""

    dtype: torch.dtype | None = None  # of the weights on disk
    tensors: Mapping[str, Tensor] = field(default_factory=dict)  # of heads beside the one that was opened
    named: str | None = None  # the class that the config names, where another one was opened
    embedding: Embedding | None = None
    made_up: Mapping[str, Tensor] = field(default_factory=dict)  # as it was opened: a pooler that no file has


def belongings(network: Any) -> Belongings:
    """What belongs to a network; nothing for one that layerscope did not open."""
    held: Belongings = getattr(network, _CARRIED, Belongings())
    return held


def give(network: Any, held: Belongings) -> None:
    """Let something belong to a network."""
    setattr(network, _CARRIED, held)


def hand_on(network: Any, smaller: Any) -> None:
    """Let what belongs to a network belong to one that was cut from it, its way of generating too."""
    give(smaller, belongings(network))
    if getattr(network, "generation_config", None) is not None:
        smaller.generation_config = copy.deepcopy(network.generation_config)


def float_type(folder: Path) -> torch.dtype | None:
    """The float type that most numbers of a folder's weights have on disk."""
    counts: dict[torch.dtype, int] = {}
    for path in weight_files(folder, str(folder))[:1]:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  (a file, not a mapping)
                part = file.get_slice(name)
                kind = _FLOATS.get(part.get_dtype())
                if kind is not None:
                    counts[kind] = counts.get(kind, 0) + torch.Size(part.get_shape()).numel()
    return max(counts, key=counts.__getitem__) if counts else None


def left_over(folder: Path, network: Any, unexpected: list[str]) -> dict[str, Tensor]:
    """The tensors of a folder's weights that belong to no part of the opened network: those of other heads.

    `unexpected` are those that transformers names; others it passes over by a rule of the class.
    """
    patterns = [re.compile(p) for p in getattr(network, "_keys_to_ignore_on_load_unexpected", None) or ()]
    have = set(network.state_dict())
    tensors: dict[str, Tensor] = {}
    for path in weight_files(folder, str(folder)):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  (a file, not a mapping)
                passed_over = name not in have and any(p.search(name) for p in patterns)
                if (name in unexpected or passed_over) and not _NO_WEIGHTS.search(name):
                    tensor = file.get_tensor(name)
                    if tensor.is_floating_point():
                        tensors[name] = tensor
    return tensors


def made_up(network: Any) -> set[str]:
    """The tensors of a network that were in no file: random numbers, unused. None where one was changed since."""
    weights, drawn = network.state_dict(), belongings(network).made_up
    known = all(
        name in weights and torch.equal(weights[name].cpu(), value.to(weights[name].dtype))
        for name, value in drawn.items()
    )
    return set(drawn) if known else set()


def saved_weights(network: Any) -> tuple[dict[str, Tensor], torch.dtype]:
    """The state dict to write, and its float type: that of the checkpoint which was opened, where nothing is lost.

    Tensors of other heads come along, and those that were in no file stay out. Tied weights stay one tensor.
    """
    held, drawn = belongings(network), made_up(network)
    weights = {name: tensor for name, tensor in network.state_dict().items() if name not in drawn}
    dtype = network.dtype
    if held.dtype is not None and held.dtype.itemsize < dtype.itemsize and _fits(weights, held.dtype):
        dtype = held.dtype
    cast: dict[int, Tensor] = {}
    kept: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if tensor.is_floating_point() and dtype not in (tensor.dtype, network.dtype):
            place = tensor.data_ptr()
            cast.setdefault(place, tensor.to(dtype))
            kept[name] = cast[place].view(tensor.shape)
        else:
            kept[name] = tensor
    return {**kept, **{name: tensor for name, tensor in held.tensors.items() if name not in kept}}, dtype


def _fits(weights: Mapping[str, Tensor], dtype: torch.dtype) -> bool:
    """Whether every number can be written in a smaller float type and read again as it was."""
    floats = (t for t in weights.values() if t.is_floating_point())
    return all(bool(torch.equal(t.to(dtype).to(t.dtype), t)) for t in floats)
