"""Atomic writes: a file or a folder gets its name when it is complete, and one that it replaces is there until then.

A kill can come at any moment, so no process can promise to tidy up after itself. Unfinished work therefore lies in
folders called `.layerscope-<16 random digits>`, each with a marker that repeats the digits, and locked as long as its
process lives. Readers ignore such names; the next command that writes removes those that have their marker and whose
lock is free, and puts back what a killed replacement had moved away. A folder of anyone else, whatever its name, has no
such marker and stays.

A kill can also leave unfinished work in a folder that no later command writes to. So the store keeps a note of every
folder outside it for as long as something is being written there, and each command clears the folders with a note.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from layerscope.errors import InputError, first_line, log
from layerscope.store.keys import checksum, json_text

_NOTES = "places"  # in the store: a file for each folder, which holds its path


def home() -> Path:
    """Return the store's folder: `LAYERSCOPE_HOME`, or one in the platform's cache folder."""
    if chosen := os.environ.get("LAYERSCOPE_HOME"):
        return Path(chosen).expanduser()

    from platformdirs import user_cache_path

    return user_cache_path("layerscope", appauthor=False)


def remember(folder: Path) -> None:
    """Note in the store that work may be unfinished in a folder."""
    folder = folder.absolute()
    if folder.is_relative_to(home().absolute()):  # the store clears itself whenever it is used
        return
    note = _note(folder)
    # A store that cannot be written to must not keep anyone from writing elsewhere.
    with suppress(OSError):
        if not note.exists():
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_bytes(os.fsencode(folder))


def forget(folder: Path) -> None:
    """Remove the note of a folder."""
    with suppress(OSError):
        _note(folder.absolute()).unlink(missing_ok=True)


def remembered() -> Iterator[Path]:
    """Iterate over the folders that have a note; a note that was only half written is removed."""
    with suppress(OSError):
        for note in sorted((home() / _NOTES).iterdir()):
            folder = Path(os.fsdecode(note.read_bytes()))
            if note == _note(folder):
                yield folder
            else:
                note.unlink(missing_ok=True)


def _note(folder: Path) -> Path:
    """Return the path of a folder's note, whether or not there is one."""
    return home() / _NOTES / sha256(os.fsencode(folder)).hexdigest()[:32]


STAGING = ".layerscope-"  # the beginning of names of unfinished work; no output may be called so
OLD = "old"  # in a staging folder: the earlier folder, under its own name, while another takes its place
LINKS = "links"  # in a staging folder: the links beside the folder that is being replaced, as there (store/links.py)
_NAME = re.compile(rf"{re.escape(STAGING)}([0-9a-f]{{16}})")
# Of staging folders. A folder and the marker in it cannot be made in one step; the sticky bit, which a folder of one
# user has no use for, tells one that was killed in between from an empty folder of somebody else's.
_MODE = 0o1700
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def is_staging(path: Path) -> bool:
    """Return whether a path is, or lies in, a folder that is called like unfinished work."""
    return any(_NAME.fullmatch(part) for part in path.parts)


def check_name(path: Path, inside: bool = True) -> None:
    """Raise InputError for an output that is called like unfinished work, or, unless it may be `inside`, lies there."""
    if path.name.startswith(STAGING):
        raise InputError(
            f"{path} cannot be written: names that begin with {STAGING} are those of unfinished work; give another."
        )
    if not inside and is_staging(path):
        raise InputError(f"{path} cannot be written: it lies in a folder of unfinished work; give another path.")


@contextmanager
def staging_folder(parent: Path) -> Iterator[Path]:
    """Give a new folder of this process alone for unfinished work; it is removed when the block ends."""
    path, descriptor = _locked_folder(parent)
    try:
        yield path
    finally:
        remove_staging(path)
        os.close(descriptor)
        _forget_if_empty(parent)


@contextmanager
def staging_file(parent: Path) -> Iterator[Path]:
    """Give an empty file of this process alone; it is removed when the block ends, unless it was renamed.

    It lies in a folder of its own, and the folder is locked: some writers, such as that of safetensors, put another
    file in its place, and a lock on the first file would be lost.
    """
    with staging_folder(parent) as folder:
        path = folder / "file"
        path.touch()
        yield path


def lasting_folder(parent: Path) -> Path:
    """Return a staging folder that is locked until this process ends; `remove_staging` removes it at the end."""
    return _locked_folder(parent)[0]


def discard(path: Path, parent: Path | None = None) -> None:
    """Remove a folder so that a kill never leaves half of it under its name; it is first moved into `parent`."""
    with staging_folder(path.parent if parent is None else parent) as staging, suppress(FileNotFoundError):
        path.rename(staging / "gone")


def clear(folder: Path) -> None:
    """Remove the unfinished work in a folder whose process is gone, after putting back what it had moved away."""
    for path in _unfinished_in(folder):
        _clear_one(path)


def clear_everywhere() -> None:
    """Clear every folder that has a note, because a process was writing there and may have been killed."""
    for folder in remembered():
        clear(folder)
        _forget_if_empty(folder)


def settled(path: Path) -> Path:
    """Return the path given; where nothing is there, put back a folder that a killed replacement had moved away."""
    with suppress(OSError):
        if not os.path.lexists(path) and path.parent.is_dir():
            clear(path.parent)
    return path


def _marker(staging: Path) -> Path:
    """Return the path of the file by which a staging folder is known for one of ours."""
    return staging / f"unfinished-{staging.name.removeprefix(STAGING)}"


def _unfinished_in(folder: Path) -> list[Path]:
    """List the unfinished work that lies directly in a folder."""
    try:
        with os.scandir(folder) as entries:
            return [path for entry in entries if is_unfinished(path := Path(entry.path))]
    except OSError:
        return []


def is_unfinished(path: Path) -> bool:
    """Return whether a path is a staging folder, by its name and marker; an empty one by its name and mode."""
    if not _NAME.fullmatch(path.name) or path.is_symlink() or not path.is_dir():
        return False
    return _marker(path).is_file() or (stat.S_IMODE(path.stat().st_mode) == _MODE and not any(path.iterdir()))


def remove_staging(path: Path) -> None:
    """Put back what a replacement had moved away, and remove a staging folder, its marker last."""
    with suppress(OSError):  # what may not be removed stays
        _put_back(path)
        _remove_dangling(path)
        marker = _marker(path)
        for part in path.iterdir():
            if part == marker:
                continue
            if part.is_dir() and not part.is_symlink():
                shutil.rmtree(part)
            else:
                part.unlink()
        if all(part == marker for part in path.iterdir()):
            marker.unlink(missing_ok=True)
            path.rmdir()


def _forget_if_empty(folder: Path) -> None:
    """Remove a folder's note if there is no unfinished work in it."""
    # The note is removed before looking: what another process begins in between is either seen here or noted by it.
    forget(folder)
    if _unfinished_in(folder):
        remember(folder)


def _locked_folder(parent: Path) -> tuple[Path, int]:
    """Make a staging folder in `parent`; return its path and the descriptor that holds its lock."""
    remember(parent)  # before there is anything, as a kill may come at once
    # A folder cannot be made and locked in one step. A process that clears `parent` in between may take it for
    # abandoned and remove it, in which case another is made.
    while True:
        path = parent / f"{STAGING}{secrets.token_hex(8)}"
        path.mkdir(mode=_MODE)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)
        except FileNotFoundError:
            continue
        if _lock(descriptor) is not False and _is_same(path, descriptor):
            try:
                _marker(path).touch()
            except OSError:  # the disk is full
                path.rmdir()
                os.close(descriptor)
                raise
            remember(parent)  # once more: a process that saw the folder empty may have removed the note
            return path, descriptor
        os.close(descriptor)


def _lock(descriptor: int) -> bool | None:
    """Try to lock a descriptor; return whether it is ours now, or None where the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_same(path: Path, descriptor: int) -> bool:
    """Return whether a path still names what was opened as the descriptor."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except OSError:
        return False


def _clear_one(path: Path) -> None:
    """Remove one piece of unfinished work, unless a living process holds its lock."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _FLAGS)
    except OSError:  # gone by now, a link, or another user's
        return
    try:
        if _lock(descriptor) and _is_same(path, descriptor) and is_unfinished(path):
            remove_staging(path)
    except OSError:  # what may not be looked into stays
        return
    finally:
        os.close(descriptor)


def _put_back(staging: Path) -> None:
    """Move a folder that a killed replacement had moved away back to its name, unless there is one again."""
    for old in (staging / OLD).glob("*"):
        target = staging.parent / old.name
        if not os.path.lexists(target):
            old.rename(target)


def _remove_dangling(staging: Path) -> None:
    """Remove the links, of those that a staging folder lists, that lead nowhere."""
    if not (staging / LINKS).is_dir():
        return
    with alone_in(staging.parent):  # another process may be about to exchange the folder they lead into
        for noted in (staging / LINKS).iterdir():
            link = staging.parent / noted.name
            if link.is_symlink() and os.readlink(link) == os.readlink(noted) and not link.exists():
                link.unlink()


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep other processes out of the same block for a folder, where its file system has locks."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # it may not be listed
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


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
    """Give a temporary path to write a file to, which is renamed to `path` when the block ends without an error.

    Where `path` is a link, the link is replaced, and what it points to is left alone.
    """
    check_name(path)
    clear(path.parent)
    with staging_file(path.parent) as temporary:
        yield temporary
        sync(temporary)
        temporary.replace(path)


@contextmanager
def output_file(path: Path) -> Iterator[Path]:
    """Give a temporary path for a file that somebody asked for, as `whole_file` does; make the folders above it.

    Raises InputError where no file can be written there.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise InputError(f"{path} is a folder; give the name of a file, in it or elsewhere.")
        with whole_file(path) as temporary:
            yield temporary
    except OSError as error:
        why = error.strerror or first_line(error)
        raise InputError(f"{path} cannot be written: {why}; give another path.") from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write a text, whole or not at all; half a character, as in broken file names, becomes a question mark."""
    write_bytes(path, text.encode("utf-8", "replace"))


def seal(path: Path) -> None:
    """Write the checksum of a finished part of an artifact, by which a later try can tell whether it is intact."""
    write_text(_seal_of(path), checksum(path))


def is_sealed(path: Path) -> bool:
    """Return whether a part that an earlier try left is there and as it was written."""
    if not path.is_file():
        return False
    if _seal_of(path).is_file() and _seal_of(path).read_bytes() == checksum(path).encode():
        return True
    log.warning("%s, which an earlier try left, is damaged or was not finished; it is made again.", path.name)
    return False


def remove_seals(folder: Path) -> None:
    """Remove the checksums of an artifact's parts, whose place the artifact's card takes."""
    for file in list(folder.rglob(f".*{_SEAL}")):
        file.unlink()


def _seal_of(path: Path) -> Path:
    return path.with_name(f".{path.name}{_SEAL}")


def write_json(path: Path, value: Any) -> None:
    """Write JSON, whole or not at all."""
    write_text(path, json_text(value, indent=1, ensure_ascii=False) + "\n")


_TRIES = 5  # to replace a folder that another process writes too
_CHANGED = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT)  # another process came between a look and a rename
_EXCHANGE, _HERE = 2, -100  # RENAME_EXCHANGE and AT_FDCWD of Linux
_CANNOT = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)  # the system has no RENAME_EXCHANGE


def check_free(target: Path, marker: str, *sources: Path | None) -> None:
    """Raise InputError if a folder cannot be written as `target`: something is in the way, or it is not allowed.

    `sources` are folders that what is written is made from: they must stay as they are, however they are spelled.
    """
    check_name(target)
    one = Path(os.path.realpath(target))
    for source in filter(None, sources):
        other = Path(os.path.realpath(source))
        if one.is_relative_to(other) or other.is_relative_to(one):
            where = "is" if one == other else "lies in" if one.is_relative_to(other) else "holds"
            raise InputError(
                f"{target} {where} the folder of the model that is read ({source}), which is left as it is; give "
                "another path."
            )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        clear(target.parent)
        _check_marker(target, marker)
        with staging_folder(target.parent):
            pass
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror}; give another path.") from error


@contextmanager
def atomic_folder(target: Path, marker: str, take: Callable[[Path, Path], None] | None = None) -> Iterator[Path]:
    """Give a folder to write into, which is renamed to `target` when the block ends without an error.

    An earlier folder of that name is replaced only if it holds `marker`, so that no folder of another
    kind is ever overwritten. `take(folder, target)` renames, where more is to be done than that.
    """
    target = Path(target)
    check_free(target, marker)
    with staging_folder(target.parent) as staging:
        folder = staging / "new"
        folder.mkdir()
        try:
            yield folder
            sync_all(folder)
            _check_marker(target, marker)
            (take or take_name)(folder, target)
        except FileNotFoundError as error:
            if staging.exists():
                raise
            raise InputError(
                f"{target.parent} was moved away while {target.name} was written into it: does another command write "
                "to the same folder? Give each its own."
            ) from error


def publish(source: Path, target: Path) -> None:
    """Flush a finished folder to the disk and move it to its final name."""
    sync_all(source)
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)
    sync(target.parent)


def exchange(one: Path, other: Path) -> bool:
    """Exchange two names in one step; return False where the system or the file system cannot do that."""
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
    """Return Linux's system call of that name, or None where there is none; Python itself does not offer it."""
    try:
        return ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None


def _check_marker(target: Path, marker: str) -> None:
    """Raise InputError if `target` is something other than a folder that holds `marker` or is empty."""
    if target.exists() and not (target / marker).is_file() and (target.is_file() or any(target.iterdir())):
        raise InputError(
            f"{target} exists and does not hold a {marker}, so it is not overwritten; "
            "give another path or remove it first."
        )


def sync_all(folder: Path) -> None:
    """Flush a folder and everything in it, or a file."""
    for path in (*folder.rglob("*"), folder):
        if not path.is_symlink():
            sync(path)


def take_name(folder: Path, target: Path) -> None:
    """Rename a finished folder, or a file, to `target`; what had that name before lies in the staging folder then."""
    # Another process may write the same target: between the look and the rename the name may come or go.
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
    """Exchange two folders in two steps; `clear` puts the earlier one back if a kill comes between them."""
    old = folder.parent / OLD / target.name
    old.parent.mkdir(exist_ok=True)
    target.rename(old)
    try:
        folder.rename(target)
    except OSError:
        if not os.path.lexists(target):
            old.rename(target)
        raise
    old.rename(folder)
