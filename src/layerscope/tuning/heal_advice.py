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
from layerscope.cutting.advice import Advice, Verdict
from layerscope.cutting.curves import healing_step
from layerscope.cutting.cut import cut_network
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.selection_test import smallest_within
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
        loses, metric = max(-float(row["over_whole_low"]), 0.0), str(row["metric"])
        regains = metrics.upward(metric, row["after"]) - metrics.upward(metric, row["before"])
        says = (
            f"Healed, blocks {row['blocks']} have {metric} {row['after']:.4f} on {HELD_OUT}, which is "
            f"{abs(regains):.4f} {'better' if regains >= 0 else 'worse'} than cut alone, where the whole model has "
            f"{whole['after']:.4f}"
        )
        if self.advice.within is None:
            return Verdict(True, f"{says}.", loses)
        tolerance = Tolerance.parse(self.advice.tolerance, metric)
        allowed = tolerance.allowed(float(whole["after"]))
        met = loses <= allowed
        found = "within" if met else f"{loses - allowed:.4f} more than"
        says += f"; it may lose up to {loses:.4f} (95% interval), {found} the tolerance of {tolerance}."
        return Verdict(met, says, loses, 0.0 if met else loses - allowed)

    @property
    def frame(self) -> pandas.DataFrame:
        """Columns: blocks, removed, chosen_on, before, after, low, high, over_whole_low, over_whole_high (how much
        better the healed model is than the whole one, a 95% interval), parameters, macs, metric, chosen."""
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
        whole, metric = self.table.iloc[0], str(self.table["metric"].iloc[0])
        if self.choice is None:
            tolerance = Tolerance.parse(self.advice.tolerance, metric)
            text = f"Healed shortly, every plan of the front still loses more than {tolerance} {metric}."
        else:
            row = self.table[self.table["chosen"]].iloc[0]
            text = (
                f"Healed, blocks {row['blocks']} are enough: {metric} {row['after']:.4f}"
                f"{spread(row['low'], row['high'])} on {HELD_OUT}, {row['before']:.4f} before healing, where the whole "
                f"model has {whole['after']:.4f}; {row['parameters'] / whole['parameters']:.0%} of the parameters. It "
                f"was chosen on other texts, without a bound. {self._distance_from_whole(row, float(whole['after']))}"
            )
        findings = [Finding(text, "", False, ANSWER)]
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

    def _distance_from_whole(self, row: Any, whole: float) -> str:
        """Return a sentence on how far the chosen model may be from the whole one, and whether that is tolerated."""
        n, metric = len(self.scoring), str(row["metric"])
        if math.isinf(row["over_whole_low"]):
            return f"{n} rows cannot tell how far it is from the whole model."
        message = (
            f"On these {n} rows it gains between {row['over_whole_low']:+.4g} and {row['over_whole_high']:+.4g} "
            f"{metric} over the whole model (95% interval)"
        )
        tolerance = Tolerance.parse(self.advice.tolerance, metric)
        if self.advice.target or row["over_whole_low"] >= -tolerance.allowed(whole):
            return f"{message}."
        return f"{message}, so it may lose more than the tolerance of {tolerance}."

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
    rows = [_row(advice.frame.iloc[0], evaluator, (whole, whole, whole), choosing, scored)]
    healings, healed = [], []
    log.info("The %d plans of the front are healed with %d steps each.", len(front), steps)
    for _, candidate in front.iterrows():
        plan = plan_of(str(candidate["blocks"]))
        healing = heal(evaluator.model, plan, texts, steps=steps, seed=seed, **options)
        before = evaluator.with_model(load(cut_network(evaluator.model, plan, share=True))).logits(note=False)
        after = evaluator.with_model(load(healing.model)).logits(note=False)
        rows.append(_row(candidate, evaluator, (whole, before, after), choosing, scored))
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
    texts = evaluator.made_of(scoring)
    labels = None if evaluator.classes is None else np.asarray(evaluator.classes)[scoring]
    parts = np.full(evaluator.text_count, -1)
    parts[texts] = ~resampling.halves(texts, seed=seed, labels=labels)
    halved, of_rows = evaluator.dealt(parts)
    choosing, scored = (np.flatnonzero(of_rows == half) for half in (0, 1))
    if not len(choosing) or not len(scored):
        raise InputError(f"{len(scoring)} rows are left to choose among healed models and to score them; give more.")
    return halved, choosing, scored


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
    candidate: Any, evaluator: Any, answers: tuple[np.ndarray, np.ndarray, np.ndarray], choosing: Any, scored: Any
) -> dict[str, Any]:
    """Return a row of the table; `answers` are the whole model's, the cut one's and the healed one's."""
    whole, before, after = answers
    low, high = evaluator.interval(after, scored)
    gain = UNKNOWN if after is whole else gain_between(evaluator, whole, after, scored)
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
