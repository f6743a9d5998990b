"""Tensors as bytes: where each lies in its safetensors file, copied from file to file without being read into memory.

A tensor that is only given another name or another file needs no dtype and no memory: its bytes are streamed. That is
how a checkpoint larger than memory is cut.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import xxhash

from layerscope.errors import DataError, LayerscopeError
from layerscope.store.reading import parse_json

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
    """Where a tensor's bytes lie."""

    file: Path
    start: int
    stop: int
    dtype: str  # as the format names it, such as BF16
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """In bytes."""
        return self.stop - self.start

    def chunks(self) -> Iterator[bytes]:
        """The bytes, a part at a time."""
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
        """Of dtype, shape and bytes."""
        digest = self._about()
        for part in self.chunks():
            digest.update(part)
        return digest.hexdigest()

    def _about(self) -> xxhash.xxh3_128:
        return xxhash.xxh3_128(f"{self.dtype} {self.shape} ".encode())


def tensor_places(path: Path, error: type[LayerscopeError] = DataError) -> dict[str, TensorPlace]:
    """Every tensor of a safetensors file by its name, from the header alone."""
    try:
        header, begin = _header(path)
        places = {name: _place(path, name, about, begin) for name, about in header.items() if name != "__metadata__"}
        _check_cover(places, begin, path.stat().st_size)
    except FileNotFoundError:
        raise error(f"{path} is not there.") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as problem:
        raise error(f"{path} is damaged or no safetensors file ({problem}); fetch it again.") from problem
    return places


def write_shard(path: Path, tensors: Mapping[str, TensorPlace]) -> dict[str, str]:
    """Write tensors under these names, streamed from where they lie; returns the checksum of each as it was read."""
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
            digest = tensors[name]._about()
            for part in tensors[name].chunks():
                digest.update(part)
                file.write(part)
            checksums[name] = digest.hexdigest()
        file.flush()
        os.fsync(file.fileno())
    return checksums


def shards(tensors: Mapping[str, TensorPlace], most: int) -> list[dict[str, TensorPlace]]:
    """The tensors in their order, dealt out to files of at most `most` bytes each (or one tensor, if it is larger)."""
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
    """The file names that transformers gives them."""
    if count == 1:
        return [f"{stem}.safetensors"]
    return [f"{stem}-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]


def index_of(names: Sequence[str], parts: Sequence[Mapping[str, TensorPlace]]) -> dict[str, object]:
    """The index of several files, as transformers reads it."""
    where = {tensor: name for name, part in zip(names, parts, strict=True) for tensor in part}
    total = sum(place.size for part in parts for place in part.values())
    return {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}


def _header(path: Path) -> tuple[dict[str, dict[str, object]], int]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(_LONGEST_HEADER, path.stat().st_size - 8):
            raise ValueError(f"its header claims to have {length} bytes")
        header = parse_json(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")
    return header, 8 + length


def _place(path: Path, name: str, about: dict[str, object], begin: int) -> TensorPlace:
    dtype, shape = str(about["dtype"]), tuple(int(size) for size in about["shape"])  # type: ignore[attr-defined]
    start, stop = (int(offset) for offset in about["data_offsets"])  # type: ignore[attr-defined]
    if dtype not in _BITS:
        raise ValueError(f"{name} is of dtype {dtype}, which is not known")
    if min(shape, default=0) < 0 or stop - start != prod(shape) * _BITS[dtype] // 8:
        raise ValueError(f"{name} of shape {shape} and dtype {dtype} does not take {stop - start} bytes")
    return TensorPlace(path, begin + start, begin + stop, dtype, shape)


def _check_cover(places: Mapping[str, TensorPlace], begin: int, end: int) -> None:
    """Tensors lie one after another, from the header to the end of the file."""
    at = begin
    for name, place in sorted(places.items(), key=lambda item: (item[1].start, item[1].stop)):
        if place.start != at:
            raise ValueError(f"{name} does not begin where the tensor before it ends")
        at = place.stop
    if at != end:
        raise ValueError(f"it has {end - begin} bytes of tensors and its header names {at - begin}")
