"""Unfinished work on the disk: named in one way, locked by the process that does it, cleared when that is gone.

A kill can come at any moment, so nobody can promise to tidy up. What is unfinished is therefore called
`.layerscope-<random>` and locked as long as its process lives; readers ignore such names, and the next command,
wherever it writes, removes those that nobody holds, and puts back what a killed replacement had moved away.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from layerscope.store.places import forget, remember, remembered

STAGING = ".layerscope-"  # how names of unfinished work begin, and no others
OLD = "old"  # in a staging folder: the earlier folder, under its own name, while another takes its place
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def is_staging(path: Path) -> bool:
    """Whether a path is, or lies in, unfinished work."""
    return any(part.startswith(STAGING) for part in path.parts)


@contextmanager
def staging_folder(parent: Path) -> Iterator[Path]:
    """A folder of this process alone, for work that is not finished; it goes when the block ends."""
    path, descriptor = _owned(parent)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)
        _forget_if_empty(parent)


@contextmanager
def staging_file(parent: Path) -> Iterator[Path]:
    """An empty file of this process alone; it goes when the block ends, unless it was given another name.

    It lies in a folder of its own, which is what is locked: some writers, such as that of safetensors, put another file
    in its place, and a lock would go with the first.
    """
    with staging_folder(parent) as folder:
        path = folder / "file"
        path.touch()
        yield path


def lasting_folder(parent: Path) -> Path:
    """A staging folder that is this process's for as long as it runs; the caller sees to its removal at the end."""
    return _owned(parent)[0]  # the lock is held until the process ends


def discard(path: Path, parent: Path | None = None) -> None:
    """Remove a folder so that a kill never leaves half of it under its name. `parent` is where it waits meanwhile."""
    with staging_folder(path.parent if parent is None else parent) as staging, suppress(FileNotFoundError):
        path.rename(staging / "gone")


def clear(folder: Path) -> None:
    """Remove the unfinished work in a folder whose process is gone; first put back what it had moved away."""
    for path in _unfinished(folder):
        _clear(path)


def clear_everywhere() -> None:
    """Clear every folder in which a process was writing that has not come to its end."""
    for folder in remembered():
        clear(folder)
        _forget_if_empty(folder)


def settled(path: Path) -> Path:
    """The same path; where there is nothing, a folder of that name that a killed replacement moved away is put back."""
    with suppress(OSError):
        if not os.path.lexists(path) and path.parent.is_dir():
            clear(path.parent)
    return path


def _unfinished(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.name.startswith(STAGING)]
    except OSError:
        return []


def _forget_if_empty(folder: Path) -> None:
    """Forget first, look second: what another process begins meanwhile is then seen here, or noted by itself."""
    forget(folder)
    if _unfinished(folder):
        remember(folder)


def _owned(parent: Path) -> tuple[Path, int]:
    """A new folder in another that no other process knows or takes away, and what holds its lock."""
    remember(parent)  # before there is anything, as a kill may come at once
    while True:
        path = parent / f"{STAGING}{secrets.token_hex(8)}"
        path.mkdir(mode=0o700)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)
        except FileNotFoundError:  # another process took it for abandoned
            continue
        if _lock(descriptor) is not False and _is_same(path, descriptor):
            remember(parent)  # and again, as another process may have looked in between and seen nothing
            return path, descriptor
        os.close(descriptor)


def _lock(descriptor: int) -> bool | None:
    """Whether the lock is ours now; None where the file system has no locks, so that nobody can tell."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_same(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except OSError:
        return False


def _clear(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | _FLAGS)
    except OSError:  # gone by now, a link, or another user's
        return
    try:
        if _lock(descriptor) and _is_same(path, descriptor):
            _put_back(path)
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
    except OSError:  # what may not be removed stays
        return
    finally:
        os.close(descriptor)


def _put_back(staging: Path) -> None:
    """The folder that a replacement had moved away, unless there is one of its name again."""
    for old in (staging / OLD).glob("*"):
        target = staging.parent / old.name
        if not os.path.lexists(target):
            old.rename(target)
