"""The files of a checkpoint, those of its weights, and checks of its config against their headers.

Only this module decides which files belong to a folder, whatever its links say, and which of them weights are read
from: safetensors, whatever else the folder says.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field

from layerscope.errors import DataError, ModelError, some
from layerscope.store import Saved, inside, open_tensors, read_json

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
CONVERT = (
    "convert it once, where you trust the file: load it with transformers' from_pretrained and "
    "save it with save_pretrained, which writes model.safetensors"
)
_AGAIN = "a file is damaged or was not copied or downloaded to its end; fetch it again"
_ADAPTER = "adapter_config.json"
_FEWEST = 512  # blocks that are always allowed: families that run one block many times have few tensors
_COUNTS = re.compile(r"(^|_)(layers?|layer_groups|hidden_groups|group_num|experts|stages)$")
_EXPERTS_ARE_ROWS = ("doge",)  # families whose experts are the rows of a table, where there are any
_POSITIVE = re.compile(r"heads?$|^(vocab|hidden|intermediate)_size$|^(num|n)_(labels|layers?|hidden_layers)$")
_CLASSES = 1 << 22  # of a head, at most
_SIZES = ("vocab_size", "intermediate_size", "type_vocab_size", "num_labels", "embedding_size", "head_dim")
_SIZES_ELSEWHERE = ("n_inner", "ffn_dim", "d_ff", "d_inner", "hidden_dim", "moe_intermediate_size", "n_positions")
_POSITIONS = re.compile(r"(position_embeddings?|embed_positions|wpe)\.weight$")
_LONGEST = 1 << 31  # tokens
_PACKED = 2  # numbers in a byte, at most: weights of 4 bits


class _Config(Saved):
    """The fields of a config.json that are checked before transformers reads it."""

    model_config = ConfigDict(extra="allow")
    architectures: list[str] | None = None
    transformers_weights: str | None = None


class _Index(Saved):
    """The index of a checkpoint in several files: which file holds which tensor."""

    weight_map: dict[str, str] = Field(min_length=1)


def folder_files(folder: Path, root: Path, *, deep: bool = False) -> list[Path]:
    """Return the files of a model's folder, in its subfolders too if `deep`; a link that leads elsewhere is refused.

    Files of a model are copied into what is saved of it, so a link in a folder that somebody sent could publish a file
    of the user's. Links may lead to what lies in `root`, the folder that was named, and in the hub's cache, whose
    snapshots are made of links; any other raises ModelError.
    """
    from huggingface_hub.constants import HF_HUB_CACHE

    whole = root.resolve()
    allowed = [whole, Path(HF_HUB_CACHE).resolve()]
    for place in (whole, *whole.parents):
        # A cache in another place than the usual one: models--ID/snapshots/REVISION links to models--ID/blobs, and
        # those may be links to blobs that all repositories share.
        if place.parent.name == "snapshots" and (repository := place.parents[1]).name.startswith("models--"):
            allowed += [repository, repository.parent / "blobs"]
    files = sorted(path for path in (folder.rglob("*") if deep else folder.glob("*")) if path.is_file())
    for path in files:
        target = path.resolve()
        if not any(target.is_relative_to(place) for place in allowed):
            raise ModelError(
                f"{path} is a link to {target}, outside of {root}, and would be read and saved as a part of the model; "
                "put a copy of the file there, or remove the link."
            )
    return files


def weight_files(folder: Path, name: str) -> list[Path]:
    """Return the files that hold a checkpoint's weights, or raise ModelError unless all are safetensors and there."""
    if (folder / _ADAPTER).is_file():
        raise ModelError(
            f"{name} holds a whole model and beside it an adapter ({_ADAPTER}), and transformers would apply that "
            f"silently; to open the model by itself, move {_ADAPTER} away, and for the model with its adapter "
            "merge it (merge_and_unload) and save that."
        )
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        index = read_json(folder / INDEX, _Index, error=ModelError, way_out="fetch it again")
        return [_shard(folder, file, name) for file in sorted(set(index.weight_map.values()))]
    pickles = sorted(path.name for ending in ("bin", "pt", "pth", "ckpt") for path in folder.glob(f"*.{ending}"))
    if pickles:
        raise ModelError(
            f"{name} has its weights only as a pickle file ({pickles[0]}), which can run code when it is "
            f"opened and is refused; {CONVERT}."
        )
    way_out = f"; {named[0]} in it is opened by naming the file" if (named := gguf_files(folder)) else ""
    raise ModelError(f"{name} has a config.json but no {WEIGHTS}, so there are no weights to open{way_out}.")


def gguf_files(folder: Path) -> list[str]:
    """Return the GGUF files in a folder, for messages; a GGUF file is only opened where it is named itself."""
    return sorted(path.name for path in folder.glob("*.gguf"))


def _shard(folder: Path, file: str, name: str) -> Path:
    """Return a file that the index names, or raise ModelError where it is missing or may not be opened."""
    if not file.endswith(".safetensors"):
        raise ModelError(
            f"The {INDEX} of {name} names {file[:60]!a}, which is not a safetensors file: it may be a pickle, which "
            f"can run code when it is opened and is refused; {CONVERT}."
        )
    if Path(file).name != file:
        inside(folder, file, ModelError)
    if not os.path.isfile(folder / file):  # False, too, for a name that no disk has room for
        raise ModelError(f"The weights of {name} cannot be read ({some([file])} is missing): {_AGAIN}.")
    return folder / file


def adapter_weights(folder: Path) -> Path:
    """Return the file with the weights of a peft adapter, or raise ModelError: peft itself would open a pickle."""
    path = inside(folder, "adapter_model.safetensors", ModelError)
    if not path.is_file():
        raise ModelError(f"{folder} holds no {path.name}; adapters are read from safetensors only, so save it again.")
    return path


@dataclass(frozen=True)
class Room:
    """The room that a checkpoint's files have for weights, by their headers: tensors, and how many numbers."""

    names: frozenset[str]
    numbers: int  # how many the files can hold
    positions: bool  # whether there is a table of position embeddings

    @property
    def tensors(self) -> int:
        return len(self.names)


def check_config(folder: Path, name: str, is_random: bool = False) -> Room | None:
    """Raise ModelError where a config.json does not fit its weights, before transformers reads it.

    Returns the room that the files have, or None for random weights, which have no files.
    """
    raw = read_json(folder / "config.json", _Config, error=ModelError, way_out=f"fetch the checkpoint {name} again")
    if raw.transformers_weights not in (None, WEIGHTS, INDEX):
        raise ModelError(
            f"The config.json of {name} says that its weights are in {raw.transformers_weights[:60]!a}; only {WEIGHTS} "
            "and what its index names are read."
        )
    room = None if is_random else _room(weight_files(folder, name), name)
    check_counts(raw.model_extra or {}, room, name)
    return room


def check_counts(fields: Mapping[str, Any], room: Room | None, name: str, where: str = "config.json") -> None:
    """Raise ModelError where a number of a config is impossible: what it counts must be among the tensors."""
    most = 8 * _FEWEST if room is None else max(room.tensors, _FEWEST)
    for field, value in _numbers(fields):
        if math.isnan(value):
            raise ModelError(f"The {where} of {name} says {some([field])} NaN, which is not a number.")
        if isinstance(value, float):
            continue
        if value < 0 and _POSITIVE.search(field):
            raise ModelError(f"The {where} of {name} says {field} {value}; it cannot be negative.")
        # transformers names every class while it reads a config, which takes memory before any tensor is looked at.
        if field == "num_labels" and value > _CLASSES and room is None:
            raise ModelError(f"The {where} of {name} says num_labels {value:,}; at most {_CLASSES:,} are built.")
        if field == "num_labels" and room is not None and value > min(room.numbers, _CLASSES):
            raise _mismatch(name, f"num_labels is {value:,}, and the files have no head of that size", where)
        rows = field == "num_experts" and fields.get("model_type") in _EXPERTS_ARE_ROWS
        if _COUNTS.search(field) and value > most and not rows:
            if room is None:
                raise ModelError(f"The {where} of {name} says {field} {value:,}; at most {most:,} are built.")
            raise _mismatch(name, f"{field} is {value:,}, and there are {room.tensors} tensors in all", where)


def check_sizes(
    config: Any, room: Room | None, build: Callable[[], Any], name: str, where: str = "config.json"
) -> None:
    """Raise ModelError where what a config describes does not fit into its weights' files, or without any, into memory.

    A config of a few bytes can ask for more memory than there is, which would end the process.
    """
    if room is None:
        _check_memory(build, name)
        return
    for field, needed in _needed(config, room.positions):
        if needed > room.numbers:
            raise _mismatch(
                name,
                f"{field} is {getattr(config, field):,}, which asks for {needed:,} numbers in one place, and the files "
                f"have room for {room.numbers:,} in all",
                where,
            )


def _check_memory(build: Callable[[], Any], name: str) -> None:
    """Raise ModelError where a network, built without memory, has more weights than the machine has memory for."""
    import torch

    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        needed = 4 * sum(parameter.numel() for parameter in build().parameters())
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > memory:
        raise ModelError(
            f"The model that the config.json of {name} describes takes {needed / 1e9:,.0f} GB, and this machine has "
            f"{memory / 1e9:,.0f}; give a smaller one."
        )


def _room(files: list[Path], name: str) -> Room:
    """Read the headers of weight files; the numbers they can hold are bounded by their sizes."""
    names, numbers, positions = set[str](), 0, False
    for path in files:
        try:
            file = open_tensors(path)
        except DataError as error:
            raise ModelError(f"The weights of {name} cannot be read ({str(error).rstrip('.')}): {_AGAIN}.") from error
        names.update(file.names)
        numbers += path.stat().st_size * _PACKED
        positions = positions or any(_POSITIONS.search(tensor) for tensor in file.names)
    return Room(frozenset(names), numbers, positions)


def _needed(config: Any, positions: bool) -> Iterator[tuple[str, int]]:
    """Yield every size of a config with how many numbers it asks for in one tensor, at the least."""
    width = _size(config, "hidden_size")
    width = width if isinstance(width, int) and width > 0 else 1
    for field in ("hidden_size", *_SIZES, *_SIZES_ELSEWHERE):
        value = _size(config, field)
        if isinstance(value, int):
            yield field, value * (1 if field in ("hidden_size", "embedding_size", "n_positions") else width)
    if config.model_type in _EXPERTS_ARE_ROWS and config.is_moe:
        yield "num_experts", config.num_experts * width
    longest = _size(config, "max_position_embeddings")
    if isinstance(longest, int) and (positions or longest > _LONGEST):  # else they are computed, not looked up
        yield "max_position_embeddings", longest * width


def _size(config: Any, field: str) -> Any:
    """Return a field of a config; None where there is none, or where it differs from block to block (Gemma 4)."""
    try:
        return getattr(config, field, None)
    except Exception:  # transformers refuses to name one value for all blocks, by an error of its own
        return None


def _numbers(part: Any) -> Iterator[tuple[str, int | float]]:
    """Yield every number in a config with its name, those of configs inside it too."""
    for field, value in (part or {}).items():
        if isinstance(value, dict):
            yield from _numbers(value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield str(field), value


def _mismatch(name: str, what: str, where: str = "config.json") -> ModelError:
    return ModelError(
        f"The weights of {name} do not match its {where}: {what}. The checkpoint is broken and is not opened."
    )
