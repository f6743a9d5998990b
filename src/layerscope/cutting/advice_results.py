"""What advice is: the candidates, the plan that was chosen, and what can be said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.cutting.cutting import cut
from layerscope.cutting.decision import Decision, Parts
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.tolerance import Tolerance
from layerscope.data import metrics
from layerscope.drawing.figures.scatter import Point, ScatterFigure
from layerscope.drawing.words import caveat, numbers
from layerscope.evaluation.score import Score
from layerscope.evaluation.sitting import Sitting
from layerscope.models import load
from layerscope.results import Result

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure

HELD_OUT = "the half of the rows that did not choose the blocks"


@dataclass(repr=False)
class Advice(Result):
    """`frame` has one row per candidate, the whole model first; `choice` is the smallest plan within the tolerance.

    In the table `chosen_on` is the score on the rows that pick a candidate of each size; `change`, with its lower bound
    `change_low`, what it changes on the rows that confirm the pick (NaN where it was not tested); `score` (with `low`
    and `high`) the score on the other half, which chose nothing and is to be believed.

    Attributes:
        choice: The chosen `LayerPlan`.
        tolerance: How much of the metric might be lost, as it was given.
        confidence: How sure it had to be that no more is lost; 0 if nothing was asked for.
        exam: The model, the task and the texts that it was scored on.
        answers: The logits of the chosen plan, (n, classes).
        parts: Which rows picked, confirmed and scored.
        decision: The tests of the picks, in their order; None without a confidence.

    Example:
        >>> import layerscope as ls
        >>> tuned = ls.tune("garden:bert-s0", "pydocs", max_steps=2, train_limit=64, validation_limit=64, max_length=16)
        >>> advice = ls.advise(tuned.model, "pydocs", max_span=1, evaluations=0, limit=64, max_length=16)
        >>> len(advice.model.base_model.encoder.layer) == len(advice.choice.keep)
        True
    """

    name = "advice"

    candidates: pandas.DataFrame
    choice: LayerPlan
    tolerance: float | str
    confidence: float
    exam: Sitting
    provenance: Mapping[str, Any]
    answers: np.ndarray  # of the chosen plan, (n, classes)
    parts: Parts
    decision: Decision | None

    @property
    def frame(self) -> pandas.DataFrame:
        """Columns: plan, blocks, removed, chosen_on, change, change_low, score, low, high, parameters, macs,
        latency_1_ms, latency_32_ms, savable, metric, front, chosen."""
        return self.candidates

    @cached_property
    def model(self) -> Any:
        """The whole model with the chosen blocks only, as a transformers model."""
        return cut(self.exam.model, self.choice)

    @cached_property
    def score(self) -> Score:
        """The chosen model's score on the rows that did not choose it, for its card: `ls.save(.., scores=..)`."""
        return self.exam.of(load(self.model)).score(self.answers, self.parts.scoring, HELD_OUT)

    @property
    def row(self) -> pandas.Series:
        """The chosen candidate's row."""
        return self.frame[self.frame["chosen"]].iloc[0]

    def figures(self) -> list[Figure]:
        """Score against cost of every candidate, and the table."""
        table, chosen = self.frame, self.row.name
        metric, most = str(table["metric"].iloc[0]), float(table["macs"].max())
        points = []
        for index, row in table.iterrows():
            series = "chosen" if index == chosen else "front" if row["front"] else "other candidates"
            name = f"blocks {row['blocks']}" if row["removed"] else "the whole model"
            place = (float(row["macs"]) / most, float(row["score"]))
            points.append(Point(*place, name, series, float(row["low"]), float(row["high"])))
        n, scored = len(self.exam.examples), len(self.parts.scoring)
        better = "up" if metrics.higher_is_better(metric) else "down"
        drawn = ScatterFigure(
            title="What each smaller model costs and scores",
            shows=f"{metric} against multiply-adds for every candidate: truncations, skipped spans and a greedy "
            "search.",
            reading=f"Left is cheaper, {better} is better. The line joins the candidates that no other beats on the "
            f"rows that pick; {self._how}. Scores shown are on the rows that did not choose.",
            caveat=caveat("The interval of a score is a bootstrap over the texts that did not choose.", scored),
            points=tuple(sorted(points, key=lambda p: p.series == "chosen")),
            x_name="multiply-adds, share of the whole model",
            y_name=f"{metric} on rows that did not choose",
            joined=("front",),
            stressed=("chosen",),
            references=(("the whole model", float(table["score"].iloc[0])),),
            n=n,
        )
        return [
            drawn,
            numbers("Every candidate", "What each keeps, scores and costs.", table.sort_values("macs")),
        ]

    @property
    def _tolerated(self) -> Tolerance:
        return Tolerance.parse(self.tolerance, str(self.frame["metric"].iloc[0]))

    @property
    def _how(self) -> str:
        """How the choice was made, in a few words."""
        if self.decision is None:
            return "the chosen one is the cheapest within the tolerance there"
        return f"the chosen one is the smallest that other rows confirmed, with {self.confidence:.0%} confidence"

    def findings(self) -> list[str]:
        return [str(self)]

    def __str__(self) -> str:
        said = self._kept if self.choice.removed(self.exam.model.depth) else self._nothing
        return " ".join(part for part in (said, self._outside, self._further, self._warning) if part)

    @property
    def _kept(self) -> str:
        """What may stay, and what it scores and costs."""
        whole, row = self.frame.iloc[0], self.row
        metric = row["metric"]
        bound = f" With {self.confidence:.0%} confidence it loses at most {max(-row['change_low'], 0.0):.4f} {metric}."
        return (
            f"Keep blocks {row['blocks']}: {metric} {row['score']:.4f} ({row['low']:.4f} to {row['high']:.4f}) on rows "
            f"that did not choose it, where the whole model has {whole['score']:.4f}; "
            f"{row['parameters'] / whole['parameters']:.0%} of the parameters, {row['macs'] / whole['macs']:.0%} of "
            f"the multiply-adds, {row['latency_32_ms'] / whole['latency_32_ms']:.0%} of the time at batch 32 "
            f"({row['latency_32_ms']:.1f} ms in place of {whole['latency_32_ms']:.1f} ms)."
            f"{bound if self.decision is not None else ''}"
        )

    @property
    def _nothing(self) -> str:
        """Why no block can go."""
        metric = self.frame["metric"].iloc[0]
        if not self.frame["savable"][self.frame["removed"] > 0].any():
            return "No block can go: no smaller model can be saved as a checkpoint."
        if self.decision is None:
            return f"No block can go: every smaller candidate loses more than {self._tolerated} {metric}."
        return f"No block is shown to be dispensable with {self.confidence:.0%} confidence."

    @property
    def _outside(self) -> str:
        """A word where the rows that chose nothing say that too much is lost."""
        whole, row = self.frame.iloc[0], self.row
        metric = str(row["metric"])
        loss = metrics.upward(metric, whole["score"]) - metrics.upward(metric, row["score"])
        if self._tolerated.holds(metric, float(whole["score"]), float(row["score"])):
            return ""
        return (
            f"On the rows that did not choose it, it loses {loss:.4f} {row['metric']}, which is more than the "
            f"tolerance of {self._tolerated}."
        )

    @property
    def _further(self) -> str:
        """What stands in the way of a smaller model; without a confidence, a warning."""
        if self.decision is None:
            return (
                f"This is the smallest of {len(self.frame)} candidates that looks to be within the tolerance, chosen "
                "without a bound (confidence 0): the luckiest of many is often outside it."
            )
        if not self.decision.checks or self.decision.checks[-1].passed:
            return ""
        last, metric = self.decision.checks[-1], self.frame["metric"].iloc[0]
        n, needed = len(self.exam.examples), self.rows_needed
        tested = (
            f"The next smaller candidate, blocks {self.frame['blocks'].iloc[last.candidate]}, changes {metric} by "
            f"{last.change:+.4f} on the {len(self.parts.confirming)} rows that confirm, and perhaps by {last.low:+.4f}"
        )
        if needed is None:
            return f"{tested}: more than the tolerance of {self._tolerated}."
        return (
            f"{tested}: too few rows to say that it is within the tolerance of {self._tolerated}. That would take "
            f"about {needed:,} rows, where there are {n:,}; confidence 0 chooses without a bound."
        )

    @property
    def rows_needed(self) -> int | None:
        """About how many rows would confirm the next smaller candidate, if it is as good as it looks; None if none."""
        if self.decision is None or self.decision.needed is None:
            return None
        return all_rows_for(self.decision.needed, self.parts, len(self.exam.examples))

    @property
    def _warning(self) -> str:
        """A word on a model that has not learned the task."""
        whole, guess = float(self.frame["score"].iloc[0]), self.exam.majority
        if not whole <= guess:
            return ""
        return f"Note that the whole model is no better than one answer to everything ({guess:.4f})."

    def __repr__(self) -> str:
        return f"Advice({self.choice}, {len(self.frame)} candidates)"


def all_rows_for(confirming: int, parts: Parts, n: int) -> int:
    """How many rows there must be altogether for so many to confirm."""
    return int(np.ceil(confirming * n / max(len(parts.confirming), 1)))
