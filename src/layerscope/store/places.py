"""Where the store is, and in which folders outside it work may be unfinished.

A kill leaves unfinished work in whatever folder was being written to, which no later command may ever touch again. So
the store keeps a note of each such folder for as long as something is being written there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

_NOTES = "places"  # in the store: a file for each folder, which holds its path


def home() -> Path:
    """`LAYERSCOPE_HOME`, or the platform's cache folder."""
    if chosen := os.environ.get("LAYERSCOPE_HOME"):
        return Path(chosen).expanduser()

    from platformdirs import user_cache_path

    return user_cache_path("layerscope", appauthor=False)


def remember(folder: Path) -> None:
    """Note that work may be unfinished in a folder. A store that cannot be written to is not an obstacle."""
    folder = folder.absolute()
    if folder.is_relative_to(home().absolute()):  # the store looks after itself
        return
    note = _note(folder)
    with suppress(OSError):
        if not note.exists():
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_bytes(os.fsencode(folder))


def forget(folder: Path) -> None:
    """Remove the note of a folder."""
    with suppress(OSError):
        _note(folder.absolute()).unlink(missing_ok=True)


def remembered() -> Iterator[Path]:
    """The folders that have a note; a note that is not whole is removed."""
    with suppress(OSError):
        for note in sorted((home() / _NOTES).iterdir()):
            folder = Path(os.fsdecode(note.read_bytes()))
            if note == _note(folder):
                yield folder
            else:
                note.unlink(missing_ok=True)


def _note(folder: Path) -> Path:
    return home() / _NOTES / sha256(os.fsencode(folder)).hexdigest()[:32]
