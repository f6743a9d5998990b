"""Writing so that a file is either whole or not there."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from layerscope.errors import InputError, log
from layerscope.store.keys import checksum

_TRIES = 5  # to take the place of a folder that another process writes too
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
    """A temporary name to write a file under, which takes the name `path` only when the block ends well."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        sync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write a text, whole or not at all."""
    write_bytes(path, text.encode())


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
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def publish(source: Path, target: Path) -> None:
    """Move a finished folder to its final name, everything in it flushed first."""
    for file in source.rglob("*"):
        if file.is_file():
            sync(file)
    sync(source)
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)
    sync(target.parent)


def check_free(target: Path, marker: str) -> None:
    """Raise a sentence if a folder cannot be written as `target`: in the way, or not allowed."""
    if target.exists() and not (target / marker).is_file() and (target.is_file() or any(target.iterdir())):
        raise InputError(
            f"{target} exists and does not hold a {marker}, so it is not overwritten; "
            "give another path or remove it first."
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent):
            pass
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror}; give another path.") from error


@contextmanager
def atomic_folder(target: Path, marker: str) -> Iterator[Path]:
    """A folder to write into, which takes the name `target` only when the block ends well.

    An earlier folder of that name is replaced only if it holds `marker`, so that no folder of another
    kind is ever overwritten.
    """
    target = Path(target)
    check_free(target, marker)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    staging.chmod(0o755)
    try:
        yield staging
        _replace(staging, target)
    except FileNotFoundError as error:
        if staging.exists():
            raise
        raise InputError(
            f"{target.parent} was moved away while {target.name} was written into it: does another command write to "
            "the same folder? Give each its own."
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _replace(staging: Path, target: Path) -> None:
    """Give a finished folder the name of another, which is gone only when that has worked."""
    old = target.with_name(f"{staging.name}.old")
    for tries_left in reversed(range(_TRIES)):
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
            target.rename(old)
        try:
            publish(staging, target)
            break
        except OSError as error:  # another process may have put its own folder there just now
            if error.errno == errno.ENOTEMPTY and tries_left:
                continue
            if old.exists() and not target.exists():
                old.rename(target)
            raise
    shutil.rmtree(old, ignore_errors=True)
