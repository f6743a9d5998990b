"""Checkpoint data kept alongside the network, so that it is there when the network is saved again.

That is the float type of the weights on disk, the tensors of heads other than the one that was opened, and, in a folder
of sentence-transformers, the modules that make embeddings of states.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from layerscope.errors import ModelError
from layerscope.models.sentence_embedding import Embedding
from layerscope.models.shards import FLOATS, tensor_places
from layerscope.models.weight_files import weight_files

_CARRIED = "_layerscope_extras"  # an attribute of networks
_PART = 1 << 22  # numbers that are looked at together, so that no second copy of an embedding table is in memory
# Tensors that old checkpoints keep beside their weights, and that every network makes for itself.
NO_WEIGHTS = re.compile(r"position_ids$|inv_freq$|\.masked_bias$|\.attn\.bias$|\.attention\.bias$")


@dataclass(frozen=True)
class Extras:
    """Checkpoint data kept alongside the network: dtype, unused head tensors, embedding config."""

    dtype: torch.dtype | None = None  # of the weights on disk
    tensors: Mapping[str, Tensor] = field(default_factory=dict)  # of heads beside the one that was opened
    named: str | None = None  # the class that the config names, where another one was opened
    embedding: Embedding | None = None
    made_up: Mapping[str, Tensor] = field(default_factory=dict)  # tensors that no file has, as drawn: an unused pooler


def extras(network: Any) -> Extras:
    """Return the extras of a network; they are empty for one that layerscope did not open."""
    held: Extras = getattr(network, _CARRIED, Extras())
    return held


def attach_extras(network: Any, held: Extras) -> None:
    """Give a network its extras, in place of those that it has."""
    setattr(network, _CARRIED, held)


def copy_extras(network: Any, smaller: Any) -> None:
    """Give a network that was cut from another the extras of that, and its generation config."""
    attach_extras(smaller, extras(network))
    if getattr(network, "generation_config", None) is not None:
        smaller.generation_config = copy.deepcopy(network.generation_config)


def float_type(folder: Path) -> torch.dtype | None:
    """Return the float type that most numbers of a folder's weights have on disk, judged by the first file."""
    counts: dict[torch.dtype, int] = {}
    for path in weight_files(folder, str(folder))[:1]:
        for place in tensor_places(path, ModelError).values():
            if (kind := FLOATS.get(place.dtype)) is not None:
                counts[kind] = counts.get(kind, 0) + prod(place.shape)
    return max(counts, key=counts.__getitem__) if counts else None


def numbers_in_files(folder: Path) -> int:
    """Return how many parameters the files of a folder's weights hold, by their headers."""
    places = (place for path in weight_files(folder, str(folder)) for place in tensor_places(path, ModelError).items())
    return sum(prod(place.shape) for name, place in places if not NO_WEIGHTS.search(name))


def left_over(folder: Path, network: Any, unexpected: list[str]) -> dict[str, Tensor]:
    """Return the tensors of a folder's weights that belong to no part of the opened network: those of other heads.

    `unexpected` are those that transformers reports; others it ignores by a rule of the class.
    """
    patterns = [re.compile(p) for p in getattr(network, "_keys_to_ignore_on_load_unexpected", None) or ()]
    have = set(network.state_dict())
    tensors: dict[str, Tensor] = {}
    for path in weight_files(folder, str(folder)):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  (a file, not a mapping)
                passed_over = name not in have and any(p.search(name) for p in patterns)
                if (name in unexpected or passed_over) and not NO_WEIGHTS.search(name):
                    tensor = file.get_tensor(name)
                    if tensor.is_floating_point():
                        tensors[name] = tensor
    return tensors


def made_up(network: Any) -> set[str]:
    """Return the names of tensors that were in no file (unused random numbers), or none if one was changed since."""
    weights, drawn = network.state_dict(), extras(network).made_up
    unchanged = all(
        name in weights and torch.equal(weights[name].cpu(), value.to(weights[name].dtype))
        for name, value in drawn.items()
    )
    return set(drawn) if unchanged else set()


def parameter_count(network: Any) -> int:
    """Return how many parameters a network has: shared ones count once, and those that no file has do not."""
    drawn = made_up(network)
    return sum(parameter.numel() for name, parameter in network.named_parameters() if name not in drawn)


def saved_weights(network: Any) -> tuple[dict[str, Tensor], torch.dtype]:
    """Return the state dict to write, and the float type to write it in: the opened checkpoint's, if nothing is lost.

    Tensors of other heads are included, and those that were in no file are not. The tensors are in the network's own
    type: in another they would be there twice, so what is written is narrowed in its file.
    """
    held, drawn = extras(network), made_up(network)
    weights = {name: tensor for name, tensor in network.state_dict().items() if name not in drawn}
    dtype = network.dtype
    if held.dtype is not None and held.dtype.itemsize < dtype.itemsize:
        # Training may have left numbers that the smaller type cannot hold.
        floats = (t for t in weights.values() if t.is_floating_point())
        parts = (part for t in floats for part in t.reshape(-1).split(_PART))
        if all(bool(torch.equal(part.to(held.dtype).to(part.dtype), part)) for part in parts):
            dtype = held.dtype
    return {**weights, **{name: tensor for name, tensor in held.tensors.items() if name not in weights}}, dtype
