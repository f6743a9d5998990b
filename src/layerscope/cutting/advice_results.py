"""What advice is: the candidates, the plan that was chosen, and what can be said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.cutting.candidates import by_rule, in_short
from layerscope.cutting.cutting import cut
from layerscope.cutting.decision import Decision, Parts
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.targets import Target
from layerscope.cutting.tolerance import Tolerance
from layerscope.data import metrics
from layerscope.drawing.words import spread
from layerscope.evaluation.score import Score
from layerscope.evaluation.sitting import Sitting
from layerscope.models import load
from layerscope.results import Result

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure

_SPELLED = 6  # plans whose scores a sentence names; the table has all of them
HELD_OUT = "the half of the rows that did not choose the blocks"


@dataclass(repr=False)
class Advice(Result):
    """`frame` has one row per candidate, the whole model first; `choice` is the smallest plan within the tolerance, or
    the best one that meets the target.

    In the table `chosen_on` is the score on the rows that pick a candidate of each size; `change`, with its lower bound
    `change_low`, what it changes on the rows that confirm the pick (NaN where it was not tested; with a target, what
    the choice changes on the rows that did not choose it); `score` (with `low`
    and `high`) the score on the other half, which chose nothing and is to be believed.

    Attributes:
        choice: The chosen `LayerPlan`.
        tolerance: How much of the metric might be lost, as it was given.
        confidence: How sure it had to be that no more is lost; 0 if nothing was asked for.
        exam: The model, the task and the texts that it was scored on.
        answers: The logits of the chosen plan, (n, classes).
        parts: Which rows picked, confirmed and scored.
        decision: The tests of the picks, in their order; None without a confidence, and with a target.
        rule_names: The rules that proposed plans.
        target: What was asked for in place of a tolerance: blocks, parameters, latency.

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
    rule_names: tuple[str, ...] = ()
    target: Target = field(default_factory=Target)

    @property
    def frame(self) -> pandas.DataFrame:
        """Columns: plan, rule (every rule that found it), blocks, removed, chosen_on, change, change_low, score, low,
        high, parameters, macs, latency_1_ms, latency_32_ms, savable, metric, front, chosen."""
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

    @cached_property
    def rules(self) -> pandas.DataFrame:
        """Each rule's best plan of each size beside the middle one of as many random blocks.

        Columns: rule, removed, blocks, plans (how many it proposed), score (on the rows that did not choose), random
        (the score of the middle random plan; NaN without the rule `random`), lost (whether that is better).
        """
        return by_rule(self.frame, self.rule_names)

    @property
    def rules_in_short(self) -> pandas.DataFrame:
        """How each rule did over all sizes, in one row.

        Columns: rule, plans, sizes (at how many it proposed any), best_at (at how many of them no other rule's plan
        scores better), worse_than_random_at (None without the rule `random`).
        """
        return in_short(self.rules, str(self.frame["metric"].iloc[0]))

    def print_as(self, tool: str, name: str | None = None) -> str:
        """The chosen plan as another tool takes it: `mergekit` or `llama.cpp`; `name` stands for the model there."""
        return self.choice.print_as(tool, self.exam.model.depth, name or self.exam.model.name)

    def figures(self) -> list[Figure]:
        """Score against cost of every candidate, the rules beside one another, and the tables."""
        from layerscope.cutting.advice_figures import figures_of

        return figures_of(self)

    @property
    def _tolerated(self) -> Tolerance:
        return Tolerance.parse(self.tolerance, str(self.frame["metric"].iloc[0]))

    @property
    def how(self) -> str:
        """How the choice was made, in a few words."""
        if self.target:
            return f"the chosen one is the best, on the rows that choose, of those that {self.target}"
        if self.decision is None:
            return "the chosen one is the cheapest within the tolerance on the rows that choose"
        return f"the chosen one is the smallest that other rows confirmed, with {self.confidence:.0%} confidence"

    def findings(self) -> list[str]:
        return [part for part in (str(self), self.against_random) if part]

    def __str__(self) -> str:
        if self.target:
            return " ".join(part for part in (self._kept, self._best, self._warning) if part)
        said = self._kept if self.choice.removed(self.exam.model.depth) else self._nothing
        return " ".join(part for part in (said, self._outside, self._further, self._warning) if part)

    @property
    def against_random(self) -> str:
        """Which rules lost to random blocks, and where; nothing where no random plan was tried."""
        rules, metric = self.rules, self.frame["metric"].iloc[0]
        if not rules["random"].notna().any():
            return ""
        lost = rules[rules["lost"]]
        if not len(lost):
            return "Every rule is at least as good as random blocks at every size."
        parts = []
        for rule, rows in lost.groupby("rule", sort=False):
            sizes = rows.sort_values("removed")
            told = [f"{r.removed} ({r.score:.4g}, random {r.random:.4g})" for r in sizes.itertuples()]
            parts.append(f"{rule} at {', '.join(told if len(lost) <= _SPELLED else map(str, sizes['removed']))}")
        return (
            f"Worse in {metric} than the middle one of random plans, by blocks removed: {'; '.join(parts)}. Scores are "
            f"of {len(self.parts.scoring)} rows: where two are close, either may be ahead by chance."
        )

    @property
    def _best(self) -> str:
        """What the choice was made among, where a target was given."""
        count = int((self.frame["removed"] > 0).sum())
        return (
            f"It was found by {self.row['rule']}, and has the best score on the rows that choose among those of "
            f"{count} plans that {self.target}."
        )

    @property
    def _kept(self) -> str:
        """What may stay, and what it scores and costs."""
        whole, row = self.frame.iloc[0], self.row
        metric, bounded = row["metric"], self.decision is not None or (self.target and self.confidence)
        bound = f" With {self.confidence:.0%} confidence it loses at most {max(-row['change_low'], 0.0):.4f} {metric}."
        return (
            f"Keep blocks {row['blocks']}: {metric} {row['score']:.4f}{spread(row['low'], row['high'])} on rows "
            f"that did not choose it, where the whole model has {whole['score']:.4f}; "
            f"{row['parameters'] / whole['parameters']:.0%} of the parameters, {row['macs'] / whole['macs']:.0%} of "
            f"the multiply-adds{self._time}.{bound if bounded else ''}"
        )

    @property
    def _time(self) -> str:
        """What the choice takes, where it was measured: a target of latency is for one text at a time."""
        whole, row = self.frame.iloc[0], self.row
        batch = 1 if self.target.latency is not None else 32
        after, before = (part[f"latency_{batch}_ms"] for part in (row, whole))
        if np.isnan(after):
            return ""
        return f", {after / before:.0%} of the time at batch {batch} ({after:.1f} ms in place of {before:.1f} ms)"

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
