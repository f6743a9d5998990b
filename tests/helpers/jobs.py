"""Small jobs that leave a trace, how often they ran and in which process, and what a killed process leaves."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from layerscope.engine import Job
from layerscope.engine.jobs import Engine, Outcome, work
from layerscope.errors import InputError
from layerscope.store import atomic
from layerscope.store.artifacts import Artifact, NoKey
from layerscope.store.atomic import STAGING


@dataclass(frozen=True)
class Squared(Artifact):
    """The square of a number; `fault` says what goes wrong on the way, `log` gets a line per try."""

    kind: ClassVar[str] = "squared"
    number: int
    log: Path
    fault: str = ""

    def spec(self) -> dict[str, Any]:
        if self.fault == "no key":
            raise NoKey("it has a hook")
        if self.fault == "lost":
            raise InputError(f"There is no {self.number}.")
        return {"number": self.number, "fault": self.fault}

    def build(self, folder: Path) -> None:
        with self.log.open("a") as file:
            file.write(f"{self.number} {os.getpid()} {os.environ.get('OMP_NUM_THREADS')}\n")
        if self.fault == "input":
            raise InputError(f"{self.number} cannot be squared.")
        if self.fault == "crash":
            raise RuntimeError("no square")
        if self.fault == "slow":
            time.sleep(1)
        if self.fault == "stuck":
            time.sleep(300)
        if self.fault == "always killed" or (self.fault == "killed" and self.tries == 1):
            os.kill(os.getpid(), signal.SIGKILL)
        (folder / "square.txt").write_text(str(self.number**2))

    @property
    def tries(self) -> int:
        """How often this number was begun."""
        return sum(line.split()[0] == str(self.number) for line in self.log.read_text().splitlines())


def squares(log: Path, *numbers: int, fault: str = "") -> list[Job]:
    return [Job(Squared(number, log, fault), f"the square of {number}") for number in numbers]


def answers(outcomes: list[Any]) -> list[int]:
    return [int((outcome.folder / "square.txt").read_text()) for outcome in outcomes]


def processes(log: Path) -> set[str]:
    """The processes that worked."""
    return {line.split()[1] for line in log.read_text().splitlines()}


class Posted(Engine):
    """An engine that sends every job as another process would get it, and does it here."""

    name = "posted"
    sent: ClassVar[list[str]] = []

    def check(self) -> None:
        pass

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Outcome]]:
        for place, job in enumerate(jobs):
            self.sent.append(job.name)
            yield place, work(pickle.loads(pickle.dumps(job)))


def abandoned_staging(parent: Path, number: int = 0) -> Path:
    """A folder of unfinished work whose process is gone."""
    folder = parent / f"{STAGING}{number:016}"
    folder.mkdir()
    (folder / f"unfinished-{number:016}").touch()
    return folder


def killed_at(step, work):
    """Whether some work in a fork was killed just before or after its `step`-th change of the disk."""
    child = os.fork()
    if child == 0:
        count = iter(range(1, 10_000))

        def lethal(act):
            def acted(*given, **options):
                if next(count) == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                result = act(*given, **options)
                if next(count) == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result

            return acted

        for name in ("fsync", "rename", "replace", "symlink", "mkdir", "unlink", "rmdir"):
            setattr(os, name, lethal(getattr(os, name)))
        atomic.exchange = lethal(atomic.exchange)
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0
