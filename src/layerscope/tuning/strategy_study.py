"""Strategy studies: every strategy of a paper with every method and seed, its score and its cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.data import TaskSource
from layerscope.data import task as open_task
from layerscope.drawing.captions import caveat, listed, numbers
from layerscope.drawing.figures.scatter import Point, ScatterFigure
from layerscope.engine import check_engine
from layerscope.errors import InputError, log
from layerscope.evaluation.classification import ClassificationEvaluator
from layerscope.models.load import ModelSource, load_trainable
from layerscope.results import Finding, NextStep, Result, provenance_of
from layerscope.results.finding import ANSWER, SIGNIFICANT, SUPPORT, number
from layerscope.tuning.costs import needed_best, parts
from layerscope.tuning.hyperparameters import Hyperparameters, check_trackers, hyperparameters
from layerscope.tuning.method import Method, method_of, possible
from layerscope.tuning.strategy import Asked, Strategy, name_of, of_preset
from layerscope.tuning.training import Trainings
from layerscope.tuning.training_job import TrainingData
from layerscope.tuning.tune import TuningPlan, check_seeds, produce_plans

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure


_ROUNDING = 1e-9  # differences of scores that differ by less are the same


class StrategyStudy(Result):
    """Strategies and methods with their scores over seeds and what they cost.

    Attributes:
        trainings: The Trainings of each strategy and method, in the order of the table.
    """

    name = "strategy_study"

    def __init__(self, strategies: Sequence[str], trainings: Sequence[Trainings], seconds: Sequence[float]) -> None:
        self.trainings = list(trainings)
        self._strategies, self._inference_seconds = list(strategies), list(seconds)
        self.provenance = self._origin()

    @property
    def frame(self) -> pandas.DataFrame:
        """One row per strategy and method: mean score, standard error, interval, tuned layers, size and time."""
        import pandas

        parts = zip(self._strategies, self.trainings, self._inference_seconds, strict=True)
        return pandas.DataFrame([_row(*part) for part in parts])

    @property
    def _n(self) -> int:
        return len(self.trainings[0].trainings[0].job.training_data.validation)

    def _origin(self) -> dict[str, Any]:
        first = self.trainings[0].provenance
        jobs = [trainings.trainings[0].job for trainings in self.trainings]
        settings = {
            **first["settings"],
            "strategy": None,
            "method": None,
            "size": None,
            "learning_rate": None,
            "strategies": list(dict.fromkeys(self._strategies)),
            "methods": list(dict.fromkeys(job.method.name for job in jobs)),
            "seed": None,
            "seeds": [training.job.seed for training in self.trainings[0].trainings],
        }
        return provenance_of(first["models"], first["data"], settings)

    def figures(self) -> list[Figure]:
        frame = self.frame
        metric = self.trainings[0].metric
        points = tuple(
            Point(
                float(row["tuned_layers"]),
                float(row["score"]),
                row["strategy"],
                row["method"],
                float(row["low"]),
                float(row["high"]),
            )
            for row in frame.to_dict("records")
        )
        note = "With one seed there is no interval. Scores are those of the best epoch on validation."
        scatter = ScatterFigure(
            title="Strategies: score against tuned layers",
            shows=f"{metric} of every strategy against how many blocks it tunes.",
            reading="Up is better, left is cheaper. Whiskers are 95% intervals over seeds.",
            caveat=caveat(note, self._n),
            points=points,
            x_name="tuned layers",
            y_name=metric,
            n=self._n,
        )
        shows = "Mean score over seeds, its standard error and 95% interval, size and time of every strategy."
        return [scatter, numbers("Every strategy", shows, frame)]

    def findings(self) -> list[Finding]:
        """The best strategy, those that tie with it, and the cheapest of these."""
        if (at := self._best) is None:
            return []
        best = self.trainings[at]
        job = best.trainings[0].job
        low, high = best.interval
        spread = "" if np.isnan(low) else f" ({low:.4f} to {high:.4f} over seeds)"
        text = (
            f"The best mean {best.metric} is {best.mean:.4f}{spread}, of {self._strategies[at]} with "
            f"{job.method.name}, which tunes {len(job.strategy.blocks)} of {job.training_data.model.depth} blocks."
        )
        tied = self._tied(at)
        findings = [Finding(text, "", None if np.isnan(low) else not tied, ANSWER)]
        if tied:
            names = [f"{self._strategies[k]} with {self.trainings[k].trainings[0].job.method.name}" for k in tied]
            text = f"Not shown to be worse over the same seeds, so tied with it: {listed(names)}."
            findings.append(Finding(text, "", False, SUPPORT))
            first = {k: self.trainings[k].trainings[0] for k in (at, *tied)}
            cheap = min(tied, key=lambda k: first[k].trainable)
            text = (
                f"The cheapest of those that tie is {names[tied.index(cheap)]}: {best.metric} "
                f"{number(self.trainings[cheap].mean)}, {first[cheap].trainable / first[cheap].parameters:.0%} of the "
                f"parameters, where the best one trains {first[at].trainable / first[at].parameters:.0%}."
            )
            evidence = f"the difference from the best one is within noise, over {len(best.trainings)} seeds"
            findings.append(Finding(text, evidence, False, SUPPORT))
        return findings

    def _tied(self, at: int) -> list[int]:
        """Return the places of those that are not shown to score less than the one at a place, by a t-test.

        Seeds that both were trained with are pairs; the level is divided by the number of comparisons (Bonferroni).
        """
        from scipy.stats import ttest_rel

        best, tied = {t.job.seed: t.score for t in self.trainings[at].trainings}, []
        for k, trainings in enumerate(self.trainings):
            if k == at or len(best) < 2:
                continue
            pairs = np.asarray([(best[t.job.seed], t.score) for t in trainings.trainings])
            varies = np.ptp(pairs[:, 0] - pairs[:, 1]) > _ROUNDING  # without any spread there is nothing to test with
            if not (varies and ttest_rel(*pairs.T).pvalue < SIGNIFICANT / (len(self.trainings) - 1)):
                tied.append(k)
        return tied

    @property
    def _best(self) -> int | None:
        """The place of the best mean; None where none is defined."""
        means = np.asarray([trainings.mean for trainings in self.trainings])
        return None if np.isnan(means).all() else int(np.nanargmax(means))

    def next_step(self) -> NextStep | None:
        """The training of the best strategy with more seeds."""
        if (best := self._best) is None:
            return None
        job = self.trainings[best].trainings[0].job
        arguments = ("--strategy", str(job.strategy), "--method", job.method.name, "--seeds", "5", "-o", "tuned")
        return NextStep("tune", arguments, "Train the best one with more seeds")

    def __repr__(self) -> str:
        return f"StrategyStudy({len(self.trainings)} strategies and methods, {self.trainings[0].metric})"


def _row(strategy: str, trainings: Trainings, inference_seconds: float) -> dict[str, Any]:
    each_seed = trainings.trainings
    first = each_seed[0]
    return {
        "strategy": strategy,
        "resolved": str(first.job.strategy),
        "method": first.job.method.name,
        "tuned_layers": len(first.job.strategy.blocks),
        "score": trainings.mean,
        "error": trainings.error,
        "low": trainings.interval[0],
        "high": trainings.interval[1],
        "seeds": len(each_seed),
        "learning_rate": first.job.hyperparameters.rates[0],
        "tried": first.tried,
        "parameters": first.parameters,
        "trainable": first.trainable,
        "seconds": float(np.mean([training.seconds for training in each_seed])),
        "seconds_per_epoch": float(np.mean([training.seconds_per_epoch for training in each_seed])),
        "metric": first.metric,
        "inference_seconds": inference_seconds,
    }


def plan_study(
    model: Any,
    task: Any,
    strategies: Sequence[Asked] | None = None,
    methods: Sequence[str | Method] = ("finetune",),
    *,
    best: int | None = None,
    preset: str | None = None,
    metric: str | None = None,
    **options: Any,
) -> list[TuningPlan]:
    """Return the plans for the arguments of `strategy_study`: everything is checked, and nothing is trained."""
    check_trackers(options.get("report_to"))  # before a model is opened
    opened, data = load_trainable(model, "tuning"), open_task(task).with_metric(metric)
    chosen = [method_of(name) for name in methods]
    wanted = list(dict.fromkeys(map(name_of, of_preset(preset, opened.depth) if strategies is None else strategies)))
    parsed = {text: Strategy.parse(text) for text in wanted}
    if not chosen or not wanted:
        raise InputError(f"{'strategies' if chosen else 'methods'} is empty; at least one is needed.")
    # Options, rows and l* are the same for every strategy, so they are checked once; rates and epochs may differ.
    common = hyperparameters(preset, parsed[wanted[0]], chosen[0], data.name, **options)
    training_data = TrainingData(opened, data, *parts(data, common.train_limit, common.validation_limit, opened))
    best = needed_best(opened, parsed.values(), best, lambda: training_data.train, common.max_length)
    possible_by_method = {method.name: possible(opened, wanted, best, method) for method in chosen}
    plans = [
        TuningPlan(
            training_data,
            resolved,
            text,
            method,
            hyperparameters(preset, resolved, method, data.name, opened.depth, **options),
        )
        for text in wanted
        for method in chosen
        if (resolved := possible_by_method[method.name].get(text)) is not None
    ]
    if not plans:
        raise InputError("No strategy is left to be studied.")
    return plans


def strategy_study(
    model: ModelSource,
    task: TaskSource,
    strategies: Sequence[Asked] | None = None,
    methods: Sequence[str | Method] = ("finetune",),
    seeds: int | Sequence[int] = 5,
    *,
    specialty_layer: int | None = None,
    preset: str | None = None,
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
) -> StrategyStudy:
    """Train every strategy with every method and seed. Every training is kept, so an interrupted study goes on.

    Args:
        model: A checkpoint: a folder, a hub id, `id@revision`, a GGUF file, `demo:minilm`, `demo:smollm2`,
            `garden:NAME`, `random:` and one of these, or a `Model`.
        task: A task of the registry (`layerscope tasks` lists them), a file, a folder, a hub id, or a `Task`.
        strategies: Strategies as `ls.tune` takes them; all of Xie et al.'s (of Wu et al.'s with the preset wu2020) if
            none are named. Those that a model or a method cannot have are left out with a note.
        methods: The names of methods, separated by commas: `finetune`, `adapter`, `lora`, `prefix`.
        seeds: How many seeds (0, 1, ..), or which (`1,2`), for one training of each strategy and method.
        specialty_layer: l*, the layer of the task's specialty, where a strategy needs it; if not given, a pass over the
            training split finds it: the layer of the least nu (`ls.specialty`).
        preset: phang2021, wu2020 or xie2022: the papers' hyperparameters.
        metric: The metric, where it is not the task's own.
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

    Returns:
        A StrategyStudy. `.frame` has one row per strategy and method: strategy, resolved, method, tuned_layers, score
        (the mean over seeds), error (its standard error), low and high (its 95% interval by Student's t, NaN with one
        seed), seeds, learning_rate, tried, parameters, trainable, seconds, seconds_per_epoch, metric,
        inference_seconds.

    Example:
        >>> import layerscope as ls
        >>> few = {"train_limit": 64, "validation_limit": 32, "max_length": 32, "max_steps": 2}
        >>> study = ls.strategy_study("garden:bert-s0", "pydocs", ["head-only", "top-1"], seeds=[0, 1], **few)
        >>> list(study.frame["tuned_layers"])
        [0, 1]
    """
    chosen = check_seeds(seeds)
    check_engine(engine)
    options = {name: value for name, value in locals().items() if name in Hyperparameters.model_fields}
    plans = plan_study(model, task, strategies, methods, best=specialty_layer, preset=preset, metric=metric, **options)
    produced = produce_plans(plans, chosen, engine)
    if len(chosen) == 1:
        log.warning(
            "One seed gives no standard error and no interval: the columns error, low and high are NaN. Give more of "
            "them (seeds=, --seeds)."
        )
    return StrategyStudy([plan.asked for plan in plans], produced, [_inference(each) for each in produced])


def _inference(trainings: Trainings) -> float:
    """Return the seconds that the tuned model takes to answer the validation rows."""
    first = trainings.trainings[0]
    job = first.job
    tuned = job.reopened(first.path)
    evaluator = ClassificationEvaluator(
        tuned, job.training_data.task, job.training_data.validation, job.hyperparameters.max_length
    )
    start = time.perf_counter()
    evaluator.logits(note=False)
    return time.perf_counter() - start
