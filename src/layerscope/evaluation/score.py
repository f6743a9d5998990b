"""A score: the number itself, with its metric, its rows and where it comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from layerscope.data import metrics
from layerscope.drawing.figures.bars import BarsFigure
from layerscope.drawing.words import MAJORITY, caveat
from layerscope.results import Result

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure


class Score(float, Result):
    """The main metric as a number, which can be used as one; `metrics` has the others that fit the task.

    Attributes:
        metric: The name of the main metric.
        metrics: Every metric that fits the task, by name.
        n: How many texts (or windows of running text) were scored.
        majority: The score of always giving the most frequent class.
        note: Which rows these are, where they are not all of the split's.
        provenance: The model, the data and the settings.

    Example:
        >>> import layerscope as ls
        >>> score = ls.Score(0.9, metric="accuracy", metrics={"accuracy": 0.9}, n=50, majority=0.6, provenance={})
        >>> score, score > score.majority
        (Score(accuracy 0.9000, n = 50), True)
    """

    name = "score"

    metric: str
    metrics: Mapping[str, float]
    n: int
    majority: float
    note: str
    rows_are: str

    def __new__(
        cls,
        value: float,
        *,
        metric: str,
        metrics: Mapping[str, float],
        n: int,
        majority: float,
        provenance: Mapping[str, Any],
        note: str = "",
        rows_are: str = "texts",
    ) -> Score:
        score = super().__new__(cls, value)
        score.metric, score.metrics, score.n, score.majority = metric, dict(metrics), n, majority
        score.provenance, score.note, score.rows_are = provenance, note, rows_are
        return score

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger number is a better score; of a loss or a perplexity it is not."""
        return metrics.higher_is_better(self.metric)

    @property
    def weights(self) -> str:
        """The hash of the weights that were scored."""
        models = self.provenance.get("models") or [{}]
        return str(models[0].get("weights", ""))

    @property
    def frame(self) -> pandas.DataFrame:
        """One row: model, task, split, n, metric, score, majority, and the other metrics."""
        import pandas

        return pandas.DataFrame([self.row])

    @property
    def row(self) -> dict[str, Any]:
        """The score in the words of its table."""
        models, data = self.provenance.get("models") or [{}], self.provenance.get("data", {})
        about = {"model": models[0].get("name"), "task": data.get("task"), "split": data.get("split"), "n": self.n}
        others = {name: value for name, value in self.metrics.items() if name != self.metric}
        return {**about, "metric": self.metric, "score": float(self), "majority": self.majority, **others}

    def figures(self) -> list[Figure]:
        row = self.row
        guess = not math.isnan(self.majority)
        beside = ", beside that of always giving the most frequent class" if guess else ""
        reading = "A model worth its cost stands well above the dashed line."
        if not guess:
            reading = "Higher is better." if self.higher_is_better else "Lower is better."
        return [
            BarsFigure(
                title="Score",
                shows=f"{self.metric} of {row['model']} on {row['task']} ({row['split']}){beside}.",
                reading=reading,
                caveat=caveat(self.note, self.n),
                names=(str(row["model"]),),
                values=(float(self),),
                y_name=self.metric,
                references=((MAJORITY, self.majority),) if guess else (),
                n=self.n,
            )
        ]

    def __repr__(self) -> str:
        return f"Score({self.metric} {float(self):.4f}, n = {self.n:,})"

    def __getnewargs_ex__(self) -> Any:
        """What makes a copy of it."""
        names = ("metric", "metrics", "n", "majority", "provenance", "note", "rows_are")
        return (float(self),), {name: getattr(self, name) for name in names}
