"""Jobs: units of work whose results are kept under a key, so that whoever finishes one finishes it for all."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from layerscope.errors import LayerscopeError, log
from layerscope.store import home
from layerscope.store.producers import Artifact

_PASSED_ON = ("LAYERSCOPE_", "HF_", "TOKENIZERS_PARALLELISM")


@dataclass(frozen=True)
class Job:
    """An artifact to be made, what it is called in messages, and the share of a machine that it takes."""

    artifact: Artifact
    name: str
    cpus: float = 1
    gpus: float = 0


@dataclass(frozen=True)
class Outcome:
    """What became of a job: its folder in the store, or the reason why there is none."""

    folder: Path | None
    reason: str
    seconds: float


class Engine(ABC):
    """Where jobs run. A new engine is a class in `engine/engines/`, in a file of its name."""

    name: ClassVar[str]

    def __init__(self, where: str) -> None:
        self.where = where  # what follows the colon: a number of processes, an address
        self.check()

    @abstractmethod
    def check(self) -> None:
        """Raise a sentence where this engine cannot run, before anything does."""

    @abstractmethod
    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Outcome]]:
        """The place of each job among `jobs` and its outcome, in the order in which they end."""


def work(job: Job) -> Outcome:
    """Do a job where it has arrived. A failure is an outcome too: the other jobs go on."""
    started = time.monotonic()
    folder, reason = None, ""
    try:
        folder = job.artifact.produce()
    except LayerscopeError as error:
        reason = str(error)
    except Exception as error:  # whatever one job does, the others go on
        log.debug("%s failed.", job.name, exc_info=True)
        reason = f"{type(error).__name__}: {str(error) or 'no message'}"
    return Outcome(folder, reason, time.monotonic() - started)


def surroundings(cpus: float) -> dict[str, str]:
    """The environment of a worker: the same store and data, and as many threads as the job has cores."""
    passed = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
    threads = str(max(1, int(cpus)))
    return {**passed, "LAYERSCOPE_HOME": str(home()), "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
