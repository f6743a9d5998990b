"""`Training` and `Trainings`, the results of `ls.tune`: what was learned, where it is stored, and what it cost."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope import metrics
from layerscope.drawing.captions import MAJORITY, caveat, numbers
from layerscope.drawing.figures.box import BoxFigure
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.results import Finding, NextStep, Result, provenance_of
from layerscope.results.finding import ANSWER, DETAIL, interval, number
from layerscope.store import atomic_folder, read_object, write_json
from layerscope.tuning.method import ADAPTER, CHECKPOINT
from layerscope.tuning.training_job import RESULT, TrainingJob, place_of, read_result

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure
    from layerscope.tuning.costs import Strategies


_ADVISE_TUNED = NextStep("advise", ("-o", "advice"), "See which blocks the tuned model can lose")


class Training(Result):
    """One finished training.

    Attributes:
        job: What was asked for: the model and rows, the strategy in numbers, the method, hyperparameters and seed.
        path: The folder in the store with `training.json` and the checkpoint or adapter.
        outcome: What `training.json` says.
        tried: How many learning rates were tried, this one having the best mean over seeds on validation.

    Example:
        >>> import layerscope as ls
        >>> few = {"train_limit": 64, "validation_limit": 32, "max_length": 32, "max_steps": 2}
        >>> training = ls.tune("garden:bert-s0", "pydocs", strategy="head-only", **few)
        >>> training.metric, training.trainable < training.parameters
        ('accuracy', True)
    """

    name = "training"

    def __init__(self, job: TrainingJob, path: Path, tried: int = 1) -> None:
        self.job, self.path, self.tried = job, path, tried
        self.outcome = read_result(path)
        self.provenance = _provenance([job])

    @property
    def model(self) -> Any:
        """The tuned transformers model, opened from what was saved."""
        return self.job.reopened(self.path).network

    @property
    def score(self) -> float:
        """The task's metric on validation, of the best epoch."""
        return float(self.outcome["score"])

    @property
    def metric(self) -> str:
        return str(self.outcome["metric"])

    @property
    def majority(self) -> float:
        """The score of always giving the most frequent class."""
        return float(self.outcome["majority"])

    @property
    def trainable(self) -> int:
        """Parameters that were trained, those that were merged afterwards included."""
        return int(self.outcome["trainable"])

    @property
    def parameters(self) -> int:
        """Parameters of the model that was saved; what was merged into them does not count again."""
        return int(self.outcome["parameters"])

    @property
    def seconds(self) -> float:
        return float(self.outcome["seconds"])

    @property
    def seconds_per_epoch(self) -> float:
        """Of training, evaluation and the first epoch not counted."""
        return float(self.outcome["seconds_per_epoch"])

    @property
    def epochs(self) -> list[dict[str, float]]:
        """Epoch, score and loss on validation, after every epoch."""
        return list(self.outcome["epochs"])

    @property
    def best_epoch(self) -> float:
        """The epoch that is kept."""
        return float(self.outcome["best_epoch"])

    @property
    def cached(self) -> bool:
        """Whether the frozen blocks ran only once."""
        return bool(self.outcome["cached"])

    @property
    def row(self) -> dict[str, Any]:
        """The training in the words of its table."""
        job = self.job
        return {
            "seed": job.seed,
            "strategy": str(job.strategy),
            "method": job.method.name,
            "learning_rate": job.hyperparameters.rates[0],
            "tried": self.tried,
            "metric": self.metric,
            "score": self.score,
            "majority": self.majority,
            "best_epoch": self.best_epoch,
            "trainable": self.trainable,
            "parameters": self.parameters,
            "seconds": self.seconds,
        }

    @property
    def frame(self) -> pandas.DataFrame:
        """One row: seed, strategy, method, learning_rate, tried, metric, score, majority and what it cost."""
        import pandas

        return pandas.DataFrame([self.row])

    def figures(self) -> list[Figure]:
        return _figures([self])

    def findings(self) -> list[Finding]:
        """What the tuned model scores; one seed has no interval."""
        text = (
            f"{self.metric} is {self.score:.4f} on validation after epoch {self.best_epoch:g}, and {self.majority:.4f} "
            f"for always giving the most frequent class; it has {self.parameters:,} parameters, and "
            f"{self.trainable:,} were trained."
        )
        return [Finding(text, "", None, ANSWER)]

    def next_step(self) -> NextStep:
        """The advice on what was saved."""
        return replace(_ADVISE_TUNED, saved="")

    def copy_to(self, folder: str | Path) -> Path:
        """Put a copy of the training's files into a folder of yours.

        Args:
            folder: The folder to write. An earlier training there is replaced, anything else is left alone.

        Returns:
            The folder, with `training.json` and `checkpoint` (a standard checkpoint) or `adapter`, or both.
        """
        target = Path(folder)
        with atomic_folder(target, RESULT) as staging:
            self.write(staging)
        return target

    def write(self, folder: Path) -> None:
        """The files of `copy_to`, into a folder that is there.

        The same weights may have been tuned under another name before; the base is called as it is now.
        """
        for name in (CHECKPOINT, ADAPTER):
            if (self.path / name).is_dir():
                shutil.copytree(self.path / name, folder / name)
        result = read_object(self.path / RESULT)
        if result.get("base"):
            result["base"]["name"] = place_of(self.job.training_data.model.name)
        write_json(folder / RESULT, result)

    def __repr__(self) -> str:
        job = self.job
        return (
            f"Training({job.training_data.model.name} on {job.training_data.task.name}, {job.strategy}, "
            f"{job.method.name}, seed {job.seed}: {self.metric} {self.score:.4f}, {self.trainable:,} parameters "
            f"trained in {self.seconds:.0f} s)"
        )


class Trainings(Result):
    """The same training with several seeds.

    Attributes:
        trainings: One Training per seed.
        asked: The strategy as it was asked for.

    Example:
        >>> import layerscope as ls
        >>> few = {"train_limit": 64, "validation_limit": 32, "max_length": 32, "max_steps": 2}
        >>> trainings = ls.tune("garden:bert-s0", "pydocs", strategy="head-only", seeds=[0, 1], **few)
        >>> len(trainings.scores), bool(trainings.mean == trainings.scores.mean())
        (2, True)
    """

    name = "trainings"

    def __init__(self, trainings: Sequence[Training], asked: str = "") -> None:
        self.trainings, self.asked = list(trainings), asked
        self.provenance = _provenance([training.job for training in trainings])

    @property
    def metric(self) -> str:
        return self.trainings[0].metric

    @property
    def cost(self) -> Strategies:
        """What is trained and what that costs, as a table of one row."""
        from layerscope.tuning.costs import cost_table

        job = self.trainings[0].job
        strategies = {self.asked or str(job.strategy): job.strategy}
        return cost_table(job.training_data.model, job.training_data.task, strategies, job.method)

    @property
    def scores(self) -> np.ndarray:
        """(seeds,) the score of each training."""
        return np.asarray([training.score for training in self.trainings])

    @property
    def mean(self) -> float:
        return float(self.scores.mean())

    @property
    def error(self) -> float:
        """The standard error of the mean; NaN for one training."""
        count = len(self.trainings)
        return float(self.scores.std(ddof=1) / count**0.5) if count > 1 else float("nan")

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of the mean over seeds, by Student's t; NaN for one training."""
        from scipy.special import stdtrit

        width = float(stdtrit(len(self.trainings) - 1, 0.975)) * self.error if len(self.trainings) > 1 else float("nan")
        return self.mean - width, self.mean + width

    @property
    def frame(self) -> pandas.DataFrame:
        """One row per seed, with the columns of a Training's."""
        import pandas

        return pandas.DataFrame([training.row for training in self.trainings])

    def figures(self) -> list[Figure]:
        return _figures(self.trainings)

    def findings(self) -> list[Finding]:
        """The mean over seeds, and whether it is more than always giving the most frequent class has."""
        if len(self.trainings) == 1:
            return self.trainings[0].findings()
        first, count, (low, high) = self.trainings[0], len(self.trainings), self.interval
        text = f"Tuned, the model has {self.metric} {number(self.mean)}"
        if math.isfinite(first.majority):
            text += f", where always giving the most frequent class has {number(first.majority)}"
        text += f"; it has {first.parameters:,} parameters, and {first.trainable:,} were trained."
        comparable = math.isfinite(first.majority) and metrics.higher_is_better(self.metric)
        evidence = f"{interval(low, high)} over {count} seeds; scores are the best epoch's on validation"
        return [
            Finding(f"Mean {self.mean:.4f}, standard error {self.error:.4f} over {count} seeds.", "", None, DETAIL),
            Finding(text, evidence, bool(low > first.majority) if comparable else None, ANSWER),
        ]

    def next_step(self) -> NextStep:
        """The advice on what the first seed's training saved."""
        return replace(_ADVISE_TUNED, saved=f"seed-{self.trainings[0].job.seed}" if len(self.trainings) > 1 else "")

    def __repr__(self) -> str:
        spread = f" +- {self.error:.4f}" if len(self.trainings) > 1 else ""
        noun = "seeds" if len(self.trainings) > 1 else "seed"
        return f"Trainings({self.metric} {self.mean:.4f}{spread} over {len(self.trainings)} {noun})"


def _provenance(jobs: Sequence[TrainingJob]) -> dict[str, Any]:
    """Return the provenance of trainings that differ in their seed, and perhaps their learning rate."""
    first = jobs[0]
    given = first.hyperparameters.model_dump(mode="json")
    rates = list(dict.fromkeys(job.hyperparameters.rates[0] for job in jobs))
    settings = {
        "strategy": str(first.strategy),
        "method": first.method.name,
        "size": first.method.size,
        **{"seed" if len(jobs) == 1 else "seeds": first.seed if len(jobs) == 1 else [job.seed for job in jobs]},
        "metric": first.training_data.task.metric,
        **given,
        "learning_rate": rates[0] if len(rates) == 1 else rates,
    }
    return provenance_of([first.training_data.described], first.training_data.train, settings)


def _figures(trainings: Sequence[Training]) -> list[Figure]:
    """Return the spread over seeds where there are several, the score after every epoch, and the table."""
    first = trainings[0]
    reference = ((MAJORITY, first.majority),)
    n = len(first.job.training_data.validation)
    figures: list[Figure] = []
    if len(trainings) > 1:
        figures.append(
            BoxFigure(
                title="Scores over seeds",
                shows=f"{first.metric} on validation of {len(trainings)} trainings that differ in their seed.",
                reading="The box spans the middle half, its line is the median; every training is a point.",
                caveat=caveat("Each score is that of the best epoch on validation, so a little too good.", n),
                boxes={str(first.job.strategy): tuple(training.score for training in trainings)},
                y_name=first.metric,
                references=reference,
                n=n,
            )
        )
    if max(len(training.epochs) for training in trainings) > 1:
        curves = []
        for training in trainings:
            x, y = (tuple(float(entry[name]) for entry in training.epochs) for name in ("epoch", "score"))
            curves.append(Series(f"seed {training.job.seed}", x, y))
        figures.append(
            CurveFigure(
                title="Validation score after every epoch",
                shows=f"{first.metric} on validation over the epochs, one line per seed.",
                reading="The best epoch is the one that is kept.",
                caveat=caveat("", n),
                series=tuple(curves),
                x_name="epoch",
                y_name=first.metric,
                references=reference,
                n=n,
            )
        )
    rows = [training.row for training in trainings]
    return [*figures, numbers("Trainings", "Every training with what it trained and what it scored.", rows)]
