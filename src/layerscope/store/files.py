"""Writing so that a file is either whole or not there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from layerscope.errors import log
from layerscope.store.keys import checksum, json_text
from layerscope.store.staging import clear, staging_file

_SEAL = ".checksum"


def sync(path: Path) -> None:
    """Flush a file or a folder's listing to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary name to write a file under, which takes the name `path` only when the block ends well.

    Where `path` is a link, the link is replaced, and what it points to is left alone.
    """
    clear(path.parent)
    with staging_file(path.parent) as temporary:
        yield temporary
        sync(temporary)
        temporary.replace(path)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write a text, whole or not at all; half a character, as broken file names hold, becomes a question mark."""
    write_bytes(path, text.encode("utf-8", "replace"))


def seal(path: Path) -> None:
    """Note the checksum of a finished part of an artifact, so that a later try can tell whether it is still whole."""
    write_text(_seal_of(path), checksum(path))


def is_sealed(path: Path) -> bool:
    """Whether a part that an earlier try left is there and as it was written."""
    if not path.is_file():
        return False
    if _seal_of(path).is_file() and _seal_of(path).read_bytes() == checksum(path).encode():
        return True
    log.warning("%s, which an earlier try left, is damaged or was not finished; it is made again.", path.name)
    return False


def remove_seals(folder: Path) -> None:
    """The checksums of the parts, when the whole artifact gets its own."""
    for file in list(folder.rglob(f".*{_SEAL}")):
        file.unlink()


def _seal_of(path: Path) -> Path:
    return path.with_name(f".{path.name}{_SEAL}")


def write_json(path: Path, value: Any) -> None:
    """Write JSON, whole or not at all."""
    write_text(path, json_text(value, indent=1, ensure_ascii=False) + "\n")
