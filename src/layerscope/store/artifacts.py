"""The store: every expensive result under a key of everything that determines it. Present means done."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from layerscope.errors import DataError, LayerscopeError, StoreError, log
from layerscope.store.files import remove_seals, write_json
from layerscope.store.folders import publish
from layerscope.store.keys import checksum, key_of
from layerscope.store.places import home
from layerscope.store.reading import Saved, read_json
from layerscope.store.staging import STAGING, clear, clear_everywhere, discard
from layerscope.team import Team

CARD = "artifact.json"


def _is_below(name: str) -> str:
    """The name of a file in a folder or below it, or the error that it leads elsewhere."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name or not path.parts:
        raise ValueError("the name of a file leads out of the folder")
    return name


class Part(Saved):
    """One file of an artifact."""

    size: int
    checksum: str

    def fault(self, file: Path) -> str | None:
        """What is wrong with the file, or None."""
        try:
            if not file.is_file() or file.is_symlink():
                return f"{file.name} is missing"
            if (size := file.stat().st_size) != self.size:
                return f"{file.name} has {size} bytes instead of {self.size}"
            return None if checksum(file) == self.checksum else f"{file.name} does not match its checksum"
        except OSError as error:
            return f"{file.name} cannot be read ({error.strerror})"


class Card(Saved):
    """What an artifact says of itself."""

    kind: str
    key: str
    spec: dict[str, Any] = Field(default_factory=dict)
    created: str = ""
    files: dict[Annotated[str, AfterValidator(_is_below)], Part] = Field(min_length=1)


@dataclass(frozen=True)
class Entry:
    """One artifact (or the remains of one) as it lies on the disk."""

    kind: str
    key: str
    path: Path
    state: str  # "done", "unfinished" or "damaged"

    @property
    def card(self) -> Card | None:
        """What the artifact is, when it was made, and its files' sizes and checksums; None where it does not say."""
        try:
            return read_json(self.path / CARD, Card)
        except DataError:
            return None

    @property
    def size(self) -> int:
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())

    def fault(self) -> str | None:
        """What is wrong with the artifact's files, or None."""
        card = self.card
        if card is None:
            return f"{CARD} is missing or unreadable, or does not list its files with size and checksum"
        if card.key != self.key:
            return f"{CARD} is another artifact's"
        faults = (part.fault(self.path / name) for name, part in card.files.items())
        return next((fault for fault in faults if fault is not None), None)


class Store:
    """Artifacts in one folder: `done/KIND/KEY`, `unfinished/KIND/KEY`, `damaged/KIND/KEY.TIME`."""

    def __init__(self, root: Path | str | None = None) -> None:
        self.root = Path(root) if root is not None else home()

    def produce(
        self, kind: str, spec: Mapping[str, Any], build: Callable[[Path], None], team: Team | None = None
    ) -> Path:
        """The folder of the artifact `kind` with this spec, built by `build(folder)` if it is not there.

        A build that was interrupted finds what it left in the folder and goes on. Two processes that ask
        for the same artifact do the work once; the processes of one team build it together.
        """
        team = team or Team()
        key = key_of(kind, spec)
        done = Entry(kind, key, self.root / "done" / kind / key, "done")
        with sentences(self.root):
            clear(self.root)
            clear_everywhere()
            if team.tell(team.is_main and done.path.is_dir() and done.fault() is None):
                return done.path
            if not team.is_main:
                team.wait()  # until the main process holds the lock and has made the folder
                if not team.tell(False):
                    build(self._staging(kind, key))
                    team.wait()
                team.wait()
                return done.path
            with self._lock(kind, key):
                staging = self._staging(kind, key)
                staging.mkdir(parents=True, exist_ok=True)
                team.wait()
                if not team.tell(self._sound(done)):  # another process may have built it meanwhile
                    started = time.monotonic()
                    build(staging)
                    team.wait()
                    self._finish(staging, done, spec, time.monotonic() - started)
                else:
                    discard(staging, self.root)
                team.wait()
        return done.path

    def kept(self, kind: str, spec: Mapping[str, Any]) -> Path | None:
        """The folder of an artifact that is there and whole, else None."""
        key = key_of(kind, spec)
        done = Entry(kind, key, self.root / "done" / kind / key, "done")
        return done.path if done.path.is_dir() and done.fault() is None else None

    def entries(self) -> list[Entry]:
        """Everything in the store, by kind and key; what a killed removal left is cleared first."""
        clear(self.root)
        entries = []
        for state in ("done", "unfinished", "damaged"):
            for path in sorted((self.root / state).glob("*/*")):
                entries.append(Entry(path.parent.name, path.name.split(".")[0], path, state))
        return entries

    def set_aside(self, entry: Entry) -> Path:
        """Move a damaged artifact out of the way, to be looked at or removed."""
        target = self.root / "damaged" / entry.kind / f"{entry.key}.{time.time_ns()}"
        target.parent.mkdir(parents=True, exist_ok=True)
        entry.path.rename(target)
        return target

    def remove(self, entry: Entry) -> None:
        """Delete an artifact; never while it is being built."""
        with sentences(self.root), self._lock(entry.kind, entry.key):
            if entry.path.exists():  # what was unfinished may be done by now
                discard(entry.path, self.root)

    def _staging(self, kind: str, key: str) -> Path:
        return self.root / "unfinished" / kind / key

    def _sound(self, entry: Entry) -> bool:
        """Whether the artifact is there and whole; a damaged one is set aside. The lock must be held."""
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
        remove_seals(staging)
        for left in list(staging.rglob(f"{STAGING}*")):  # of an earlier try that was killed while it wrote
            if left.is_dir():
                shutil.rmtree(left)
            else:
                left.unlink(missing_ok=True)
        files = {
            str(file.relative_to(staging)): {"size": file.stat().st_size, "checksum": checksum(file)}
            for file in sorted(staging.rglob("*"))
            if file.is_file() and file != staging / CARD
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
def sentences(root: Path) -> Iterator[None]:
    """Turn the disk's errors into sentences."""
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
    except Exception as error:
        code = full_disk(error)  # some writers wrap the disk's errors in their own
        if code is None:
            raise
        raise StoreError(f"The store {root} cannot be used: {_WAYS_OUT[code]}.") from error


def full_disk(error: BaseException) -> int | None:
    """The error code, where an error says that a disk takes no more, in whatever library's words."""
    if isinstance(error, OSError) and error.errno in _NO_MORE:
        return error.errno
    if any(words in str(error) for words in _HALF_WRITTEN):
        return errno.ENOSPC
    return next((code for code in _NO_MORE if os.strerror(code) in str(error)), None)
