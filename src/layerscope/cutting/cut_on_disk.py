"""`ls.cut_folder`: cuts a checkpoint on disk, tensor by tensor, without building the network.

A tensor that is only given another name or another file needs no dtype and no memory: where its bytes lie is read from
the header of its safetensors file, and they are streamed from file to file. That is how a checkpoint larger than memory
is cut.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
import xxhash

from layerscope.cutting.cut import can_be_built, check_against_replay, refuse
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.save import describe_folder
from layerscope.errors import DataError, InputError, LayerscopeError, ModelError, log
from layerscope.models import Model, load
from layerscope.models.lineage import ORIGIN, RECORD, remember
from layerscope.models.load import base_of, load_shape
from layerscope.models.sentence_embedding import is_embedding_folder, network_folder, read_embedding
from layerscope.models.sources import Source, fetch, parse
from layerscope.models.weight_files import INDEX, weight_files
from layerscope.progress import progress
from layerscope.store import atomic_folder, check_free, digest, read_object, write_json
from layerscope.store.validated import parse_json

_CHUNK = 8 << 20  # bytes read together
_LONGEST_HEADER = 100_000_000  # as the format itself has it
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


@dataclass(frozen=True)
class TensorPlace:
    """The place of a tensor's bytes in a safetensors file."""

    file: Path
    start: int
    stop: int
    dtype: str  # as the format names it, such as BF16
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self.stop - self.start

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes, a part at a time."""
        with self.file.open("rb") as file:
            file.seek(self.start)
            left = self.size
            while left:
                part = file.read(min(_CHUNK, left))
                if not part:
                    raise DataError(f"{self.file} ends before its last tensor does; fetch it again.")
                left -= len(part)
                yield part

    def checksum(self) -> str:
        """Return the hash of dtype, shape and bytes."""
        digest = self._digest()
        for part in self.chunks():
            digest.update(part)
        return digest.hexdigest()

    def _digest(self) -> xxhash.xxh3_128:
        """Return a hash of dtype and shape, to which the bytes are added."""
        return xxhash.xxh3_128(f"{self.dtype} {self.shape} ".encode())


def tensor_places(path: Path, error: type[LayerscopeError] = DataError) -> dict[str, TensorPlace]:
    """Return every tensor of a safetensors file by its name, from the header alone."""
    try:
        header, begin = _header(path)
        places = {name: _place(path, name, entry, begin) for name, entry in header.items() if name != "__metadata__"}
        _check_cover(places, begin, path.stat().st_size)
    except FileNotFoundError:
        raise error(f"{path} is not there.") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as problem:
        raise error(f"{path} is damaged or no safetensors file ({problem}); fetch it again.") from problem
    return places


def write_shard(path: Path, tensors: Mapping[str, TensorPlace]) -> dict[str, str]:
    """Write tensors under these names, streamed from where they lie; return the checksum of each as it was read."""
    order = sorted(tensors, key=lambda name: (-_BITS[tensors[name].dtype], name))  # keeps every tensor aligned
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in order:
        place = tensors[name]
        start, end = end, end + place.size
        header[name] = {"dtype": place.dtype, "shape": list(place.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    checksums = {}
    with path.open("xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            digest = tensors[name]._digest()
            for part in tensors[name].chunks():
                digest.update(part)
                file.write(part)
            checksums[name] = digest.hexdigest()
        file.flush()
        os.fsync(file.fileno())
    return checksums


def shards(tensors: Mapping[str, TensorPlace], most: int) -> list[dict[str, TensorPlace]]:
    """Return the tensors in their order, dealt out to files of at most `most` bytes (or one tensor that is larger)."""
    files: list[dict[str, TensorPlace]] = []
    room = 0
    for name, place in tensors.items():
        if not files or place.size > room:
            files.append({})
            room = most
        files[-1][name] = place
        room -= place.size
    return files


def shard_names(count: int, stem: str = "model") -> list[str]:
    """Return the file names that transformers gives to so many files of weights."""
    if count == 1:
        return [f"{stem}.safetensors"]
    return [f"{stem}-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]


def index_of(names: Sequence[str], parts: Sequence[Mapping[str, TensorPlace]]) -> dict[str, object]:
    """Return the index of several files, as transformers reads it."""
    where = {tensor: name for name, part in zip(names, parts, strict=True) for tensor in part}
    total = sum(place.size for part in parts for place in part.values())
    return {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}


def _header(path: Path) -> tuple[dict[str, dict[str, object]], int]:
    """Return the header of a safetensors file, and where its tensors begin; raise ValueError where it is damaged."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(_LONGEST_HEADER, path.stat().st_size - 8):
            raise ValueError(f"its header claims to have {length} bytes")
        header = parse_json(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")
    return header, 8 + length


def _place(path: Path, name: str, entry: dict[str, object], begin: int) -> TensorPlace:
    """Return the place of a tensor from its entry in the header; raise ValueError where that contradicts itself."""
    dtype, shape = str(entry["dtype"]), tuple(int(size) for size in entry["shape"])  # type: ignore[attr-defined]
    start, stop = (int(offset) for offset in entry["data_offsets"])  # type: ignore[attr-defined]
    if dtype not in _BITS:
        raise ValueError(f"{name} is of dtype {dtype}, which is not known")
    if min(shape, default=0) < 0 or stop - start != prod(shape) * _BITS[dtype] // 8:
        raise ValueError(f"{name} of shape {shape} and dtype {dtype} does not take {stop - start} bytes")
    return TensorPlace(path, begin + start, begin + stop, dtype, shape)


def _check_cover(places: Mapping[str, TensorPlace], begin: int, end: int) -> None:
    """Raise ValueError unless tensors lie one after another, from the header to the end of the file."""
    at = begin
    for name, place in sorted(places.items(), key=lambda item: (item[1].start, item[1].stop)):
        if place.start != at:
            raise ValueError(f"{name} does not begin where the tensor before it ends")
        at = place.stop
    if at != end:
        raise ValueError(f"it has {end - begin} bytes of tensors and its header names {at - begin}")


MOST = 2_000_000_000  # bytes of a file of weights
_ROOM = 0.5  # of the memory that is free, for reopening and comparing
# What goes with the weights, beside the config: how texts become tokens, and how to generate.
_ALONG = (
    *("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json", "*.model", "spiece.*"),
    *("chat_template*", "generation_config.json", "bpe.codes", "*.tiktoken"),
)


def cut_folder(folder: str | Path, plan: LayerPlan, path: str | Path) -> Path:
    """Cut a checkpoint on disk: tensors are copied file by file, and the network is never built.

    Kept blocks get their new numbers, lists with an entry per block are cut in the config, weights that were tied stay
    tied. Every tensor that was written is read again and compared by its hash; where both models fit in memory, they
    are opened and compared by what they compute, too.

    Args:
        folder: A checkpoint: a folder, a hub id, `id@revision`, `garden:<name>`.
        plan: Which blocks stay.
        path: The folder to write. An existing one is replaced only if layerscope saved it.

    Returns:
        The folder.

    Example:
        >>> import tempfile, layerscope as ls
        >>> smaller = ls.cut_folder("garden:bert-s0", ls.LayerPlan([1, 3]), f"{tempfile.mkdtemp()}/smaller")
        >>> ls.load(smaller).depth
        2
    """
    target = Path(path)
    FolderCut(folder).write(plan, target)
    return target


class FolderCut:
    """A checkpoint on disk, ready to be cut there; raises InputError or ModelError where that cannot be done.

    Args:
        folder: As in `cut_folder`.
    """

    def __init__(self, folder: str | Path) -> None:
        self.name, self.asked = str(folder), parse(str(folder))
        if self.asked.random:
            raise InputError(f"{folder} has no weights on disk; cut it in memory: ls.cut(model, plan), then ls.save.")
        self.outer = fetch(self.asked)
        self.inner = network_folder(self.outer)
        self.model = load_shape(self.asked, self.outer)
        self.places = read_places(self.inner, self.asked.name)

    def select(self, plan: LayerPlan) -> dict[str, TensorPlace]:
        """Return the tensors that a plan keeps, under their new names; raise ModelError where there are none."""
        if not isinstance(plan, LayerPlan):
            raise InputError(f"A LayerPlan was asked for and {plan!r} was given; write ls.LayerPlan([1, 2, 5]), say.")
        check_plan(self.model, plan)
        return renumbered(self.places, self.model, plan)

    def write(self, plan: LayerPlan, target: Path) -> bool:
        """Write the smaller checkpoint; return whether it was also opened and compared by what it computes."""
        kept = self.select(plan)
        check_free(target, RECORD)
        _check_room(kept, target)
        with atomic_folder(target, RECORD) as staging:
            checksums = _write_weights(kept, staging)
            write_json(staging / "config.json", _smaller_config(self.inner / "config.json", self.model, plan))
            _copy_along(self.inner, staging)
            if is_embedding_folder(self.outer):
                read_embedding(self.outer, self.asked.name).write(staging)
            _describe(self.model, plan, kept, checksums, (self.asked, self.outer), staging)
            return _compare(self.name, staging, plan, self.places)


def check_plan(model: Model, plan: LayerPlan) -> None:
    """Raise ModelError where a plan cannot become a checkpoint of a model of which only the shape is known."""
    plan.check(model.depth)
    refuse(model, plan)
    if not can_be_built(model, plan):
        raise ModelError(
            f"{model.name} ({model.architecture.family}) cannot be built with {plan} as a checkpoint: its tensors or "
            "what its blocks are told would differ; keep other blocks."
        )


def read_places(folder: Path, name: str) -> dict[str, TensorPlace]:
    """Return every tensor of a checkpoint's files by its name."""
    files = [tensor_places(file, ModelError) for file in weight_files(folder, name)]
    return {tensor: place for places in files for tensor, place in places.items()}


def renumbered(places: Mapping[str, TensorPlace], model: Model, plan: LayerPlan) -> dict[str, TensorPlace]:
    """Return the tensors that stay, under their new names.

    Checkpoints name blocks with the body's prefix or without it.
    """
    if model.architecture.shared:
        return dict(places)
    prefix = f"(?:{re.escape(model.network.base_model_prefix)}\\.)?"
    lists = "|".join(map(re.escape, (model.architecture.blocks, *model.architecture.beside)))
    pattern = re.compile(f"({prefix}(?:{lists})\\.)(\\d+)(\\..+)")
    matches = {name: pattern.fullmatch(name) for name in places}
    numbers = {int(match[2]) for match in matches.values() if match}
    if numbers != set(range(model.depth)):
        raise ModelError(
            f"{model.name} ({model.architecture.family}) is said to have {model.depth} blocks, and its files name "
            f"{len(numbers)} under {model.architecture.blocks}: they cannot be renumbered on disk. Cut it in memory: "
            "ls.cut."
        )
    number = {block - 1: k for k, block in enumerate(plan.keep)}
    kept = {}
    for name, place in places.items():
        match = matches[name]
        if match is None:
            kept[name] = place
        elif int(match[2]) in number:
            kept[f"{match[1]}{number[int(match[2])]}{match[3]}"] = place
    return kept


def _check_room(kept: Mapping[str, TensorPlace], target: Path) -> None:
    """Raise InputError where the disk has too little room for the tensors."""
    needed, free = sum(place.size for place in kept.values()), shutil.disk_usage(target.parent).free
    if needed > free:
        raise InputError(
            f"{target} would take {needed / 1e9:.1f} GB and {target.parent} has {free / 1e9:.1f} GB left; free some "
            "space or give another path."
        )


def _write_weights(kept: Mapping[str, TensorPlace], folder: Path) -> dict[str, str]:
    """Write the files of weights, and return the checksum of every tensor.

    Each file is read again, and every tensor is compared with what it was copied from.
    """
    parts, checksums = shards(kept, MOST), dict[str, str]()
    names = shard_names(len(parts))
    total = sum(place.size for place in kept.values())
    with progress(f"writing {folder.parent.name}", total, "bytes") as advance:
        for name, part in zip(names, parts, strict=True):
            copied = write_shard(folder / name, part)
            again = {tensor: place.checksum() for tensor, place in tensor_places(folder / name, ModelError).items()}
            if again != copied:
                raise ModelError(f"{name} is not what was written to it: the disk is failing; nothing was saved.")
            checksums |= copied
            advance(sum(place.size for place in part.values()))
    if len(parts) > 1:
        write_json(folder / INDEX, index_of(names, parts))
    return checksums


def _smaller_config(path: Path, model: Model, plan: LayerPlan) -> dict[str, Any]:
    """Return the config as it stands in its file, with fewer blocks.

    A file may leave out what each block is, as Gemma 2's does: transformers then works it out from a block's number,
    which a cut changes. So the lists are those that transformers has for the whole model.
    """
    config = read_object(path, error=ModelError)
    for field in model.architecture.layer_lists:
        values = getattr(model.network.config, field, None)
        if values is not None:
            config[field] = [values[block - 1] for block in plan.keep]
    for field in {model.architecture.depth_field, "num_hidden_layers"} & config.keys() or {
        model.architecture.depth_field
    }:
        config[field] = len(plan.keep)
    return config


def _copy_along(source: Path, target: Path) -> None:
    """Copy the files that go with the weights, such as the tokenizer's."""
    for pattern in _ALONG:
        for file in sorted(source.glob(pattern)):
            if file.is_file() and not (target / file.name).exists() and not file.name.endswith((".bin", ".pt")):
                shutil.copyfile(file, target / file.name)


def _describe(
    model: Model,
    plan: LayerPlan,
    kept: Mapping[str, TensorPlace],
    checksums: Mapping[str, str],
    source: tuple[Source, Path],
    folder: Path,
) -> None:
    """Write the record and the card of the cut checkpoint.

    Weights that are never in memory have the hash of their files in place of the network's.
    """
    network = model.network
    remember(network, source[1], base_of(*source))
    step = {"from": model.name, "weights": "", "depth": model.depth, **plan.spec()}
    setattr(network, ORIGIN, [*getattr(network, ORIGIN, []), step])
    parameters = sum(torch.Size(place.shape).numel() for place in kept.values())
    hashes = digest(*(f"{name} {checksum}" for name, checksum in sorted(checksums.items())))
    describe_folder(model, folder, depth=len(plan.keep), parameters=parameters, files=hashes)


def _compare(source: str, folder: Path, plan: LayerPlan, places: Mapping[str, TensorPlace]) -> bool:
    """Open both checkpoints and compare what they compute; return False where they do not fit in memory."""
    numbers = sum(torch.Size(place.shape).numel() for place in places.values())
    if 8 * numbers > _ROOM * free_memory():
        log.warning(
            "%s is too large to be opened here beside the whole; every tensor was compared by its hash instead.",
            source,
        )
        return False
    whole, smaller = load(source, device="cpu"), load(str(folder), device="cpu")
    check_against_replay(whole, smaller.network, plan)
    return True


def free_memory() -> int:
    """Return how many bytes can be allocated without swapping."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):  # not Linux
        return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
