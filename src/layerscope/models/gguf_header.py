"""The header of a GGUF file, read with every length checked against the file before anything believes it.

The layout is that of llama.cpp (docs/gguf.md of ggml): magic, version, counts, metadata, where each tensor lies.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import BinaryIO

from layerscope.errors import ModelError

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_LARGEST = 64 << 20  # bytes of metadata; vocabularies of 262,144 tokens take 10 MB
_ENTRIES = 8_000_000  # of all lists together; the largest vocabularies have one million, with their merges
_DIMENSIONS = 4
_STRING, _LIST, _ALIGNMENT = 8, 9, 32
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_AGAIN = "it is damaged or was not copied or downloaded to its end; fetch it again"


@dataclass(frozen=True)
class TensorInfo:
    """Where a tensor lies and how its numbers are written."""

    name: str
    shape: tuple[int, ...]
    kind: int  # ggml's number of the quantisation
    offset: int  # in the data, which begins after the header

    @property
    def numbers(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class Header:
    """What a GGUF file says of itself."""

    metadata: dict[str, str | int | float | bool]  # what is not a list
    lists: dict[str, int]  # how many entries each list has
    tensors: list[TensorInfo] = field(repr=False)
    data: int  # where the data begins
    size: int  # of the file

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture", ""))

    @property
    def numbers(self) -> int:
        return sum(tensor.numbers for tensor in self.tensors)


def read_header(path: Path, name: str) -> Header:
    """The header of a file, or the sentence why it cannot be one."""
    with path.open("rb") as file:
        return _Reader(file, path.stat().st_size, name).header()


def is_gguf(path: Path) -> bool:
    """Whether a file begins as GGUF files do."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def check_places(header: Header, sizes: dict[int, tuple[int, int]], name: str) -> None:
    """Raise a sentence unless every tensor lies in the file and no two share bytes.

    Args:
        header: What the file says.
        sizes: For each kind of quantisation how many numbers a block of it has, and how many bytes.
        name: What the file is called.
    """
    end, room = 0, header.size - header.data
    for tensor in sorted(header.tensors, key=lambda each: each.offset):
        if tensor.kind not in sizes:
            raise ModelError(
                f"{name} has a tensor {tensor.name[:60]!a} with weights of the kind {tensor.kind}, which the installed "
                "package gguf does not know; update it: pip install -U gguf."
            )
        block, width = sizes[tensor.kind]
        if tensor.shape[0] % block:
            raise _broken(name, f"the rows of {tensor.name[:60]!a} are {tensor.shape[0]} long, and blocks {block}")
        if tensor.offset < end:
            raise _broken(name, f"the tensor {tensor.name[:60]!a} lies on another one")
        end = tensor.offset + tensor.numbers // block * width
        if end > room:
            raise _broken(name, f"the tensor {tensor.name[:60]!a} ends {end - room:,} bytes after the file does")


class _Reader:
    """Reads values one after another; none may end after the file does."""

    def __init__(self, file: BinaryIO, size: int, name: str) -> None:
        self._file, self._size, self._name = file, size, name
        self._entries = 0

    def header(self) -> Header:
        if self._take(4) != MAGIC:
            raise ModelError(f"{self._name} is not a GGUF file: it does not begin with the letters GGUF.")
        version = self._number("I")
        if version not in _VERSIONS:
            swapped = struct.unpack(">I", struct.pack("<I", version))[0]
            what = "its numbers are big-endian" if swapped in _VERSIONS else f"it has version {version} of the format"
            raise ModelError(f"{self._name} cannot be read: {what}; only versions 2 and 3, little-endian, are read.")
        tensors, entries = self._number("Q"), self._number("Q")
        if 24 * tensors + 13 * entries > self._size:  # what the shortest of each take
            raise _broken(self._name, f"it announces {tensors:,} tensors and {entries:,} entries of metadata")
        metadata: dict[str, str | int | float | bool] = {}
        lists: dict[str, int] = {}
        for _ in range(entries):
            key, kind = self._text(), self._number("I")
            if key in metadata or key in lists:
                raise _broken(self._name, f"{key[:60]!a} stands there twice")
            if kind == _LIST:
                lists[key] = self._skip_list()
            else:
                metadata[key] = self._value(kind)
        infos = [self._tensor() for _ in range(tensors)]
        if len({info.name for info in infos}) < len(infos):
            raise _broken(self._name, "two tensors have one name")
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if isinstance(alignment, bool) or not isinstance(alignment, int) or alignment.bit_count() != 1:
            raise _broken(self._name, f"its alignment is {alignment!a}")
        return Header(metadata, lists, infos, -(-self._file.tell() // alignment) * alignment, self._size)

    def _take(self, count: int) -> bytes:
        if self._file.tell() + count > _LARGEST:
            raise _broken(self._name, f"its metadata would take more than {_LARGEST >> 20} MB")
        content = self._file.read(count)
        if len(content) < count:
            raise _broken(self._name, "it ends within its header")
        return content

    def _number(self, code: str) -> int:
        return int(struct.unpack(f"<{code}", self._take(struct.calcsize(code)))[0])

    def _text(self) -> str:
        try:
            return self._take(self._number("Q")).decode("utf-8")
        except UnicodeDecodeError:
            raise _broken(self._name, "a name in its header is not text") from None

    def _value(self, kind: int) -> str | int | float | bool:
        if kind == _STRING:
            return self._text()
        code = self._code(kind)
        value: int | float | bool = struct.unpack(f"<{code}", self._take(struct.calcsize(code)))[0]
        return value

    def _code(self, kind: int) -> str:
        if kind not in _SCALARS:
            raise _broken(self._name, f"a value in its header is of the kind {kind}")
        return _SCALARS[kind]

    def _skip_list(self) -> int:
        kind, count = self._number("I"), self._number("Q")
        self._entries += count
        if self._entries > _ENTRIES:
            raise _broken(self._name, f"lists in its header have more than {_ENTRIES:,} entries")
        if kind == _STRING:
            for _ in range(count):
                self._take(self._number("Q"))
        else:
            self._take(count * struct.calcsize(self._code(kind)))
        return count

    def _tensor(self) -> TensorInfo:
        name, dimensions = self._text(), self._number("I")
        if not 1 <= dimensions <= _DIMENSIONS:
            raise _broken(self._name, f"the tensor {name[:60]!a} has {dimensions} dimensions")
        shape = tuple(self._number("Q") for _ in range(dimensions))
        if not all(shape):
            raise _broken(self._name, f"the tensor {name[:60]!a} is empty")
        return TensorInfo(name, shape, self._number("I"), self._number("Q"))


def _broken(name: str, what: str) -> ModelError:
    return ModelError(f"{name} cannot be read ({what}): {_AGAIN}.")
