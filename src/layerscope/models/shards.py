"""Files of tensors as bytes: where each tensor lies by the header, and how it is streamed from file to file.

A tensor that is only given another name, another file or fewer bits needs no memory: its bytes are copied a part at a
time. That is how a checkpoint larger than memory is cut, and how one is saved in fewer bits than it is open in.
"""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
import xxhash

from layerscope.errors import DataError, LayerscopeError
from layerscope.store import parse_json

_CHUNK = 8 << 20  # bytes read together
_LONGEST_HEADER = 100_000_000  # as the format itself has it
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
FLOATS = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}


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

    def chunks(self) -> Iterator[memoryview]:
        """Yield the bytes, a part of `_CHUNK` at a time and then the rest; a part is overwritten by the next one."""
        room = memoryview(bytearray(min(_CHUNK, self.size)))
        with self.file.open("rb") as file:
            file.seek(self.start)
            for start in range(0, self.size, _CHUNK):
                part = room[: min(_CHUNK, self.size - start)]
                if file.readinto(part) < len(part):
                    raise DataError(f"{self.file} ends before its last tensor does; fetch it again.")
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


@dataclass(frozen=True)
class NarrowedPlace(TensorPlace):
    """A tensor in a file whose numbers are read in another float type."""

    source: TensorPlace

    @classmethod
    def of(cls, place: TensorPlace, dtype: torch.dtype) -> TensorPlace:
        """Return the same tensor in a float type; one that is not of floats stays as it is."""
        if place.dtype not in FLOATS or FLOATS[place.dtype] == dtype:
            return place
        name = next(name for name, each in FLOATS.items() if each == dtype)
        size = prod(place.shape) * dtype.itemsize
        return cls(place.file, place.start, place.start + size, name, place.shape, place)

    def chunks(self) -> Iterator[memoryview]:
        """Yield the bytes of the numbers in their new type, a part at a time."""
        before, after = FLOATS[self.source.dtype], FLOATS[self.dtype]
        for part in self.source.chunks():
            yield torch.frombuffer(part, dtype=before).to(after).view(torch.uint8).numpy().data


def tensor_places(path: Path, error: type[LayerscopeError] = DataError) -> dict[str, TensorPlace]:
    """Return every tensor of a safetensors file by its name, from the header alone."""
    try:
        header, begin = _header(path)
        places = {name: _place(path, name, entry, begin) for name, entry in header.items() if name != "__metadata__"}
        _check_cover(places, begin, path.stat().st_size)
    except FileNotFoundError:
        raise error(f"{path} is not there.") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as problem:
        raise error(f"{path} is damaged or not a safetensors file ({problem}); fetch it again.") from problem
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


def narrow(path: Path, dtype: torch.dtype, but: Container[str] = ()) -> None:
    """Write a file of tensors again with its floats in another type, in its place; those named in `but` stay."""
    places = tensor_places(path)
    narrowed = {name: place if name in but else NarrowedPlace.of(place, dtype) for name, place in places.items()}
    write_shard(whole := path.with_name(f"{path.name}.narrow"), narrowed)
    whole.replace(path)
