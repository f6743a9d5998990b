"""Artifacts: everything expensive, each under a key that is made of the specs of what determines it."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ClassVar

from layerscope.errors import log
from layerscope.store.artifacts import Store, sentences
from layerscope.store.keys import key_of
from layerscope.store.staging import clear, lasting_folder
from layerscope.team import Team

_PLANNED: ContextVar[list[str] | None] = ContextVar("planned", default=None)


class NoKey(Exception):  # noqa: N818  (not an error: the result is computed and not kept)
    """Something decides the result that cannot be fingerprinted; the message says what."""


class _Planned(Exception):  # noqa: N818
    """The keys are known, and nothing is to be computed."""


class Artifact(ABC):
    """One result that is worth keeping: `spec()` is everything that determines it, `build(folder)` makes it.

    The key is the kind, the version of the code that builds, and the spec; a spec is made of the `spec()` of nouns
    (models, examples, tasks, plans, strategies, readings) and plain settings.
    """

    kind: ClassVar[str]
    planned: ClassVar[bool] = True  # False for what is read even where only keys are asked for: data
    version: ClassVar[int] = 1  # raise it when the same spec comes to mean another result

    @abstractmethod
    def spec(self) -> dict[str, Any]:
        """What determines the result, as JSON has it; raises NoKey where something cannot be fingerprinted."""

    @abstractmethod
    def build(self, folder: Path) -> None:
        """Make the result's files; what an earlier try left in the folder is used."""

    @property
    def key(self) -> str:
        """The artifact's key, without computing anything."""
        return key_of(self.kind, self._whole())

    def kept(self) -> Path | None:
        """The folder with the result's files if the store has them; nothing is computed."""
        return Store().kept(self.kind, self._whole())

    def produce(self, team: Team | None = None) -> Path:
        """The folder with the result's files, from the store if it is there."""
        return produce_all([self], team)[0]

    def _whole(self) -> dict[str, Any]:
        return {"version": self.version, **self.spec()}

    def _made(self, team: Team | None) -> Path:
        try:
            spec = self._whole()
        except NoKey as reason:
            log.info("The %s is computed without the store: %s.", self.kind, reason)
            return self._aside(team or Team())
        return Store().produce(self.kind, spec, self.build, team)

    def _aside(self, team: Team) -> Path:
        """A folder that goes with this process."""
        with sentences(Path(tempfile.gettempdir())):
            folder = Path(team.tell(str(_lasting()) if team.is_main else ""))
            self.build(folder)
            team.wait()
        return folder


def _lasting() -> Path:
    """A folder for what cannot be kept; it goes with this process, or with the next one if this is killed."""
    parent = Path(tempfile.gettempdir())
    clear(parent)
    folder = lasting_folder(parent)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def produce_all(artifacts: Sequence[Artifact], team: Team | None = None) -> list[Path]:
    """The folders of several artifacts, in their order."""
    announce(artifacts)
    return [artifact._made(team) for artifact in artifacts]


def announce(artifacts: Sequence[Artifact]) -> None:
    """Where only keys are asked for (`keys_of`), note those of some artifacts and go no further."""
    planned = _PLANNED.get()
    if planned is not None and all(artifact.planned for artifact in artifacts):
        planned += [artifact.key for artifact in artifacts]
        raise _Planned


def keys_of(call: Callable[[], Any]) -> list[str]:
    """The keys of what a call would ask the store for first, with nothing computed; empty if it asks for nothing.

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
