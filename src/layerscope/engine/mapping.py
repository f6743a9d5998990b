"""`map_jobs`: every job's outcome, whichever engine runs them; what the store has is not run again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from layerscope.engine.job import Engine, Job, Outcome
from layerscope.errors import InputError, LayerscopeError, log
from layerscope.progress import progress
from layerscope.registry import Registry
from layerscope.store.producers import NoKey, announce

if TYPE_CHECKING:
    from pathlib import Path

ENGINES: Registry[Engine] = Registry("layerscope.engine.engines", "engine")


class NoWay(Exception):  # noqa: N818  (an outcome of one job)
    """What a job is made of cannot be opened."""


def check_engine(engine: str) -> Engine:
    """The engine that `local`, `processes:4`, `ray` or `ray:ADDRESS` names, or a sentence that says what is wrong."""
    name, _, where = engine.partition(":")
    return ENGINES[name](where)


def map_jobs(jobs: Sequence[Job], engine: str = "local", *, title: str = "jobs") -> list[Outcome]:
    """What became of every job, in their order.

    Jobs of one key are done once, and those whose result the store has are not done again; so a sweep that was killed
    goes on where it stopped. A job that fails is an outcome with its reason, and the others go on.

    Args:
        jobs: What is to be done.
        engine: `local`, `processes:N`, `ray` (a Ray of its own on this machine) or `ray:ADDRESS` (`ray:auto` joins the
            running cluster).
        title: What the progress bar is called.
    """
    chosen = check_engine(engine)
    announce([job.artifact for job in jobs])
    keys: list[str] = []
    outcomes: dict[str, Outcome] = {}
    waiting: dict[str, Job] = {}
    for job in jobs:
        try:
            key = _key(job, engine)
            folder = _kept(job) if key not in waiting else None
        except NoWay as reason:  # what a job needs is missing; the others go on
            key, folder = f"failed {id(job)}", None
            outcomes[key] = Outcome(None, str(reason), 0.0)
            log.warning("%s failed: %s", job.name, reason)
        keys.append(key)
        if folder is not None:
            outcomes[key] = Outcome(folder, "", 0.0)
        elif key not in outcomes:
            waiting.setdefault(key, job)
    kept = sum(outcome.folder is not None for outcome in outcomes.values())
    if kept and waiting:
        log.info("%d of %d results are in the store already.", kept, len(set(keys)))
    names, todo = list(waiting), list(waiting.values())
    with progress(title, len(todo), "jobs") as advance:
        for place, outcome in chosen.run(todo):
            outcomes[names[place]] = outcome
            if outcome.reason:
                log.warning("%s failed: %s", todo[place].name, outcome.reason)
            advance(1)
    return [outcomes[key] for key in keys]


def folders_of(jobs: Sequence[Job], engine: str, what: str) -> list[Path]:
    """Where the results of all jobs are, in their order; an error that names every one that failed.

    Args:
        jobs: What is to be done.
        engine: Where.
        what: What the jobs are called in messages: `trainings`.
    """
    outcomes = map_jobs(jobs, engine, title=what)
    failed = [f"{job.name}: {o.reason}" for job, o in zip(jobs, outcomes, strict=True) if o.folder is None]
    if failed:
        raise LayerscopeError(f"{len(failed)} of {len(jobs)} {what} failed; the others are kept. {'; '.join(failed)}")
    return [outcome.folder for outcome in outcomes if outcome.folder is not None]


def _key(job: Job, engine: str) -> str:
    """The job's key; one that cannot be kept can only be done here."""
    try:
        return job.artifact.key
    except LayerscopeError as error:
        raise NoWay(str(error)) from error
    except NoKey as reason:
        if engine != "local":
            raise InputError(
                f"{job.name} cannot be done with --engine {engine}, since other processes hand over their results "
                f"through the store and this one cannot be kept there: {reason}. Use --engine local."
            ) from reason
        return f"unkept {id(job)}"


def _kept(job: Job) -> Path | None:
    try:
        return job.artifact.kept()
    except NoKey:
        return None
