"""Jobs and engines: a job makes one artifact, and an engine runs jobs somewhere.

A job's result is kept in the store under its key, so `map_jobs` does not run what the store already has, and a result
that one process has made is there for every other.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from layerscope.errors import InputError, LayerscopeError, log
from layerscope.progress import progress
from layerscope.registry import ENGINES
from layerscope.store import home
from layerscope.store.artifacts import Artifact, NoKey, announce

_PASSED_ON = ("LAYERSCOPE_", "HF_", "TOKENIZERS_PARALLELISM")  # beginnings of variables that workers need
_UNKEPT = "unkept "  # the beginning of what stands for the key of a job that has none


@dataclass(frozen=True)
class Job:
    """An artifact to be made, what it is called in messages, and the share of a machine that it takes."""

    artifact: Artifact
    name: str
    cpus: float = 1
    gpus: float = 0


@dataclass(frozen=True)
class Outcome:
    """The end of a job: its folder in the store, or the reason why there is none."""

    folder: Path | None
    reason: str
    seconds: float


class Engine(ABC):
    """A place where jobs run. A new engine is a class in `engine/engines/`, in a file of its name."""

    name: ClassVar[str]

    def __init__(self, where: str) -> None:
        self.where = where  # what follows the colon: a number of processes, an address
        self.check()

    @abstractmethod
    def check(self) -> None:
        """Raise InputError where this engine cannot run, before any job does."""

    @abstractmethod
    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Outcome]]:
        """Yield the index of each job among `jobs` and its outcome, in the order in which they end."""


def work(job: Job) -> Outcome:
    """Run a job in this process and return its outcome."""
    started = time.monotonic()
    folder, reason = None, ""
    try:
        folder = job.artifact.produce()
    except LayerscopeError as error:
        reason = str(error)
    # A job that fails, in whatever way, must not end the sweep: its failure is an outcome, and the others go on.
    except Exception as error:
        log.debug("%s failed.", job.name, exc_info=True)
        reason = f"{type(error).__name__}: {str(error) or 'no message'}"
    return Outcome(folder, reason, time.monotonic() - started)


def worker_environment(cpus: float) -> dict[str, str]:
    """Return the environment variables of a worker: the same store and data, and one thread for each of its cores."""
    passed = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
    threads = str(max(1, int(cpus)))
    return {**passed, "LAYERSCOPE_HOME": str(home()), "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}


class MissingInput(Exception):  # noqa: N818  (an outcome of one job)
    """Raised where something that a job is made of cannot be opened."""


def check_engine(engine: str) -> Engine:
    """Return the engine that `local`, `processes:4`, `ray` or `ray:ADDRESS` names, or raise InputError."""
    name, _, where = engine.partition(":")
    return ENGINES[name](where)


def map_jobs(jobs: Sequence[Job], engine: str = "local", *, title: str = "jobs") -> list[Outcome]:
    """Run jobs and return their outcomes, in the jobs' order.

    Jobs of one key are run once, and those whose result the store has are not run again; so a sweep that was killed
    goes on where it stopped. A job that fails is an outcome with its reason, and the others go on.

    Args:
        jobs: The jobs to run.
        engine: `local`, `processes:N`, `ray` (a Ray of its own on this machine) or `ray:ADDRESS` (`ray:auto` joins the
            running cluster).
        title: The title of the progress bar.
    """
    chosen = check_engine(engine)
    announce([job.artifact for job in jobs])
    keys: list[str] = []
    outcomes: dict[str, Outcome] = {}
    waiting: dict[str, Job] = {}
    for job in jobs:
        try:
            key = _key(job, engine)
            folder = None if key in waiting or key.startswith(_UNKEPT) else job.artifact.find()
        except MissingInput as reason:  # this job cannot run; the others go on
            key, folder = f"failed {id(job)}", None
            outcomes[key] = Outcome(None, str(reason), 0.0)
            log.warning("%s failed: %s", job.name, reason)
        keys.append(key)
        if folder is not None:
            outcomes[key] = Outcome(folder, "", 0.0)
        elif key not in outcomes:
            waiting.setdefault(key, job)
    stored = sum(outcome.folder is not None for outcome in outcomes.values())
    if stored and waiting:
        log.info("%d of %d results are in the store already.", stored, len(set(keys)))
    names, todo = list(waiting), list(waiting.values())
    with progress(title, len(todo), "jobs") as advance:
        for place, outcome in chosen.run(todo):
            outcomes[names[place]] = outcome
            if outcome.reason:
                log.warning("%s failed: %s", todo[place].name, outcome.reason)
            advance(1)
    return [outcomes[key] for key in keys]


def folders_of(jobs: Sequence[Job], engine: str, what: str) -> list[Path]:
    """Run jobs and return the folders of their results in order, or raise an error that names every job that failed.

    Args:
        jobs: The jobs to run.
        engine: The engine's name, as for `map_jobs`.
        what: What the jobs are called in messages, such as `trainings`.
    """
    outcomes = map_jobs(jobs, engine, title=what)
    failed = [f"{job.name}: {o.reason}" for job, o in zip(jobs, outcomes, strict=True) if o.folder is None]
    if failed:
        raise LayerscopeError(f"{len(failed)} of {len(jobs)} {what} failed; the others are kept. {'; '.join(failed)}")
    return [outcome.folder for outcome in outcomes if outcome.folder is not None]


def _key(job: Job, engine: str) -> str:
    """Return a job's key, or a name of its own for one that the store cannot keep, which only `local` can run."""
    try:
        return job.artifact.key
    except LayerscopeError as error:
        raise MissingInput(str(error)) from error
    except NoKey as reason:
        if engine != "local":
            raise InputError(
                f"{job.name} cannot be done with --engine {engine}, since other processes hand over their results "
                f"through the store and this one cannot be kept there: {reason}. Use --engine local."
            ) from reason
        return f"{_UNKEPT}{id(job)}"
