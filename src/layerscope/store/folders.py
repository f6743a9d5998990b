"""Folders that take their name only when they are whole; at no moment is there no folder where one was."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from layerscope.errors import InputError
from layerscope.store.files import sync
from layerscope.store.staging import OLD, clear, staging_folder

_TRIES = 5  # to take the place of a folder that another process writes too
_CHANGED = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT)  # by another process, between a look and a rename
_EXCHANGE, _HERE = 2, -100  # RENAME_EXCHANGE and AT_FDCWD of Linux
_CANNOT = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)


def check_free(target: Path, marker: str) -> None:
    """Raise a sentence if a folder cannot be written as `target`: in the way, or not allowed."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        clear(target.parent)
        _check_marker(target, marker)
        with staging_folder(target.parent):
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
    with staging_folder(target.parent) as staging:
        folder = staging / "new"
        folder.mkdir()
        try:
            yield folder
            _sync_all(folder)
            _check_marker(target, marker)
            _take_name(folder, target)
        except FileNotFoundError as error:
            if staging.exists():
                raise
            raise InputError(
                f"{target.parent} was moved away while {target.name} was written into it: does another command write "
                "to the same folder? Give each its own."
            ) from error


def publish(source: Path, target: Path) -> None:
    """Move a finished folder to its final name, everything in it flushed first."""
    _sync_all(source)
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)
    sync(target.parent)


def exchange(one: Path, other: Path) -> bool:
    """Let two names change places in one step; False where the system or the disk cannot do that."""
    call = _renameat2()
    if call is None:
        return False
    if call(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT:
        return False
    raise OSError(code, os.strerror(code), str(other))


@cache
def _renameat2() -> Any:
    try:
        return ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None


def _check_marker(target: Path, marker: str) -> None:
    if target.exists() and not (target / marker).is_file() and (target.is_file() or any(target.iterdir())):
        raise InputError(
            f"{target} exists and does not hold a {marker}, so it is not overwritten; "
            "give another path or remove it first."
        )


def _sync_all(folder: Path) -> None:
    """Flush a folder and everything in it."""
    for path in (*folder.rglob("*"), folder):
        if not path.is_symlink():
            sync(path)


def _take_name(folder: Path, target: Path) -> None:
    """Give a whole folder its name; what had that name before lies in the staging folder afterwards."""
    for tries_left in reversed(range(_TRIES)):
        try:
            if not os.path.lexists(target):
                folder.rename(target)
            elif not exchange(folder, target):
                _swap(folder, target)
            break
        except OSError as error:
            if error.errno not in _CHANGED or not tries_left or not folder.exists():
                raise
    sync(target.parent)


def _swap(folder: Path, target: Path) -> None:
    """An exchange in two steps; `staging.clear` puts the earlier folder back if a kill comes between them."""
    old = folder.parent / OLD / target.name
    old.parent.mkdir(exist_ok=True)
    target.rename(old)
    try:
        folder.rename(target)
    except OSError:
        if not os.path.lexists(target):
            old.rename(target)
        raise
