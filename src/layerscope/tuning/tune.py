"""`ls.tune`: a plan with everything checked before the work, and the trainings that it asks for, each an artifact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, overload

import numpy as np

from layerscope.data import TaskSource
from layerscope.data import task as open_task
from layerscope.distributed import Team
from layerscope.engine import Job, check_engine, folders_of
from layerscope.errors import MOST_SEEDS, InputError, check_seed, log
from layerscope.models.load import ModelSource, load_trainable
from layerscope.models.sources import folder_of
from layerscope.store import check_free, produce_all
from layerscope.tuning.costs import Strategies, cost_table, needed_best, parts
from layerscope.tuning.hyperparameters import Hyperparameters, check_trackers, hyperparameters
from layerscope.tuning.method import Method, method_of
from layerscope.tuning.strategy import Asked, Strategy, name_of
from layerscope.tuning.training import Training, Trainings
from layerscope.tuning.training_job import RESULT, TrainingData, TrainingJob


@dataclass(eq=False)
class TuningPlan:
    """What `tune` was asked for, with everything checked and nothing trained.

    Attributes:
        training_data: The model, the task, and the rows that are learned from and scored.
        strategy: The strategy in numbers.
        asked: The strategy as it was asked for.
        method: The method with its size.
        hyperparameters: As they are trained with, perhaps with several learning rates.
    """

    training_data: TrainingData
    strategy: Strategy
    asked: str
    method: Method
    hyperparameters: Hyperparameters

    @property
    def cost(self) -> Strategies:
        """What is trained and what that costs, as a table of one row."""
        return cost_table(self.training_data.model, self.training_data.task, {self.asked: self.strategy}, self.method)

    def __str__(self) -> str:
        row = self.cost.row
        return (
            f"{self.asked} ({self.strategy}) with {self.method.name} trains {row['trainable']:,} "
            f"parameters; the tuned model has {row['parameters']:,}."
        )

    def jobs(self, seeds: Sequence[int]) -> list[TrainingJob]:
        """Return one job for every seed and, within it, every learning rate."""
        return [
            TrainingJob(
                self.training_data,
                self.strategy,
                self.method,
                self.hyperparameters.model_copy(update={"learning_rate": rate}),
                seed,
            )
            for seed in seeds
            for rate in self.hyperparameters.rates
        ]

    def produce(self, seeds: Sequence[int] = (0,), engine: str = "local") -> Trainings:
        """Return the trainings with these seeds, from the store where they are there; `engine` says where they run."""
        return produce_plans([self], seeds, engine)[0]


def produce_plans(plans: Sequence[TuningPlan], seeds: Sequence[int], engine: str = "local") -> list[Trainings]:
    """Return the trainings of several plans, every one stored as soon as it is done; `engine` says where they run.

    Of several learning rates the one with the best mean over seeds is taken, for all seeds: were each seed to keep its
    own best, mean and error would be of no rate that anyone can use.
    """
    chosen = check_seeds(seeds)
    jobs = [plan.jobs(chosen) for plan in plans]
    paths = iter(_folders([job for of_plan in jobs for job in of_plan], engine))
    produced = []
    for plan, of_plan in zip(plans, jobs, strict=True):
        tried = len(plan.hyperparameters.rates)
        trainings = [Training(job, next(paths), tried) for job in of_plan]
        _note_cut(trainings[0])
        produced.append(_best([Trainings(trainings[k::tried], plan.asked) for k in range(tried)]))
    return produced


def _folders(jobs: Sequence[TrainingJob], engine: str) -> list[Path]:
    """Return where the trainings are stored.

    Here a failure stops everything; on another engine the others go on, and all failures are named.
    """
    if engine == "local":  # the processes of a team train together
        return produce_all(jobs, Team.current())
    gpus = float(str(jobs[0].training_data.model.device).startswith("cuda"))
    return folders_of([Job(job, _name(job), gpus=gpus) for job in jobs], engine, "trainings")


def _name(job: TrainingJob) -> str:
    rate = job.hyperparameters.rates[0]
    return f"{job.strategy} with {job.method.name}, seed {job.seed}, learning rate {rate:g}"


def _note_cut(training: Training) -> None:
    """Warn about texts that are cut off, whether the training was done now or earlier."""
    cut, rows = training.outcome["cut_off"], training.outcome["rows"]
    if any(cut.values()):
        log.warning(
            "%d of the %d texts of %s that were learned from, and %d of the %d that were scored, are cut off at %d "
            "tokens.",
            *(cut["learned"], rows["learned"], training.job.training_data.task.name, cut["scored"], rows["scored"]),
            training.job.hyperparameters.max_length,
        )


def _best(sweep: Sequence[Trainings]) -> Trainings:
    """Return, of the trainings with each of several learning rates, those with the best mean over seeds."""
    best = max(sweep, key=lambda trainings: -np.inf if np.isnan(trainings.mean) else trainings.mean)
    if len(sweep) > 1:
        rate = best.trainings[0].job.hyperparameters.rates[0]
        log.info("Of %d learning rates %g has the best mean score on validation.", len(sweep), rate)
    return best


def check_seeds(seeds: int | Sequence[int]) -> list[int]:
    """Return the seeds: those that are named, or as many as asked for, counted from 0; raise InputError otherwise.

    A seed that is named twice is refused: the same training twice would make an interval too narrow.
    """
    if isinstance(seeds, int | Integral):
        if not 1 <= seeds <= MOST_SEEDS:
            raise InputError(f"seeds (--seeds) is {seeds}; it must be from 1 to {MOST_SEEDS:,}, or a list of seeds.")
        return list(range(int(seeds)))
    if not len(seeds):
        raise InputError("seeds is empty; at least one is needed.")
    chosen = [check_seed(seed) for seed in seeds]
    if len(set(chosen)) < len(chosen):
        raise InputError(f"seeds is {chosen}; each may be named once, since the same seed is the same training.")
    return chosen


def folders_for(model: Any, out: str | Path, seeds: Sequence[int] | None = None) -> list[Path]:
    """Return where trainings of a model are copied to: `out`, or for several seeds folders in it.

    Raises InputError where they cannot be written.
    """
    folders = [Path(out)] if seeds is None else [Path(out) / f"seed-{seed}" for seed in seeds]
    for folder in folders:
        check_free(folder, RESULT, folder_of(model))
    return folders


def plan_tuning(
    model: Any,
    task: Any,
    *,
    strategy: Asked = "full",
    method: str | Method = "finetune",
    preset: str | None = None,
    specialty_layer: int | None = None,
    size: int | None = None,
    metric: str | None = None,
    **options: Any,
) -> TuningPlan:
    """Return the plan for the arguments of `tune`: everything is checked, and nothing is trained.

    l* is looked for in the training rows where the strategy needs it and `specialty_layer` is not given.

    Args:
        model: A model, or what `ls.load` takes.
        task: A task, or what `ls.task` takes.
        strategy: As in `tune`, and so are the others.
        method: The method's name, or a Method.
        preset: A paper's hyperparameters.
        specialty_layer: l*.
        size: The method's size.
        metric: The metric, where it is not the task's own.
        **options: Hyperparameters that differ from the preset's; those that are None are not given.

    Returns:
        The plan: `.cost` is what it trains, as a table of one row, and `.produce(seeds)` trains.
    """
    check_trackers(options.get("report_to"))  # before a model is opened
    opened, data = load_trainable(model, "tuning"), open_task(task).with_metric(metric)
    parsed, chosen = Strategy.parse(strategy), method_of(method, size)
    common = hyperparameters(preset, parsed, chosen, data.name, **options)  # as far as no strategy changes them
    training_data = TrainingData(opened, data, *parts(data, common.train_limit, common.validation_limit, opened))
    best = needed_best(opened, [parsed], specialty_layer, lambda: training_data.train, common.max_length)
    resolved = parsed.resolve(opened.depth, best)
    chosen.check(opened, resolved)
    settings = hyperparameters(preset, resolved, chosen, data.name, opened.depth, **options)
    return TuningPlan(training_data, resolved, name_of(strategy), chosen, settings)


@overload
def tune(model: ModelSource, task: TaskSource, *, seeds: int | Sequence[int], **options: Any) -> Trainings: ...
@overload
def tune(model: ModelSource, task: TaskSource, *, seeds: None = None, **options: Any) -> Training: ...
def tune(  # type: ignore[misc]
    model: ModelSource,
    task: TaskSource,
    *,
    strategy: Asked = "full",
    method: str | Method = "finetune",
    preset: str | None = None,
    seed: int = 0,
    seeds: int | Sequence[int] | None = None,
    specialty_layer: int | None = None,
    size: int | None = None,
    metric: str | None = None,
    learning_rate: float | Sequence[float] | None = None,
    epochs: float | None = None,
    max_steps: int | None = None,
    batch: int | None = None,
    accumulate: int | None = None,
    warmup: float | None = None,
    schedule: str | None = None,
    weight_decay: float | None = None,
    adam_epsilon: float | None = None,
    max_length: int | None = None,
    bf16: bool | None = None,
    evaluate_every: int | None = None,
    patience: int | None = None,
    checkpointing: bool | None = None,
    report_to: str | Sequence[str] | None = None,
    cache: bool | None = None,
    cache_dtype: str | None = None,
    cache_limit: float | None = None,
    train_limit: int | None = None,
    validation_limit: int | None = None,
    engine: str = "local",
    out: str | Path | None = None,
) -> Training | Trainings:
    """Train a model on a task's train split under a strategy, scored on validation after every epoch; the best is kept.

    Every training is kept in the store, so the same call comes back at once, and an interrupted one goes on.

    Args:
        model: A checkpoint: a folder, a hub id, `id@revision`, a GGUF file, `demo:minilm`, `demo:smollm2`,
            `garden:NAME`, `random:` and one of these, or a `Model`.
        task: A task of the registry (`layerscope tasks` lists them), a file, a folder, a hub id, or a `Task`. Of a
            single split, a fifth is held out and scored.
        strategy: Which blocks are tuned and where the head sits: `(bottom, top, head)` with numbers, L, l* and m, or
            full, head-only, top-3, freeze-bottom-6, freeze-top-4.
        method: `finetune`, `adapter`, `lora` or `prefix`; in Python also a `Method` of your own.
        preset: phang2021, wu2020 or xie2022: the papers' hyperparameters.
        seed: Decides the new head, the order of rows and dropout.
        seeds: How many seeds (0, 1, ..), or which (`1,2`), for one training with each; gives the mean and its error.
        specialty_layer: l*, the layer of the task's specialty, where a strategy needs it; if not given, a pass over the
            training split finds it: the layer of the least nu (`ls.specialty`).
        size: The width of an adapter, the rank of LoRA or the number of virtual tokens.
        metric: The metric, where it is not the task's own: accuracy, f1, matthews, ..
        learning_rate: One, or several (`1e-5,3e-5`), which are all tried: the one with the best mean over seeds on
            validation is kept. 2e-5 if not given.
        epochs: Passes over the training split; 3 if not given.
        max_steps: How many steps, instead of epochs.
        batch: Texts per step; 16 if not given.
        accumulate: Add up the gradients of N steps.
        warmup: Warm-up: a share of the steps, or (1 and above) their number; 0.06 if not given.
        schedule: How the learning rate falls: `linear` (the default), `cosine`, `constant` or `constant_with_warmup`.
        weight_decay: Weight decay of the optimizer; none if not given.
        adam_epsilon: Adam's epsilon; 1e-8 if not given.
        max_length: The longest text in tokens; 128 if not given.
        bf16: Mixed precision in bfloat16.
        evaluate_every: Look at validation every N steps; after every epoch if not given.
        patience: Stop after N looks without a better score.
        checkpointing: Run blocks again in the backward pass: less memory, more time.
        report_to: The Trainer's trackers: tensorboard, wandb, trackio, mlflow; several, separated by commas.
            TensorBoard's event files are in `runs`, or TENSORBOARD_LOGGING_DIR, a folder for each training.
        cache: Keep the output of frozen blocks instead of running them in every epoch, as is done if nothing is said.
        cache_dtype: What that is kept in: `float32` (the default) or `bfloat16`.
        cache_limit: How many GiB may be kept so; 20 if not given.
        train_limit: Use only the first N training examples.
        validation_limit: Use only the first N validation examples.
        engine: Where several trainings run, each a job: `local` (one after another, here), `processes:N`, `ray` or
            `ray:ADDRESS`.
        out: A folder that gets a copy of the result; with several seeds, of each in a folder of its own.

    Returns:
        A Training: `.model`, `.score`, `.metric`, `.path`, `.trainable`, `.seconds`; with `seeds` the Trainings.

    Example:
        >>> import layerscope as ls
        >>> few = {"train_limit": 64, "validation_limit": 32, "max_length": 32, "max_steps": 2}
        >>> training = ls.tune("garden:bert-s0", "pydocs", strategy="(l*+1, L, L)", specialty_layer=2, **few)
        >>> training.metric, training.cached
        ('accuracy', True)
    """
    if seeds is not None and seed:
        raise InputError(
            f"Both seed (--seed) {seed} and seeds (--seeds) {seeds} were given; give one of them: seeds counts from "
            "0, or names its seeds."
        )
    chosen = check_seeds([seed] if seeds is None else seeds)
    check_engine(engine)
    options = {name: value for name, value in locals().items() if name in Hyperparameters.model_fields}
    plan = plan_tuning(
        model,
        task,
        strategy=strategy,
        method=method,
        preset=preset,
        specialty_layer=specialty_layer,
        size=size,
        metric=metric,
        **options,
    )
    if engine != "local" and len(chosen) == len(plan.hyperparameters.rates) == 1:
        raise InputError(
            f"engine={engine!r} (--engine) spreads several trainings, and this is one; give several seeds or learning "
            "rates, or leave it out."
        )
    folders = [] if out is None else folders_for(model, out, None if seeds is None else chosen)
    log.info("%s", plan)
    trainings = plan.produce(chosen, engine)
    majority = trainings.trainings[0].majority
    if trainings.mean <= majority:  # said before its model is cut or compared
        log.warning(
            "%s is %.4f, no better than always giving the most frequent class (%.4f): train on more texts or for "
            "longer, or try other learning rates.",
            *(trainings.metric, trainings.mean, majority),
        )
    if Team.current().is_main:
        for training, folder in zip(trainings.trainings, folders, strict=False):
            training.copy_to(folder)
    return trainings if seeds is not None else trainings.trainings[0]
