"""`ls.tune`: a plan, everything checked before the work, and the trainings that it asks for, each an artifact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np

from layerscope.data import task as open_task
from layerscope.engine import Job, folders_of
from layerscope.errors import InputError, check_seed, log
from layerscope.models.load import load_whole
from layerscope.store import check_free, produce_all
from layerscope.team import Team
from layerscope.tuning.cards import RESULT
from layerscope.tuning.costs import Strategies, cost_table
from layerscope.tuning.hyperparameters import Hyperparameters, hyperparameters
from layerscope.tuning.job import Lesson, TrainingJob
from layerscope.tuning.method import Method, method_of
from layerscope.tuning.parts import needed_best, parts
from layerscope.tuning.strategy import Asked, Strategy, name_of
from layerscope.tuning.training import Training, Trainings


@dataclass(eq=False)
class TuningPlan:
    """What `tune` was asked for, with everything checked and nothing trained.

    Attributes:
        lesson: The model, the task, and the rows that are learned from and scored.
        strategy: The strategy in numbers.
        asked: The strategy as it was asked for.
        method: The method with its size.
        hyperparameters: As they are trained with, perhaps with several learning rates.
    """

    lesson: Lesson
    strategy: Strategy
    asked: str
    method: Method
    hyperparameters: Hyperparameters

    @property
    def cost(self) -> Strategies:
        """What is trained and what that costs, as a table of one row."""
        return cost_table(self.lesson.model, self.lesson.task, {self.asked: self.strategy}, self.method)

    def jobs(self, seeds: Sequence[int]) -> list[TrainingJob]:
        """One job for every seed and, within it, every learning rate."""
        return [
            TrainingJob(
                self.lesson,
                self.strategy,
                self.method,
                self.hyperparameters.model_copy(update={"learning_rate": rate}),
                seed,
            )
            for seed in seeds
            for rate in self.hyperparameters.rates
        ]

    def produce(self, seeds: Sequence[int] = (0,), engine: str = "local") -> Trainings:
        """The trainings with these seeds, from the store where they are there; `engine` says where they run."""
        return produce_plans([self], seeds, engine)[0]


def produce_plans(plans: Sequence[TuningPlan], seeds: Sequence[int], engine: str = "local") -> list[Trainings]:
    """The trainings of several plans, every one kept as soon as it is done; `engine` says where they run.

    Of several learning rates the one with the best mean over seeds is taken, for all seeds: were each seed to keep its
    own best, mean and error would be of no rate that anyone can use.
    """
    chosen = check_seeds(seeds)
    jobs = [plan.jobs(chosen) for plan in plans]
    paths = iter(_folders([job for own in jobs for job in own], engine))
    produced = []
    for plan, own in zip(plans, jobs, strict=True):
        tried = len(plan.hyperparameters.rates)
        trainings = [Training(job, next(paths), tried) for job in own]
        _note_cut(trainings[0])
        produced.append(_best([Trainings(trainings[k::tried]) for k in range(tried)]))
    return produced


def _folders(jobs: Sequence[TrainingJob], engine: str) -> list[Path]:
    """Where the trainings are kept. Here a failure stops everything; elsewhere the others go on, and all are named."""
    if engine == "local":  # the processes of a team train together
        return produce_all(jobs, Team.current())
    gpus = float(str(jobs[0].lesson.model.device).startswith("cuda"))
    return folders_of([Job(job, _name(job), gpus=gpus) for job in jobs], engine, "trainings")


def _name(job: TrainingJob) -> str:
    rate = job.hyperparameters.rates[0]
    return f"{job.strategy} with {job.method.name}, seed {job.seed}, learning rate {rate:g}"


def _note_cut(training: Training) -> None:
    """Say how many of the texts are cut off, whether the training was done now or earlier."""
    cut, rows = training.outcome["cut_off"], training.outcome["rows"]
    if any(cut.values()):
        log.warning(
            "%d of the %d texts of %s that were learned from, and %d of the %d that were scored, are cut off at %d "
            "tokens.",
            *(cut["learned"], rows["learned"], training.job.lesson.task.name, cut["scored"], rows["scored"]),
            training.job.hyperparameters.max_length,
        )


def _best(sweep: Sequence[Trainings]) -> Trainings:
    """Of the trainings with each of several learning rates those with the best mean over seeds."""
    best = max(sweep, key=lambda trainings: -np.inf if np.isnan(trainings.mean) else trainings.mean)
    if len(sweep) > 1:
        rate = best.trainings[0].job.hyperparameters.rates[0]
        log.info("Of %d learning rates %g has the best mean score on validation.", len(sweep), rate)
    return best


def check_seeds(seeds: Sequence[int]) -> list[int]:
    """The seeds, if there are any and each can be used; twice the same training would make an interval too narrow."""
    if not len(seeds):
        raise InputError("seeds is empty; at least one is needed.")
    chosen = [check_seed(seed) for seed in seeds]
    if len(set(chosen)) < len(chosen):
        raise InputError(f"seeds is {chosen}; each may be named once, since the same seed is the same training.")
    return chosen


def folders_for(out: str | Path, seeds: Sequence[int] | None = None) -> list[Path]:
    """Where trainings are copied to, after checking that they can be: `out`, or for several seeds folders in it."""
    folders = [Path(out)] if seeds is None else [Path(out) / f"seed-{seed}" for seed in seeds]
    for folder in folders:
        check_free(folder, RESULT)
    return folders


def plan_tuning(
    model: Any,
    task: Any,
    *,
    strategy: Asked = "full",
    method: str | Method = "finetune",
    preset: str | None = None,
    best: int | None = None,
    size: int | None = None,
    metric: str | None = None,
    **options: Any,
) -> TuningPlan:
    """The plan of what `tune` takes: everything is checked, and nothing is trained.

    l* is looked for in the training rows where the strategy needs it and `best` is not given.

    Args:
        model: A model, or what `ls.load` takes.
        task: A task, or what `ls.task` takes.
        strategy: As in `tune`, and so are the others.
        method: The method's name, or a Method.
        preset: A paper's hyperparameters.
        best: l*.
        size: The method's size.
        metric: The metric, where it is not the task's own.
        **options: Hyperparameters that differ from the preset's; those that are None are not given.

    Returns:
        The plan: `.cost` is what it trains, as a table of one row, and `.produce(seeds)` trains.
    """
    opened, data = load_whole(model, "tuning"), open_task(task).with_metric(metric)
    opened.require_precision("tuning")
    parsed, chosen = Strategy.parse(strategy), method_of(method, size)
    settings = hyperparameters(preset, parsed, chosen, data.name, **options)
    lesson = Lesson(opened, data, *parts(data, settings.train_limit, settings.validation_limit, opened))
    best = needed_best(opened, [parsed], best, lambda: lesson.train, settings.max_length)
    resolved = parsed.resolve(opened.depth, best)
    chosen.check(opened, resolved)
    return TuningPlan(lesson, resolved, name_of(strategy), chosen, settings)


@overload
def tune(model: Any, task: Any, *, seeds: Sequence[int], **options: Any) -> Trainings: ...
@overload
def tune(model: Any, task: Any, *, seeds: None = None, **options: Any) -> Training: ...
def tune(
    model: Any,
    task: Any,
    *,
    strategy: Asked = "full",
    method: str | Method = "finetune",
    preset: str | None = None,
    seed: int = 0,
    seeds: Sequence[int] | None = None,
    best: int | None = None,
    size: int | None = None,
    metric: str | None = None,
    out: str | Path | None = None,
    **options: Any,
) -> Training | Trainings:
    """Train a model on a task's train split under a strategy, scored on validation after every epoch; the best is kept.

    Every training is kept in the store, so the same call comes back at once, and an interrupted one goes on.

    Args:
        model: A folder, a hub id, a Model or a transformers model.
        task: A task's name, a Task, or what `ls.task` takes. Of a single split, a fifth is held out and scored.
        strategy: Which blocks are tuned and where the head sits: `(bottom, top, head)` with numbers, L, l* and m, or
            full, head-only, top-3, freeze-bottom-6, freeze-top-4.
        method: The name of a method (finetune, adapter, lora, prefix), or a `Method` of your own.
        preset: phang2021, wu2020 or xie2022: the papers' hyperparameters.
        seed: Decides the new head, the order of rows and dropout.
        seeds: Several seeds, for one training with each.
        best: l*, where the strategy needs it; not given, it is the layer of the least nu (`ls.specialty`).
        size: The width of an adapter, the rank of LoRA or the number of virtual tokens.
        metric: The metric, where it is not the task's own.
        out: A folder that gets a copy of the result; with several seeds, of each in a folder of its own.
        **options: Hyperparameters that differ from the preset's: learning_rate (several are all tried, and the one with
            the best mean over seeds on validation is kept), epochs, max_steps, batch, accumulate, warmup, schedule,
            weight_decay, adam_epsilon, max_length, bf16, patience, cache, cache_dtype, cache_limit, train_limit,
            validation_limit.

    Returns:
        A Training: `.model`, `.score`, `.metric`, `.path`, `.trainable`, `.seconds`; with `seeds` the Trainings.

    Example:
        >>> import layerscope as ls
        >>> few = {"train_limit": 64, "validation_limit": 32, "max_length": 32, "max_steps": 2}
        >>> training = ls.tune("garden:bert-s0", "pydocs", strategy="(l*+1, L, L)", best=2, **few)
        >>> training.metric, training.cached
        ('accuracy', True)
    """
    chosen = check_seeds([seed] if seeds is None else seeds)
    about: dict[str, Any] = {"strategy": strategy, "method": method, "preset": preset, "best": best, "size": size}
    plan = plan_tuning(model, task, **about, metric=metric, **options)
    folders = [] if out is None else folders_for(out, None if seeds is None else chosen)
    trainings = plan.produce(chosen)
    if Team.current().is_main:
        for training, folder in zip(trainings.trainings, folders, strict=False):
            training.copy_to(folder)
    return trainings.trainings[0] if seeds is None else trainings
