"""Strategy studies: every strategy of a paper with every method and seed, its score and its cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.data import task as open_task
from layerscope.drawing.figures.scatter import Point, ScatterFigure
from layerscope.drawing.words import caveat, listed, numbers
from layerscope.engine import check_engine
from layerscope.errors import InputError, log
from layerscope.evaluation.exam import Exam
from layerscope.models.load import load_whole
from layerscope.results import Result, provenance_of
from layerscope.tuning.hyperparameters import hyperparameters
from layerscope.tuning.job import Lesson
from layerscope.tuning.method import method_of, possible
from layerscope.tuning.papers import of_preset
from layerscope.tuning.parts import needed_best, parts
from layerscope.tuning.strategy import Asked, Strategy, name_of
from layerscope.tuning.training import Trainings
from layerscope.tuning.tuning import TuningPlan, check_seeds, produce_plans

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure


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
        return len(self.trainings[0].trainings[0].job.lesson.validation)

    def _origin(self) -> dict[str, Any]:
        own = self.trainings[0].provenance
        jobs = [trainings.trainings[0].job for trainings in self.trainings]
        settings = {
            **own["settings"],
            "strategy": None,
            "method": None,
            "size": None,
            "learning_rate": None,
            "strategies": list(dict.fromkeys(self._strategies)),
            "methods": list(dict.fromkeys(job.method.name for job in jobs)),
            "seed": None,
            "seeds": [training.job.seed for training in self.trainings[0].trainings],
        }
        return provenance_of(own["models"], own["data"], settings)

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
        said = "With one seed there is no interval. Scores are those of the best epoch on validation."
        scatter = ScatterFigure(
            title="Strategies: score against tuned layers",
            shows=f"{metric} of every strategy against how many blocks it tunes.",
            reading="Up is better, left is cheaper. Whiskers are 95% intervals over seeds.",
            caveat=caveat(said, self._n),
            points=points,
            x_name="tuned layers",
            y_name=metric,
            n=self._n,
        )
        shows = "Mean score over seeds, its standard error and 95% interval, size and time of every strategy."
        return [scatter, numbers("Every strategy", shows, frame)]

    def findings(self) -> list[str]:
        at = int(np.nanargmax([trainings.mean for trainings in self.trainings]))
        best = self.trainings[at]
        job = best.trainings[0].job
        low, high = best.interval
        spread = "" if np.isnan(low) else f" ({low:.4f} to {high:.4f} over seeds)"
        said = [
            f"The best mean {best.metric} is {best.mean:.4f}{spread}, of {self._strategies[at]} with "
            f"{job.method.name}, which tunes {len(job.strategy.blocks)} of {job.lesson.model.depth} blocks."
        ]
        tied = [k for k, trainings in enumerate(self.trainings) if k != at and trainings.mean >= low]
        if tied:
            names = [f"{self._strategies[k]} with {self.trainings[k].trainings[0].job.method.name}" for k in tied]
            said.append(f"Within that interval, so tied with it: {listed(names)}.")
        return said

    def __repr__(self) -> str:
        return f"StrategyStudy({len(self.trainings)} strategies and methods, {self.trainings[0].metric})"


def _row(strategy: str, trainings: Trainings, inference_seconds: float) -> dict[str, Any]:
    own = trainings.trainings
    first = own[0]
    return {
        "strategy": strategy,
        "resolved": str(first.job.strategy),
        "method": first.job.method.name,
        "tuned_layers": len(first.job.strategy.blocks),
        "score": trainings.mean,
        "error": trainings.error,
        "low": trainings.interval[0],
        "high": trainings.interval[1],
        "seeds": len(own),
        "learning_rate": first.job.hyperparameters.rates[0],
        "tried": first.tried,
        "parameters": first.parameters,
        "trainable": first.trainable,
        "seconds": float(np.mean([training.seconds for training in own])),
        "seconds_per_epoch": float(np.mean([training.seconds_per_epoch for training in own])),
        "metric": first.metric,
        "inference_seconds": inference_seconds,
    }


def plan_study(
    model: Any,
    task: Any,
    strategies: Sequence[Asked] | None = None,
    methods: Sequence[str] = ("finetune",),
    *,
    best: int | None = None,
    preset: str | None = None,
    metric: str | None = None,
    **options: Any,
) -> list[TuningPlan]:
    """The plans of what `strategy_study` takes, everything checked and nothing trained."""
    opened, data = load_whole(model, "tuning"), open_task(task).with_metric(metric)
    opened.require_precision("tuning")
    chosen = [method_of(name) for name in methods]
    wanted = list(dict.fromkeys(map(name_of, of_preset(preset, opened.depth) if strategies is None else strategies)))
    parsed = {text: Strategy.parse(text) for text in wanted}
    if not chosen or not wanted:
        raise InputError(f"{'strategies' if chosen else 'methods'} is empty; at least one is needed.")
    # What is checked once: options, rows and l* are the same for every strategy.
    common = hyperparameters(preset, parsed[wanted[0]], chosen[0], data.name, **options)
    lesson = Lesson(opened, data, *parts(data, common.train_limit, common.validation_limit, opened))
    best = needed_best(opened, parsed.values(), best, lambda: lesson.train, common.max_length)
    kept = {method.name: possible(opened, wanted, best, method) for method in chosen}
    plans = [
        TuningPlan(
            lesson,
            kept[method.name][text],
            text,
            method,
            hyperparameters(preset, parsed[text], method, data.name, **options),
        )
        for text in wanted
        for method in chosen
        if text in kept[method.name]
    ]
    if not plans:
        raise InputError("No strategy is left to be studied.")
    return plans


def strategy_study(
    model: Any,
    task: Any,
    strategies: Sequence[Asked] | None = None,
    methods: Sequence[str] = ("finetune",),
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    *,
    best: int | None = None,
    preset: str | None = None,
    metric: str | None = None,
    engine: str = "local",
    **options: Any,
) -> StrategyStudy:
    """Train every strategy with every method and seed. Every training is kept, so an interrupted study goes on.

    Args:
        model: A model, or what `ls.load` takes.
        task: A task, or what `ls.task` takes.
        strategies: Strategies as `ls.tune` takes them; all of Xie et al.'s (of Wu et al.'s with the preset wu2020) if
            none are named. Those that a model or a method cannot have are left out with a note.
        methods: The names of methods.
        seeds: One training with each.
        best: l*, where a strategy needs it; not given, it is the layer of the least nu (`ls.specialty`).
        preset: phang2021, wu2020 or xie2022: the papers' hyperparameters.
        metric: The metric, where it is not the task's own.
        engine: Where the trainings run: `local` (one after another, here), `processes:N`, `ray` or `ray:ADDRESS`.
        **options: Hyperparameters, as `ls.tune` takes them.

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
    plans = plan_study(model, task, strategies, methods, best=best, preset=preset, metric=metric, **options)
    produced = produce_plans(plans, chosen, engine)
    if len(chosen) == 1:
        log.warning(
            "One seed gives no standard error and no interval: the columns error, low and high are NaN. Give more of "
            "them (seeds=, --seeds)."
        )
    return StrategyStudy([plan.asked for plan in plans], produced, [_inference(each) for each in produced])


def _inference(trainings: Trainings) -> float:
    """Seconds for the tuned model to answer the validation rows."""
    first = trainings.trainings[0]
    job = first.job
    tuned = job.reopened(first.path)
    exam = Exam(tuned, job.lesson.task, job.lesson.validation, job.hyperparameters.max_length)
    start = time.perf_counter()
    exam.logits(note=False)
    return time.perf_counter() - start
