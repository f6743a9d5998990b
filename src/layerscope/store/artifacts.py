"""Artifacts are expensive results, and the store keeps each of them in a folder of its own.

An artifact's key is made of the specs of everything that determines it. A folder under `done` is a finished result: it
got its name in one step, after all of its files were written, so whoever finds it need not ask whether it is complete.
"""

from __future__ import annotations

import atexit
import errno
import os
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from layerscope.distributed import Team
from layerscope.errors import DataError, LayerscopeError, StoreError, log
from layerscope.store.atomic import (
    clear,
    clear_everywhere,
    discard,
    home,
    is_unfinished,
    lasting_folder,
    publish,
    remove_seals,
    remove_staging,
    write_json,
)
from layerscope.store.keys import checksum, key_of
from layerscope.store.validated import Saved, read_json

CARD = "artifact.json"


def _check_below(name: str) -> str:
    """Return the relative name of a file, or raise ValueError where it leads out of its folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name or not path.parts:
        raise ValueError("the name of a file leads out of the folder")
    return name


class Part(Saved):
    """The size and checksum that one file of an artifact must have."""

    size: int
    checksum: str

    def fault(self, file: Path) -> str | None:
        """Say what is wrong with the file, or return None where it is as it was written."""
        try:
            if not file.is_file() or file.is_symlink():
                return f"{file.name} is missing"
            if (size := file.stat().st_size) != self.size:
                return f"{file.name} has {size} bytes instead of {self.size}"
            return None if checksum(file) == self.checksum else f"{file.name} does not match its checksum"
        except OSError as error:
            return f"{file.name} cannot be read ({error.strerror})"


class Card(Saved):
    """The description that lies in an artifact's folder: what it is, what determined it, and its files."""

    kind: str
    key: str
    spec: dict[str, Any] = Field(default_factory=dict)
    created: str = ""
    files: dict[Annotated[str, AfterValidator(_check_below)], Part] = Field(min_length=1)


@dataclass(frozen=True)
class Entry:
    """An artifact's folder on the disk, which may be finished, unfinished or damaged."""

    kind: str
    key: str
    path: Path
    state: str  # "done", "unfinished" or "damaged"

    @property
    def card(self) -> Card | None:
        """The artifact's card, or None where it is missing or unreadable."""
        try:
            return read_json(self.path / CARD, Card)
        except DataError:
            return None

    @property
    def size(self) -> int:
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())

    def fault(self) -> str | None:
        """Say what is wrong with the artifact's files, or return None where all of them are intact."""
        card = self.card
        if card is None:
            return f"{CARD} is missing or unreadable, or does not list its files with size and checksum"
        if card.key != self.key:
            return f"{CARD} is another artifact's"
        faults = (part.fault(self.path / name) for name, part in card.files.items())
        return next((fault for fault in faults if fault is not None), None)


class Store:
    """A folder that keeps artifacts as `done/KIND/KEY`, `unfinished/KIND/KEY` and `damaged/KIND/KEY.TIME`."""

    def __init__(self, root: Path | str | None = None) -> None:
        self.root = Path(root) if root is not None else home()

    def produce(
        self, kind: str, spec: Mapping[str, Any], build: Callable[[Path], None], team: Team | None = None
    ) -> Path:
        """Return the folder of the artifact `kind` with this spec, built by `build(folder)` if it is not there.

        A build that was interrupted finds what it left in the folder and goes on. Two processes that ask
        for the same artifact do the work once; the processes of one team build it together.
        """
        team = team or Team()
        key = key_of(kind, spec)
        done = Entry(kind, key, self.root / "done" / kind / key, "done")
        with disk_errors(self.root):
            clear(self.root)
            clear_everywhere()
            if team.broadcast(team.is_main and done.path.is_dir() and done.fault() is None):
                return done.path
            # Only the main process takes the lock. The others make the same barriers and broadcasts in the same order,
            # or the processes would wait for one another for ever.
            if not team.is_main:
                team.barrier()  # until the main process holds the lock and has made the folder
                if not team.broadcast(False):
                    build(self._staging(kind, key))
                    team.barrier()
                team.barrier()
                return done.path
            with self._lock(kind, key):
                staging = self._staging(kind, key)
                staging.mkdir(parents=True, exist_ok=True)
                team.barrier()
                if not team.broadcast(self._is_intact(done)):  # another process may have built it meanwhile
                    started = time.monotonic()
                    build(staging)
                    team.barrier()
                    self._finish(staging, done, spec, time.monotonic() - started)
                else:
                    discard(staging, self.root)
                team.barrier()
        return done.path

    def find(self, kind: str, spec: Mapping[str, Any]) -> Path | None:
        """Return the folder of a finished and intact artifact, or None where there is no such artifact."""
        key = key_of(kind, spec)
        done = Entry(kind, key, self.root / "done" / kind / key, "done")
        return done.path if done.path.is_dir() and done.fault() is None else None

    def entries(self) -> list[Entry]:
        """List everything in the store by state, kind and key."""
        clear(self.root)  # a removal that was killed has left its folder here, which is not an entry
        entries = []
        for state in ("done", "unfinished", "damaged"):
            for path in sorted((self.root / state).glob("*/*")):
                entries.append(Entry(path.parent.name, path.name.split(".")[0], path, state))
        return entries

    def set_aside(self, entry: Entry) -> Path:
        """Move a damaged artifact to `damaged`, for the user to look at or remove, and return its new path."""
        target = self.root / "damaged" / entry.kind / f"{entry.key}.{time.time_ns()}"
        target.parent.mkdir(parents=True, exist_ok=True)
        entry.path.rename(target)
        return target

    def remove(self, entry: Entry) -> None:
        """Delete an artifact; its lock is taken first, so that none is removed while it is being built."""
        with disk_errors(self.root), self._lock(entry.kind, entry.key):
            if entry.path.exists():  # an unfinished one may have been finished, and so renamed, meanwhile
                discard(entry.path, self.root)

    def _staging(self, kind: str, key: str) -> Path:
        return self.root / "unfinished" / kind / key

    def _is_intact(self, entry: Entry) -> bool:
        """Return whether the artifact is there and intact, and set a damaged one aside. The lock must be held."""
        if not os.path.lexists(entry.path):
            return False
        fault = entry.fault()
        if fault is None:
            return True
        aside = self.set_aside(entry)
        log.warning("A stored %s is damaged (%s); set aside as %s and made again.", entry.kind, fault, aside)
        return False

    @staticmethod
    def _finish(staging: Path, done: Entry, spec: Mapping[str, Any], seconds: float) -> None:
        """Write the card of the artifact built in `staging`, then move its folder to its final name."""
        remove_seals(staging)
        # An earlier try that was killed while it wrote a file has left that file in a staging folder.
        for left in list(staging.rglob("*")):
            if is_unfinished(left):
                remove_staging(left)
        found = [file for file in sorted(staging.rglob("*")) if file.is_file() and file != staging / CARD]
        with ThreadPoolExecutor(
            min(8, os.cpu_count() or 1)
        ) as threads:  # a large checkpoint's files are read side by side
            files = {
                str(file.relative_to(staging)): {"size": file.stat().st_size, "checksum": digest}
                for file, digest in zip(found, threads.map(checksum, found), strict=True)
            }
        if not files:
            raise StoreError(f"Building a {done.kind} left no file in {staging}; nothing was stored.")
        card = {
            "kind": done.kind,
            "key": done.key,
            "spec": dict(spec),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(seconds, 3),
            "files": files,
        }
        write_json(staging / CARD, card)
        publish(staging, done.path)

    @contextmanager
    def _lock(self, kind: str, key: str) -> Iterator[None]:
        """Hold the lock of one artifact, waiting for the process that has it."""
        from filelock import FileLock, Timeout

        folder = self.root / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f"{kind}-{key}.lock")
        try:
            lock.acquire(timeout=1)
        except Timeout:
            log.warning("Another process is making the same %s; waiting for it.", kind)
            lock.acquire()
        try:
            yield
        finally:
            lock.release()


_NO_MORE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FULL = "the disk is full; free some space (layerscope cache rm) or set LAYERSCOPE_HOME"
# What torch says of an archive that it could not write to its end.
_HALF_WRITTEN = ("PytorchStreamWriter failed writing", "unexpected pos ", "basic_ios::clear: iostream error")
_WAYS_OUT = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: "a file would be larger than the disk or a limit (ulimit -f) allows; raise it or set LAYERSCOPE_HOME",
    errno.EACCES: "it may not be written to; set LAYERSCOPE_HOME to a folder of yours",
    errno.EPERM: "it may not be written to; set LAYERSCOPE_HOME to a folder of yours",
    errno.EROFS: "it is on a read-only disk; set LAYERSCOPE_HOME to another folder",
}


@contextmanager
def disk_errors(root: Path) -> Iterator[None]:
    """Turn errors of the disk under `root`, within the block, into StoreErrors that tell the way out."""
    try:
        yield
    except LayerscopeError:
        raise
    except OSError as error:
        inside = str(error.filename or "").startswith(str(root))
        if error.errno not in _WAYS_OUT and not inside:
            raise
        way_out = _WAYS_OUT.get(error.errno or 0, f"{error.strerror}; set LAYERSCOPE_HOME to a folder of yours")
        raise StoreError(f"The store {root} cannot be used: {way_out}.") from error
    # Some writers, such as torch's, wrap a disk's error in one of their own.
    except Exception as error:
        code = full_disk(error)
        if code is None:
            raise
        raise StoreError(f"The store {root} cannot be used: {_WAYS_OUT[code]}.") from error


def full_disk(error: BaseException) -> int | None:
    """Return the error code where an error, of whatever library, says that a disk takes no more; else None."""
    if isinstance(error, OSError) and error.errno in _NO_MORE:
        return error.errno
    if any(words in str(error) for words in _HALF_WRITTEN):
        return errno.ENOSPC
    return next((code for code in _NO_MORE if os.strerror(code) in str(error)), None)


_PLANNED: ContextVar[list[str] | None] = ContextVar("planned", default=None)


class NoKey(Exception):  # noqa: N818  (not an error: the result is computed and not kept)
    """Raised where something that determines a result cannot be fingerprinted; the message says what."""


class _Planned(Exception):  # noqa: N818
    """Raised within `keys_of` when the keys have been noted, so that nothing is computed."""


class Artifact(ABC):
    """A result that the store keeps: `spec()` is everything that determines it, `build(folder)` makes it.

    The key is the kind, the version of the code that builds, and the spec; a spec is made of the `spec()` of nouns
    (models, examples, tasks, plans, strategies, readings) and plain settings.
    """

    kind: ClassVar[str]
    planned: ClassVar[bool] = True  # False for what is read even where only keys are asked for: data
    version: ClassVar[int] = 1  # raise it when the same spec comes to mean another result

    @abstractmethod
    def spec(self) -> dict[str, Any]:
        """Return everything that determines the result as JSON data, or raise NoKey if it cannot be fingerprinted."""

    @abstractmethod
    def build(self, folder: Path) -> None:
        """Write the result's files into the folder, using what an interrupted build has left there."""

    @property
    def key(self) -> str:
        """The artifact's key; nothing is computed for it."""
        return key_of(self.kind, self._full_spec())

    def find(self) -> Path | None:
        """Return the folder with the result's files if the store has them, else None; nothing is computed."""
        return Store().find(self.kind, self._full_spec())

    def produce(self, team: Team | None = None) -> Path:
        """Return the folder with the result's files, which are computed if the store does not have them."""
        return produce_all([self], team)[0]

    def _full_spec(self) -> dict[str, Any]:
        return {"version": self.version, **self.spec()}

    def _produce(self, team: Team | None) -> Path:
        try:
            spec = self._full_spec()
        except NoKey as reason:
            log.info("The %s is computed without the store: %s.", self.kind, reason)
            return self._build_unstored(team or Team())
        return Store().produce(self.kind, spec, self.build, team)

    def _build_unstored(self, team: Team) -> Path:
        """Build the result in a temporary folder, which is removed when the main process ends, and return it."""
        parent = Path(tempfile.gettempdir())
        with disk_errors(parent):
            name = ""
            if team.is_main:
                clear(parent)  # a process that was killed could not remove its folder
                staging = lasting_folder(parent)
                atexit.register(remove_staging, staging)
                name = str(staging / "new")
                Path(name).mkdir()
            folder = Path(team.broadcast(name))
            self.build(folder)
            team.barrier()
        return folder


def produce_all(artifacts: Sequence[Artifact], team: Team | None = None) -> list[Path]:
    """Return the folders of several artifacts, in their order."""
    announce(artifacts)
    return [artifact._produce(team) for artifact in artifacts]


def announce(artifacts: Sequence[Artifact]) -> None:
    """Within `keys_of`, note the keys of these artifacts and stop the call; elsewhere, do nothing."""
    planned = _PLANNED.get()
    if planned is not None and all(artifact.planned for artifact in artifacts):
        planned += [artifact.key for artifact in artifacts]
        raise _Planned


def keys_of(call: Callable[[], Any]) -> list[str]:
    """Return the keys that a call would ask the store for first, with nothing computed; empty if it asks for nothing.

    Raises NoKey where what it would compute cannot be kept.
    """
    planned: list[str] = []
    token = _PLANNED.set(planned)
    try:
        call()
    except _Planned:
        pass
    finally:
        _PLANNED.reset(token)
    return planned
