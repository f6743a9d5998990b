"""`Score`, the result of an evaluation: a number with its metric, its rows and its provenance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from layerscope import metrics
from layerscope.drawing.captions import MAJORITY, caveat
from layerscope.drawing.figures.bars import BarsFigure
from layerscope.results import Finding, NextStep, Result
from layerscope.results.finding import ADVISE, ANSWER, DETAIL, interval, label, number, over_windows, rows, task_name

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure

UNKNOWN = (math.nan, math.nan)
GENERATION = "generation"
_NEAR = 0.1  # the share of a value within which its interval must lie, so that the value is sure


@dataclass(frozen=True)
class Number:
    """One number of a score: what it measures, of which rows, how sure it is, and what kind of number it is."""

    task: str
    split: str
    metric: str
    value: float
    n: int
    kind: str  # how the model was asked: multiple choice hides damage that generation shows
    low: float = math.nan  # a 95% interval
    high: float = math.nan
    rows_are: str = "texts"
    interval_note: str = ""  # what its interval is over, where that is not texts, or why there is none


class Score(float, Result):
    """The main metric as a number, which can be used as one; `metrics` has the others that fit the task.

    Attributes:
        metric: The name of the main metric.
        metrics: Every metric that fits the task, by name.
        n: How many texts (or windows of running text) were scored.
        majority: The score of always giving the most frequent class.
        note: Which rows these are, where they are not all of the split's.
        provenance: The model, the data and the settings.
        interval: A 95% interval of the main metric, by the bootstrap over texts; NaN where none was made.
        interval_note: What the interval is over, where that is not texts, or why there is none.
        kind: What kind of number it is: classes, perplexity, multiple choice by likelihood, ..
        numbers: Every number with its rows, its interval and its kind, those of a generation check among them.
        harness: The scores of lm-evaluation-harness, where those were asked for beside the task's; else None.

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
    interval: tuple[float, float]
    interval_note: str
    kind: str
    more: tuple[Number, ...]
    harness: Score | None

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
        interval: tuple[float, float] = UNKNOWN,
        interval_note: str = "",
        kind: str = "",
        more: Sequence[Number] = (),
        harness: Score | None = None,
    ) -> Self:
        score = super().__new__(cls, value)
        score.metric, score.n, score.majority = metric, n, majority
        score.metrics = {**metrics, **{number.metric: number.value for number in more}}
        score.provenance, score.note, score.rows_are = provenance, note, rows_are
        score.interval, score.interval_note, score.kind = interval, interval_note, kind
        score.more, score.harness = tuple(more), harness
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
        """The score in the words of its table, with its interval where one was made."""
        models, data = self.provenance.get("models") or [{}], self.provenance.get("data", {})
        model = label(models[0]) if models[0].get("name") else None
        source = {"model": model, "task": data.get("task"), "split": data.get("split"), "n": self.n}
        others = {name: value for name, value in self.metrics.items() if name != self.metric}
        bounds = {} if math.isnan(self.interval[0]) else dict(zip(("low", "high"), self.interval, strict=True))
        score = {"metric": self.metric, "score": float(self), **bounds, "majority": self.majority}
        return {**source, **score, **others}

    @property
    def numbers(self) -> list[Number]:
        """Every number: the main metric first, then the others that fit, the generation check and the harness."""
        row, asked = self.row, {number.metric for number in self.more}
        common: dict[str, Any] = {"task": str(row["task"]), "split": str(row["split"]), "n": self.n, "kind": self.kind}
        names = [self.metric, *(name for name in self.metrics if name not in (self.metric, *asked))]
        fitting = [
            Number(metric=name, value=float(self.metrics[name]), rows_are=self.rows_are, **common) for name in names
        ]
        low, high = self.interval
        fitting[0] = replace(fitting[0], value=float(self), low=low, high=high, interval_note=self.interval_note)
        return [*fitting, *self.more, *(self.harness.numbers if self.harness is not None else ())]

    @property
    def asked_for(self) -> list[Number]:
        """The numbers that were asked for, without the metrics that fit as well: what goes on a model's card."""
        return [self.numbers[0], *self.more, *(self.harness.asked_for if self.harness is not None else ())]

    def findings(self) -> list[Finding]:
        """What a generation check gave, and what the model scores beside one answer to everything."""
        values = {number.metric: number for number in self.more if number.kind == GENERATION}
        findings = []
        if values:
            first = values["continuation"]
            text = (
                f"Continuing {first.n} {first.rows_are} greedily, {100 * first.value:.1f}% of the tokens are those of "
                f"the text, and {100 * values['repetition'].value:.1f}% of the 4-grams are repeats "
                f"({100 * values['repetition_text'].value:.1f}% in the text itself)."
            )
            findings.append(Finding(text, "", None, DETAIL))
            questions = [
                each for each in values.values() if each.rows_are == "questions" and not math.isnan(each.value)
            ]
            if questions:
                shares = ", ".join(f"{each.metric} {100 * each.value:.0f}%" for each in questions)
                text = f"Of {questions[0].n} generated questions of each kind it answers: {shares}."
                findings.append(Finding(text, "", None, DETAIL))
        return [*findings, *over_windows(self.provenance), self._scored()]

    def _scored(self) -> Finding:
        """Return the score as a finding, which is sure if it beats the most frequent class or is narrow enough."""
        row, (low, high) = self.row, self.interval
        on = f" on {task_name(row['task'])}" if row["task"] else ""
        name = str(row["model"] or "The model")
        if math.isnan(self):
            return Finding(f"{name} has no {self.metric}{on}: {self.note or 'it is undefined'}.", "", None, ANSWER)
        text = f"{name} has {self.metric} {number(float(self))}{on}"
        sure = (high - low) / 2 <= _NEAR * abs(float(self))
        if not math.isnan(self.majority):
            text += f"; always giving the most frequent class would have {number(self.majority)}"
            sure = low > self.majority
        return Finding(f"{text}.", interval(low, high) + rows(self.n), None if math.isnan(low) else bool(sure), ANSWER)

    def next_step(self) -> NextStep | None:
        """The advice, which tests what may go."""
        return ADVISE

    def figures(self) -> list[Figure]:
        row = self.row
        guess, bounded = not math.isnan(self.majority), not math.isnan(self.interval[0])
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
                low=(self.interval[0],) if bounded else None,
                high=(self.interval[1],) if bounded else None,
                y_name=self.metric,
                references=((MAJORITY, self.majority),) if guess else (),
                n=self.n,
            )
        ]

    def __repr__(self) -> str:
        return f"Score({self.metric} {float(self):.4f}, n = {self.n:,})"

    def __getnewargs_ex__(self) -> Any:
        """Return the arguments of a copy."""
        names: tuple[str, ...] = ("metric", "metrics", "n", "majority", "provenance", "note", "rows_are", "interval")
        names += ("interval_note", "kind", "more", "harness")
        return (float(self),), {name: getattr(self, name) for name in names}
