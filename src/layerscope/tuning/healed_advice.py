"""Advice with healing: the Pareto front's plans healed shortly, before and after, on texts that did neither.

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

from layerscope.cutting.advice_results import Advice
from layerscope.cutting.cutting import cut
from layerscope.cutting.decision import smallest_within
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.tolerance import Tolerance
from layerscope.data import Task, metrics, resampling
from layerscope.data import task as open_task
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.drawing.words import caveat, numbers, spread
from layerscope.errors import InputError, log
from layerscope.evaluation.score import Score
from layerscope.models import load
from layerscope.results import Result
from layerscope.tuning.gains import UNKNOWN, gain_between
from layerscope.tuning.healing import heal
from layerscope.tuning.healing_results import Healing

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
    answers: list[np.ndarray]  # of the healed models, to all rows of the exam
    scoring: np.ndarray  # the rows that neither chose nor healed

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
        return self.advice.exam.of(load(self.model)).score(self.answers[self._place], self.scoring, HELD_OUT)

    def figures(self) -> list[Figure]:
        table, n = self.table[self.table["removed"] > 0].sort_values("macs"), len(self.scoring)
        metric, most = str(self.table["metric"].iloc[0]), float(self.table["macs"].max())
        share = tuple(float(value) / most for value in table["macs"])
        after = Series("healed", share, *(tuple(map(float, table[name])) for name in ("after", "low", "high")))
        drawn = CurveFigure(
            title="Before and after healing",
            shows=f"{metric} of the front's plans on {HELD_OUT}, cut and healed, against multiply-adds.",
            reading="Left is cheaper. What lies between the curves is what healing brings back.",
            caveat=caveat("The interval is a bootstrap over texts.", n),
            series=(Series("cut", share, tuple(map(float, table["before"]))), after),
            x_name="multiply-adds, share of the whole model",
            y_name=metric,
            references=(("the whole model", float(self.table["after"].iloc[0])),),
            n=n,
        )
        return [drawn, numbers("Every healed plan", "What each keeps, scores and costs.", self.table)]

    def findings(self) -> list[str]:
        whole, metric = self.table.iloc[0], str(self.table["metric"].iloc[0])
        if self.choice is None:
            tolerance = Tolerance.parse(self.advice.tolerance, metric)
            return [f"Healed shortly, every plan of the front still loses more than {tolerance} {metric}."]
        row = self.table[self.table["chosen"]].iloc[0]
        return [
            f"Healed, blocks {row['blocks']} are enough: {metric} {row['after']:.4f}{spread(row['low'], row['high'])} "
            f"on {HELD_OUT}, {row['before']:.4f} before healing, where the whole model has "
            f"{whole['after']:.4f}; {row['parameters'] / whole['parameters']:.0%} of the parameters. It was chosen on "
            f"other texts, without a bound. {self._told_apart(row, float(whole['after']))}"
        ]

    def _told_apart(self, row: Any, whole: float) -> str:
        """How far the chosen model may be from the whole one, and whether that is within the tolerance."""
        n, metric = len(self.scoring), str(row["metric"])
        if math.isinf(row["over_whole_low"]):
            return f"{n} rows cannot tell how far it is from the whole model."
        said = (
            f"On these {n} rows it gains between {row['over_whole_low']:+.4g} and {row['over_whole_high']:+.4g} "
            f"{metric} over the whole model (95% interval)"
        )
        tolerance = Tolerance.parse(self.advice.tolerance, metric)
        if self.advice.target or row["over_whole_low"] >= -tolerance.allowed(whole):
            return f"{said}."
        return f"{said}, so it may lose more than the tolerance of {tolerance}."

    def __repr__(self) -> str:
        return f"HealedAdvice({self.choice or 'none'}, {len(self.healings)} plans)"


def heal_advice(
    advice: Advice, task: Any, *, steps: int, on: Any = None, seed: int = 0, **options: Any
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
    if steps < 1:
        raise InputError(f"heal is {steps}; at least one step is needed.")
    exam = advice.exam
    texts = healing_texts(advice, open_task(task), on)
    scoring = advice.parts.scoring
    if len(scoring) < 2:
        raise InputError(f"{len(scoring)} rows are left to choose among healed models and to score them; give more.")
    labels = None if exam.classes is None else np.asarray(exam.classes)[scoring]
    first = resampling.halves(np.asarray(exam.texts)[scoring], seed=seed, labels=labels)
    choosing, scored = scoring[first], scoring[~first]
    front = advice.frame[(advice.frame["front"] | advice.frame["chosen"]) & advice.frame["savable"]]
    front = front[front["removed"] > 0].sort_values("macs", ascending=False)
    whole = exam.logits(note=False)
    rows = [_row(advice.frame.iloc[0], exam, (whole, whole, whole), choosing, scored)]
    healings, healed = [], []
    log.info("The %d plans of the front are healed with %d steps each.", len(front), steps)
    for _, candidate in front.iterrows():
        plan = plan_of(str(candidate["blocks"]))
        healing = heal(exam.model, plan, texts, steps=steps, seed=seed, **options)
        before = exam.of(load(cut(exam.model, plan))).logits(note=False)
        after = exam.of(load(healing.model)).logits(note=False)
        rows.append(_row(candidate, exam, (whole, before, after), choosing, scored))
        healings.append(healing)
        healed.append(after)
    table = _frame(rows, exam.metric)
    choice = _choice(advice, table)
    table["chosen"] = table.index == (-1 if choice is None else choice)
    chosen = None if choice is None else healings[choice - 1].plan
    about = exam.provenance(heal=steps, on=texts.name, seed=seed)
    return HealedAdvice(advice, table, healings, chosen, about, healed, scored)


def healing_texts(advice: Advice, task: Task, on: Any) -> Task:
    """What heals: other texts, or the task's train split by itself, so that nothing that chose is looked at."""
    if on is not None:
        return open_task(on)
    used = advice.exam.examples.split
    if "train" not in task.splits or used == "train":
        raise InputError(
            f"{task.name} has no texts beside those that choose and score ({used}), so nothing is left to heal on; "
            "give a task with a train split, or other texts (on=, --heal-on)."
        )
    return task.only("train")


def plan_of(blocks: str) -> LayerPlan:
    """The plan that keeps `1-4, 7`."""
    keep: list[int] = []
    for part in blocks.split(","):
        first, _, last = part.strip().partition("-")
        keep += range(int(first), int(last or first) + 1)
    return LayerPlan(keep)


def _row(
    candidate: Any, exam: Any, answers: tuple[np.ndarray, np.ndarray, np.ndarray], choosing: Any, scored: Any
) -> dict[str, Any]:
    """`answers` are the whole model's, the cut one's and the healed one's."""
    whole, before, after = answers
    low, high = exam.interval(after, scored)
    gain = UNKNOWN if after is whole else gain_between(exam, whole, after, scored)
    return {
        "blocks": candidate["blocks"],
        "removed": int(candidate["removed"]),
        "chosen_on": exam.value(after, choosing),
        "before": exam.value(before, scored),
        "after": exam.value(after, scored),
        "low": low,
        "high": high,
        "over_whole_low": gain.low,
        "over_whole_high": gain.high,
        "parameters": int(candidate["parameters"]),
        "macs": int(candidate["macs"]),
    }


def _frame(rows: list[dict[str, Any]], metric: str) -> pandas.DataFrame:
    import pandas

    return pandas.DataFrame(rows).assign(metric=metric)


def _choice(advice: Advice, table: pandas.DataFrame) -> int | None:
    """The smallest healed plan within the tolerance; with a target, the best of those no larger than the choice."""
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
