"""The store: every expensive result under a key of everything that determines it. Present means done."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from layerscope.errors import LayerscopeError, StoreError, log
from layerscope.store.files import publish, remove_seals, write_json
from layerscope.store.keys import checksum, key_of
from layerscope.team import Team

CARD = "artifact.json"


def home() -> Path:
    """`LAYERSCOPE_HOME`, or the platform's cache folder."""
    if chosen := os.environ.get("LAYERSCOPE_HOME"):
        return Path(chosen).expanduser()

    from platformdirs import user_cache_path

    return user_cache_path("layerscope", appauthor=False)


@dataclass(frozen=True)
class Entry:
    """One artifact (or the remains of one) as it lies on the disk."""

    kind: str
    key: str
    path: Path
    state: str  # "done", "unfinished" or "damaged"

    @property
    def card(self) -> dict[str, Any]:
        """What the artifact is, when it was made, and its files' sizes and checksums."""
        try:
            card = json.loads((self.path / CARD).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return card if isinstance(card, dict) else {}

    @property
    def size(self) -> int:
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())

    def fault(self) -> str | None:
        """What is wrong with the artifact's files, or None."""
        card = self.card
        if card.get("key") != self.key:
            return f"{CARD} is missing, unreadable or another artifact's"
        files: Any = card.get("files")
        if not _lists_files(files):
            return f"{CARD} does not list its files with size and checksum"
        for name, expected in files.items():
            file = self.path / name
            try:
                if file.stat().st_size != expected["size"]:
                    return f"{name} has {file.stat().st_size} bytes instead of {expected['size']}"
                if checksum(file) != expected["checksum"]:
                    return f"{name} does not match its checksum"
            except FileNotFoundError:
                return f"{name} is missing"
        return None


def _lists_files(files: Any) -> bool:
    """Whether a card's list of files is one, and not something else that JSON can hold."""
    if not isinstance(files, dict) or not files:
        return False
    return all(isinstance(about, dict) and {"size", "checksum"} <= about.keys() for about in files.values())


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
                    shutil.rmtree(staging, ignore_errors=True)
                team.wait()
        return done.path

    def kept(self, kind: str, spec: Mapping[str, Any]) -> Path | None:
        """The folder of an artifact that is there and whole, else None."""
        key = key_of(kind, spec)
        done = Entry(kind, key, self.root / "done" / kind / key, "done")
        return done.path if done.path.is_dir() and done.fault() is None else None

    def entries(self) -> list[Entry]:
        """Everything in the store, by kind and key."""
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
                shutil.rmtree(entry.path)

    def _staging(self, kind: str, key: str) -> Path:
        return self.root / "unfinished" / kind / key

    def _sound(self, entry: Entry) -> bool:
        """Whether the artifact is there and whole; a damaged one is set aside. The lock must be held."""
        if not entry.path.is_dir():
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
        files = {
            str(file.relative_to(staging)): {"size": file.stat().st_size, "checksum": checksum(file)}
            for file in sorted(staging.rglob("*"))
            if file.is_file() and not file.name.startswith(".") and file.name != CARD
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


_WAYS_OUT = {
    errno.ENOSPC: "the disk is full; free some space (layerscope cache rm) or set LAYERSCOPE_HOME",
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
        if os.strerror(errno.ENOSPC) not in str(error):  # some writers wrap the disk's errors in their own
            raise
        raise StoreError(f"The store {root} cannot be used: {_WAYS_OUT[errno.ENOSPC]}.") from error
