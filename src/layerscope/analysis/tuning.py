"""`ls.tune`: train under a strategy; every run is an artifact, so that a study resumes run by run."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np

from layerscope.analysis.specialty import streamed
from layerscope.data import Examples, Task
from layerscope.data import task as open_task
from layerscope.errors import InputError, check_seed, log
from layerscope.models import Model, load
from layerscope.models.identity import fingerprint, tokenizer_fingerprint
from layerscope.store import Store, atomic_folder, check_free, digest
from layerscope.team import Team
from layerscope.tuning.methods import Method, check
from layerscope.tuning.presets import Training, training
from layerscope.tuning.strategy import Strategy
from layerscope.tuning.training import ADAPTER, CHECKPOINT, RESULT, Job, read_result

VERSION = 1
_HELD_OUT = 0.2  # of a single split


@dataclass
class Run:
    """One finished run. `path` holds the checkpoint (or adapter) and `run.json`."""

    job: Job
    path: Path
    result: dict[str, Any]
    tried: int  # learning rates that were tried, this one being the best on validation

    @property
    def score(self) -> float:
        """The task's metric on validation, of the best epoch."""
        return float(self.result["score"])

    @property
    def trainable(self) -> int:
        """Parameters that were trained."""
        return int(self.result["trainable"])

    @property
    def seconds(self) -> float:
        return float(self.result["seconds"])

    @property
    def model(self) -> Any:
        """The tuned transformers model, opened from what was saved."""
        return self.job.reopened(self.path).network

    def __repr__(self) -> str:
        job = self.job
        return (
            f"Run({job.model.name} on {job.task.name}, {job.strategy}, {job.method.name}, seed {job.seed}: "
            f"{self.result['metric']} {self.score:.4f}, {self.trainable:,} parameters trained in {self.seconds:.0f} s)"
        )


@dataclass
class Runs:
    """The same run with several seeds."""

    runs: list[Run]

    @property
    def scores(self) -> np.ndarray:
        return np.asarray([run.score for run in self.runs])

    @property
    def mean(self) -> float:
        return float(self.scores.mean())

    @property
    def error(self) -> float:
        """The standard error of the mean; NaN for one run."""
        return float(self.scores.std(ddof=1) / len(self.runs) ** 0.5) if len(self.runs) > 1 else float("nan")

    def __repr__(self) -> str:
        spread = f" +- {self.error:.4f}" if len(self.runs) > 1 else ""
        return f"Runs({self.mean:.4f}{spread} over {len(self.runs)} {'seeds' if len(self.runs) > 1 else 'seed'})"


@overload
def tune(model: Any, task: Any, *, seeds: Sequence[int], **options: Any) -> Runs: ...
@overload
def tune(model: Any, task: Any, *, seeds: None = None, **options: Any) -> Run: ...
def tune(
    model: Any,
    task: Any,
    *,
    strategy: str | Strategy = "full",
    method: str = "finetune",
    preset: str | None = None,
    seed: int = 0,
    seeds: Sequence[int] | None = None,
    best: int | None = None,
    size: int | None = None,
    out: str | Path | None = None,
    **options: Any,
) -> Run | Runs:
    """Train a model on a task's train split under a strategy, scored on validation after every epoch; the best is kept.

    `method` is finetune, adapter, lora or prefix, `size` the adapter width, LoRA rank or number of virtual tokens.
    `preset` is phang2021, wu2020 or xie2022; further options change it (`learning_rate`, `epochs`, `batch`, ..).
    Several learning rates are all tried. `best` is l* where the strategy needs it; not given, it is the layer of the
    least nu (`ls.specialty`). `seeds=[0, 1, 2]` gives several
    runs. Every run is kept in the store, and `out` gets a copy.
    """
    job = plan(model, task, strategy, method, preset, best, size, options)
    chosen = [check_seed(each) for each in ([seed] if seeds is None else seeds)]
    if not chosen:
        raise InputError("seeds is empty; at least one is needed.")
    if out is not None:
        check_free(Path(out), RESULT)
    found = run(job, chosen)
    if out is not None and Team.current().is_main:
        for one in found.runs:
            copy_run(one, Path(out) if seeds is None else Path(out) / f"seed-{one.job.seed}")
    return found.runs[0] if seeds is None else found


def run(job: Job, seeds: Sequence[int]) -> Runs:
    """A planned job with every seed."""
    return Runs([_swept(job, seed) for seed in seeds])


def plan(
    model: Any,
    task: Any,
    strategy: str | Strategy,
    method: str,
    preset: str | None,
    best: int | None,
    size: int | None,
    options: dict[str, Any],
) -> Job:
    """The job that the arguments of `tune` name, everything checked before anything runs."""
    opened, data = load(model), open_task(task)
    parsed = Strategy.parse(strategy)
    chosen = training(preset, parsed, method, **options)
    train, validation = parts(data, chosen.train_limit, chosen.validation_limit)
    if parsed.needs_best and best is None:
        best = best_layer(opened, train, chosen.max_length)
    resolved = parsed.resolve(opened.depth, best)
    job = Job(opened, data, train, validation, resolved, Method.of(method, size), chosen, 0)
    check(opened, resolved, job.method)
    return job


def parts(task: Task, train_limit: int | None = None, validation_limit: int | None = None) -> tuple[Examples, Examples]:
    """The rows to learn from and the rows to score; of a single split a fifth is held out, the same for every seed."""
    train, validation = task.parted(_HELD_OUT, limits=(train_limit, validation_limit))
    if train.labels is None or validation.labels is None:
        raise InputError(
            f"{task.name} has no labels, so there is nothing to learn; name the column that holds them (label=, "
            "--label)."
        )
    if task.label_names is not None and len(task.label_names) < 2:
        raise InputError(
            f"Every row of {task.name} is of one class, {task.label_names[0]!r}: there is nothing to learn."
        )
    return train, validation


def best_layer(model: Model, train: Examples, max_length: int = 128) -> int:
    """l*: the layer of least nu on the training rows."""
    log.warning("l* is not given (--best, best=): looking for it in %d rows of %s.", len(train), train.task)
    best = streamed(model, train, max_length=max_length).best
    if best is None:
        raise InputError(f"No layer of {model.name} separates the classes of {train.task}; give l* as best=.")
    log.warning(
        "l* is %d: the layer of %s with the least nu on %s (%d rows).", best, model.name, train.task, len(train)
    )
    return best


def _swept(job: Job, seed: int) -> Run:
    """A run for every learning rate, and the best of them on validation."""
    found = []
    for rate in job.training.rates:
        one = Job(
            job.model,
            job.task,
            job.train,
            job.validation,
            job.strategy,
            job.method,
            job.training.model_copy(update={"learning_rate": rate}),
            seed,
        )
        path = Store().produce("run", spec_of(one), one.run, Team.current())
        found.append(Run(one, path, read_result(path), len(job.training.rates)))
    best = max(found, key=lambda run: run.score if not np.isnan(run.score) else -np.inf)
    if len(found) > 1:
        log.info("Of %d learning rates %g is the best on validation.", len(found), best.job.training.rates[0])
    return best


def spec_of(job: Job) -> dict[str, Any]:
    """Everything that determines a run."""
    data = {
        name: [part.fingerprint, part.split, digest(part.rows.tobytes())]
        for name, part in (("train", job.train), ("validation", job.validation))
    }
    # The cache changes how long a run takes and not what comes out, but for the dtype of what it keeps.
    hyper = job.training.model_dump(exclude={"cache_limit", "train_limit", "validation_limit"})
    return {
        "version": VERSION,
        "model": fingerprint(job.model),
        "tokenizer": tokenizer_fingerprint(job.model.require_tokenizer()),
        "task": job.task.name,
        **data,
        "strategy": [job.strategy.bottom, job.strategy.top, job.strategy.head, job.strategy.embeddings],
        "method": [job.method.name, job.method.size],
        "training": hyper,
        "seed": job.seed,
    }


def copy_run(run: Run, target: Path) -> None:
    """A copy of a run's files under a name of the user's."""
    with atomic_folder(target, RESULT) as folder:
        for name in (CHECKPOINT, ADAPTER):
            if (run.path / name).is_dir():
                shutil.copytree(run.path / name, folder / name)
        shutil.copy(run.path / RESULT, folder / RESULT)


__all__ = ["Run", "Runs", "Training", "tune"]
