"""Advice with healing: the plans of the Pareto front are healed shortly, and scored before and after.

The rows of an advice that scored its candidates chose nothing. Half of them choose among the healed models here, and
the other half, which neither chose nor healed, scores all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope import metrics, resampling
from layerscope.cutting.advice import Advice, Verdict, regained_in_words
from layerscope.cutting.curves import healing_step
from layerscope.cutting.cut import cut_network
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.selection_test import Comparison, lower_bound, smallest_within
from layerscope.cutting.targets import Tolerance
from layerscope.data import Task
from layerscope.data import task as open_task
from layerscope.drawing.captions import caveat, numbers, spread
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.errors import InputError, log
from layerscope.evaluation.evaluator import Evaluator
from layerscope.evaluation.score import Score
from layerscope.models import load
from layerscope.results import Finding, NextStep, Result
from layerscope.results.finding import ANSWER, NO_INTERVAL, SUPPORT, worse
from layerscope.tuning.heal import heal
from layerscope.tuning.healing import Healing
from layerscope.tuning.objectives.base import UNKNOWN, gain_between

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure

HELD_OUT = "texts that neither chose nor healed"


@dataclass(repr=False)
class HealedAdvice(Result):
    """The plans of an advice's front, healed: `frame` has one row per plan, the whole model first.

    In the table `before` is the score of the cut model and `after` that of the healed one, with its interval, on texts
    that neither chose nor healed; `chosen_on` the healed model's on the texts that choose among the healed ones.

    Attributes:
        advice: What was healed.
        healings: One `Healing` per plan, in the order of the table.
        choice: The chosen plan; None where every healed model is outside the tolerance.
    """

    name = "healed"

    advice: Advice
    table: pandas.DataFrame
    healings: list[Healing]
    choice: LayerPlan | None
    provenance: Mapping[str, Any]
    answers: list[np.ndarray]  # of the healed models, to all rows of the evaluator
    scoring: np.ndarray  # the rows that neither chose nor healed
    evaluator: Evaluator  # of the rows that chose no plan, to all of which `answers` are

    @property
    def verdict(self) -> Verdict:
        """Whether the chosen plan meets what was asked of the advice now that it is healed."""
        if self.choice is None:
            return Verdict(False, str(self.findings()[0]), misses=math.nan)
        row, whole = self.table[self.table["chosen"]].iloc[0], self.table.iloc[0]
        metric = str(row["metric"])
        gain = metrics.upward(metric, row["after"]) - metrics.upward(metric, row["before"])
        regained = gain, float(row["over_cut_low"]), float(row["over_cut_high"])
        loses, misses, bound = self._bound(row, whole)
        says = (
            f"Healed, blocks {row['blocks']} have {metric} {row['after']:.4f} on {HELD_OUT}, where the whole model has "
            f"{whole['after']:.4f}: {bound} {regained_in_words('Healing', metric, regained)}"
        )
        return Verdict(misses == 0.0, says, loses, misses, *regained)

    @property
    def _judged(self) -> bool:
        """Whether there is a tolerance to be met: of a target alone there is none."""
        return self.advice.within is not None or not self.advice.target

    def _bound(self, row: Any, whole: Any) -> tuple[float, float, str]:
        """Return how much the chosen plan loses at most, by how much that misses the tolerance, and both in words.

        The bound is one-sided, at the confidence that was asked for: the rows that score chose no plan.
        """
        metric, confidence = str(row["metric"]), self.advice.confidence
        loses = max(-float(row["change_low"]), 0.0) if confidence else math.nan
        at_most = f"with {confidence:.0%} confidence it loses at most {loses:.4f}"
        if not self._judged:
            return loses, 0.0, f"{at_most}." if math.isfinite(loses) else "no bound is known for what it loses."
        tolerance = Tolerance.parse(self.advice.tolerance, metric)
        allowed = tolerance.allowed(float(whole["after"]))
        if math.isfinite(loses):
            misses = max(loses - allowed, 0.0)
            found = "within" if misses == 0.0 else f"{misses:.4f} more than"
            return loses, misses, f"{at_most}, which is {found} the tolerance of {tolerance}."
        if confidence:
            few = f"{len(self.scoring)} rows are too few to bound what it loses, so the tolerance of {tolerance} is"
            return loses, math.nan, f"{few} not shown to hold."
        change = metrics.upward(metric, row["after"]) - metrics.upward(metric, whole["after"])
        misses = max(-change - allowed, 0.0)
        found = "within" if misses == 0.0 else "outside"
        return (
            loses,
            misses,
            f"it changes by {change:+.4f}, {found} the tolerance of {tolerance}; no bound was asked for.",
        )

    @property
    def frame(self) -> pandas.DataFrame:
        """Columns: blocks, removed, chosen_on, before, after, low, high, over_whole_low, over_whole_high (how much
        better the healed model is than the whole one, a 95% interval), change_low (a lower bound for that, with the
        confidence asked for), over_cut_low, over_cut_high (how much better it is than the cut one), parameters, macs,
        metric, chosen."""
        return self.table

    @property
    def _place(self) -> int | None:
        return None if self.choice is None else [healing.plan for healing in self.healings].index(self.choice)

    @cached_property
    def model(self) -> Any:
        """The chosen healed model, as a transformers model; None where none was chosen."""
        return None if self._place is None else self.healings[self._place].model

    @property
    def score(self) -> Score | None:
        """The chosen model's score on texts that neither chose nor healed, for its card."""
        if self._place is None:
            return None
        evaluator = self.evaluator.with_model(load(self.model))
        return evaluator.score(self.answers[self._place], self.scoring, HELD_OUT)

    def figures(self) -> list[Figure]:
        table, n = self.table[self.table["removed"] > 0].sort_values("macs"), len(self.scoring)
        metric, most = str(self.table["metric"].iloc[0]), float(self.table["macs"].max())
        share = tuple(float(value) / most for value in table["macs"])
        after = Series("healed", share, *(tuple(map(float, table[name])) for name in ("after", "low", "high")))
        drawn = CurveFigure(
            title="Before and after healing",
            shows=f"{metric} of the front's plans on {HELD_OUT}, cut and healed, against multiply-adds.",
            reading="Left is cheaper. What lies between the curves is what healing brings back.",
            caveat=caveat(f"The interval is a bootstrap {self.evaluator.resampled(self.scoring) or 'over texts'}.", n),
            series=(Series("cut", share, tuple(map(float, table["before"]))), after),
            x_name="multiply-adds, share of the whole model",
            y_name=metric,
            references=(("the whole model", float(self.table["after"].iloc[0])),),
            n=n,
        )
        return [drawn, numbers("Every healed plan", "What each keeps, scores and costs.", self.table)]

    def findings(self) -> list[Finding]:
        """Which healed plan is enough, and how many plans of the front healing improves."""
        whole, metric, sure = self.table.iloc[0], str(self.table["metric"].iloc[0]), False
        if self.choice is None:
            tolerance = Tolerance.parse(self.advice.tolerance, metric)
            text = f"Healed shortly, every plan of the front still loses more than {tolerance} {metric}."
        else:
            row, met = self.table[self.table["chosen"]].iloc[0], self._judged and self.verdict.met
            loses, _, bound = self._bound(row, whole)
            sure = met and math.isfinite(loses)
            least = "are the best" if self.advice.target else "are the smallest that look to be enough"
            text = (
                f"Healed, blocks {row['blocks']} {'are enough' if met else least}: {metric} {row['after']:.4f}"
                f"{spread(row['low'], row['high'])} on {HELD_OUT}, {row['before']:.4f} before healing, where the whole "
                f"model has {whole['after']:.4f}; {row['parameters'] / whole['parameters']:.0%} of the parameters. It "
                f"was chosen on other texts: {bound} {self._distance_from_whole(row)}"
            )
        findings = [Finding(text, "", sure, ANSWER)]
        if over := self.evaluator.resampled(self.scoring):
            findings.append(Finding(f"Intervals are {over}.", "", None, SUPPORT))
        plans = self.table[self.table["removed"] > 0]
        if len(plans) > 1:
            up = metrics.higher_is_better(metric)
            better = sum(worse(b, a, up) for b, a in zip(plans["before"], plans["after"], strict=True))
            text = f"Healing improves {better} of {len(plans)} plans of the front."
            findings.append(Finding(text, f"{NO_INTERVAL} for the differences", None, SUPPORT))
        return findings

    def next_step(self) -> NextStep | None:
        """A longer healing of the chosen plan; None where none was chosen."""
        if self.choice is None:
            return None
        return healing_step(self.choice, self.advice.evaluator.model.depth, "Heal the cut model for longer")

    def _distance_from_whole(self, row: Any) -> str:
        """Return a sentence on how far the chosen model may be from the whole one."""
        n, metric = len(self.scoring), str(row["metric"])
        if math.isinf(row["over_whole_low"]):
            return f"{n} rows cannot tell how far it is from the whole model."
        return (
            f"On these {n} rows it gains between {row['over_whole_low']:+.4g} and {row['over_whole_high']:+.4g} "
            f"{metric} over the whole model (95% interval)."
        )

    def __repr__(self) -> str:
        return f"HealedAdvice({self.choice or 'none'}, {len(self.healings)} plans)"


def heal_advice(
    advice: Advice,
    task: Any,
    *,
    steps: int,
    on: Any = None,
    seed: int = 0,
    **options: Any,
) -> HealedAdvice:
    """Heal the plans of an advice's Pareto front, and choose among what comes out.

    Args:
        advice: What `advise` gave.
        task: The task that it was given. Its train split heals.
        steps: Of healing, for every plan.
        on: Other texts to heal on; needed where the task has no train split of its own.
        seed: Decides which of the rows that scored choose now, and the healings.
        **options: As of `ls.heal`.

    Returns:
        A `HealedAdvice`.
    """
    import pandas

    if steps < 1:
        raise InputError(f"heal is {steps}; at least one step is needed.")
    evaluator = advice.evaluator
    texts = healing_texts(advice, open_task(task), on)
    evaluator, choosing, scored = _halved(evaluator, advice.parts.scoring, seed)
    front = advice.frame[(advice.frame["front"] | advice.frame["chosen"]) & advice.frame["savable"]]
    front = front[front["removed"] > 0].sort_values("macs", ascending=False)
    whole = evaluator.logits(note=False)
    parts = choosing, scored, advice.confidence
    rows = [_row(advice.frame.iloc[0], evaluator, (whole, whole, whole), *parts)]
    healings, healed = [], []
    log.info("The %d plans of the front are healed with %d steps each.", len(front), steps)
    for _, candidate in front.iterrows():
        plan = plan_of(str(candidate["blocks"]))
        healing = heal(evaluator.model, plan, texts, steps=steps, seed=seed, **options)
        before = evaluator.with_model(load(cut_network(evaluator.model, plan, share=True))).logits(note=False)
        after = evaluator.with_model(load(healing.model)).logits(note=False)
        rows.append(_row(candidate, evaluator, (whole, before, after), *parts))
        healings.append(healing)
        healed.append(after)
    table = pandas.DataFrame(rows).assign(metric=evaluator.metric)
    choice = _choice(advice, table)
    table["chosen"] = table.index == (-1 if choice is None else choice)
    chosen = None if choice is None else healings[choice - 1].plan
    provenance = evaluator.provenance(heal=steps, on=texts.name, seed=seed)
    return HealedAdvice(advice, table, healings, chosen, provenance, healed, scored, evaluator)


def _halved(evaluator: Evaluator, scoring: np.ndarray, seed: int) -> tuple[Evaluator, np.ndarray, np.ndarray]:
    """Return an evaluator of the texts of some rows, and its rows by halves of the texts: some choose, others score."""
    for dealing in (evaluator, evaluator.by_rows()):
        texts = dealing.made_of(scoring)
        labels = None if dealing.classes is None else np.asarray(dealing.classes)[scoring]
        parts = np.full(dealing.text_count, -1)
        parts[texts] = ~resampling.halves(texts, seed=seed, labels=labels)
        halved, of_rows = dealing.dealt(parts)
        choosing, scored = (np.flatnonzero(of_rows == half) for half in (0, 1))
        if len(choosing) and len(scored):
            return halved, choosing, scored
    raise InputError(f"{len(scoring)} rows are left to choose among healed models and to score them; give more.")


def healing_texts(advice: Advice, task: Task, on: Any) -> Task:
    """Return the texts that heal: other texts, or the task's train split alone, so that none of them chose."""
    if on is not None:
        return open_task(on)
    used = advice.evaluator.examples.split
    if "train" not in task.splits or used == "train":
        raise InputError(
            f"{task.name} has no texts beside those that choose and score ({used}), so nothing is left to heal on; "
            "give a task with a train split, or other texts (on=, --heal-on)."
        )
    return task.only("train")


def plan_of(blocks: str) -> LayerPlan:
    """Return the plan that keeps blocks such as `1-4, 7`."""
    keep: list[int] = []
    for part in blocks.split(","):
        first, _, last = part.strip().partition("-")
        keep += range(int(first), int(last or first) + 1)
    return LayerPlan(keep)


def _row(
    candidate: Any,
    evaluator: Evaluator,
    answers: tuple[np.ndarray, np.ndarray, np.ndarray],
    choosing: np.ndarray,
    scored: np.ndarray,
    confidence: float,
) -> dict[str, Any]:
    """Return a row of the table; `answers` are the whole model's, the cut one's and the healed one's."""
    whole, before, after = answers
    low, high = evaluator.interval(after, scored)
    gain = regained = UNKNOWN
    change_low = math.nan
    if after is not whole:
        gain, regained = (gain_between(evaluator, each, after, scored) for each in (whole, before))
        if confidence:
            compared = Comparison(evaluator, np.stack([whole, after]), scored, Tolerance(0.0))
            bound = lower_bound(compared.changes(1), confidence)
            change_low = compared.in_metric(bound) if math.isfinite(bound) else bound
    return {
        "blocks": candidate["blocks"],
        "removed": int(candidate["removed"]),
        "chosen_on": evaluator.value(after, choosing),
        "before": evaluator.value(before, scored),
        "after": evaluator.value(after, scored),
        "low": low,
        "high": high,
        "over_whole_low": gain.low,
        "over_whole_high": gain.high,
        "change_low": change_low,
        "over_cut_low": regained.low,
        "over_cut_high": regained.high,
        "parameters": int(candidate["parameters"]),
        "macs": int(candidate["macs"]),
    }


def _choice(advice: Advice, table: pandas.DataFrame) -> int | None:
    """Return the place of the smallest healed plan within the tolerance, or None.

    With a target it is the best of those that have no more parameters than the advice's choice.
    """
    metric = str(table["metric"].iloc[0])
    worth = [metrics.upward(metric, value) for value in table["chosen_on"]]
    cuts = [k for k in range(1, len(table)) if worth[k] > -math.inf]
    if advice.target:
        most = float(advice.row["parameters"])
        able = [k for k in cuts if table["parameters"].iloc[k] <= most]
        return max(able, key=lambda k: worth[k], default=None)
    allowed = Tolerance.parse(advice.tolerance, metric).allowed(float(table["chosen_on"].iloc[0]))
    sizes = [float(table["macs"].iloc[k]) for k in cuts]
    place = smallest_within([worth[k] for k in cuts], sizes, worth[0], allowed)
    return None if place is None else cuts[place]
