"""Which blocks can a tuned model lose? Candidates, what each costs, and a choice that is scored on other rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.cutting.costs import Costs
from layerscope.cutting.curves import contiguous, truncations
from layerscope.cutting.cutting import can_be_built, cut
from layerscope.cutting.plan import LayerPlan, spans
from layerscope.cutting.sweep import sweep
from layerscope.data import metrics
from layerscope.drawing.figures.scatter import Point, ScatterFigure
from layerscope.drawing.words import caveat, numbers
from layerscope.errors import InputError, ModelError, check_seed
from layerscope.evaluation.exam import Exam, exam
from layerscope.evaluation.score import Score
from layerscope.models import load
from layerscope.progress import progress
from layerscope.results import Result

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure

EVALUATIONS = 60  # of the greedy search, at most
HELD_OUT = "the half of the rows that did not choose the blocks"
_LEAST_ROWS = 20


@dataclass(repr=False)
class Advice(Result):
    """`frame` has one row per candidate; `choice` is the smallest plan within the tolerance on the rows that chose it.

    In the table `chosen_on` is the score on those rows, `score` (with `low` and `high`) that on the other rows, to be
    believed.

    Attributes:
        choice: The chosen `LayerPlan`.
        tolerance: How much of the metric might be lost.
        exam: The model, the task and the texts that it was scored on.
        answers: The logits of the chosen plan, (n, classes).
        held_out: The rows that did not choose.

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
    tolerance: float
    exam: Exam
    provenance: Mapping[str, Any]
    answers: np.ndarray  # of the chosen plan, (n, classes)
    held_out: np.ndarray  # the rows that did not choose

    @property
    def frame(self) -> pandas.DataFrame:
        """Columns: plan, blocks, removed, chosen_on, score, low, high, parameters, macs, latency_1, latency_32,
        savable, metric, front, chosen."""
        return self.candidates

    @cached_property
    def model(self) -> Any:
        """The whole model with the chosen blocks only, as a transformers model."""
        return cut(self.exam.model, self.choice)

    @cached_property
    def score(self) -> Score:
        """The chosen model's score on the rows that did not choose it, for its card: `ls.save(.., scores=..)`."""
        length, note = self.exam.reading.max_length, self.exam.note
        smaller = Exam(load(self.model), self.exam.task, self.exam.examples, length, note=note)
        return smaller.score(self.answers, self.held_out, HELD_OUT)

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
            place = (float(row["macs"]) / most, float(row["score"]))
            points.append(Point(*place, f"blocks {row['blocks']}", series, float(row["low"]), float(row["high"])))
        n = len(self.exam.examples)
        drawn = ScatterFigure(
            title="What each smaller model costs and scores",
            shows=f"{metric} against multiply-adds for every candidate: truncations, skipped spans and a greedy "
            "search.",
            reading="Left is cheaper, up is better. The line joins the candidates that no other beats on the rows that "
            "choose; the chosen one is the cheapest within the tolerance there. Scores shown are on the other rows.",
            caveat=caveat("The interval of a score is a bootstrap over the texts that did not choose.", n // 2),
            points=tuple(sorted(points, key=lambda p: p.series == "chosen")),
            x_name="multiply-adds, share of the whole model",
            y_name=f"{metric} on rows that did not choose",
            joined=("front",),
            stressed=("chosen",),
            n=n,
        )
        return [
            drawn,
            numbers("Every candidate", "What each keeps, scores and costs.", table.sort_values("macs")),
        ]

    def findings(self) -> list[str]:
        return [str(self)]

    def __str__(self) -> str:
        whole, row = self.frame.iloc[0], self.row
        metric = row["metric"]
        smaller = self.frame[self.frame["removed"] > 0]
        if not smaller["savable"].any():
            return f"No block can go: no smaller model can be saved as a checkpoint.{self._warning}"
        if not self.choice.removed(self.exam.model.depth):
            return (
                f"No block can go: every smaller candidate loses more than {self.tolerance:g} {metric}.{self._warning}"
            )
        return (
            f"Keep blocks {row['blocks']}: {metric} {row['score']:.4f} ({row['low']:.4f} to {row['high']:.4f}) on rows "
            f"that did not choose it, where the whole model has {whole['score']:.4f}; "
            f"{row['parameters'] / whole['parameters']:.0%} of the parameters, {row['macs'] / whole['macs']:.0%} of "
            f"the multiply-adds, {row['latency_32'] / whole['latency_32']:.0%} of the time at batch 32.{self._warning}"
        )

    @property
    def _warning(self) -> str:
        """A word on a model that has not learned the task."""
        whole, guess = float(self.frame["score"].iloc[0]), self.exam.majority
        if not whole <= guess:
            return ""
        return f" Note that the whole model is no better than one answer to everything ({guess:.4f})."

    def __repr__(self) -> str:
        return f"Advice({self.choice}, {len(self.frame)} candidates)"


def advise(
    model: Any,
    task: Any,
    *,
    tolerance: float = 0.01,
    split: str | None = None,
    limit: int | None = None,
    max_span: int | None = None,
    evaluations: int = EVALUATIONS,
    max_length: int | None = None,
    seed: int = 0,
    all_rows: bool = False,
) -> Advice:
    """Find the smallest model within a tolerance, among every truncation, every skipped span and a greedy search.

    One half of the rows chooses: the smallest candidate whose score there is at most `tolerance` below the whole
    model's. The other half scores it, so that the reported score is not the maximum of many. Intervals are by the
    bootstrap over texts.

    Args:
        model: A model with a head.
        task: The task that it is scored on.
        tolerance: How much of the metric may be lost.
        split: The split; `validation` where there is one.
        limit: Only the first so many examples.
        max_span: How many blocks are skipped in a row, at most.
        evaluations: How many further plans the greedy search may evaluate.
        max_length: The longest text in tokens: as the model allows, at most 512.
        seed: Decides which half of the rows chooses.
        all_rows: Use also the rows that the model learned from.

    Returns:
        An `Advice`: `frame` has score, cost and latency of every candidate, `choice` is the plan, `model` the smaller
        model, `score` its score on the rows that did not choose it.

    Example:
        >>> import layerscope as ls
        >>> tuned = ls.tune("garden:bert-s0", "pydocs", max_steps=2, train_limit=64, validation_limit=64, max_length=16)
        >>> advice = ls.advise(tuned.model, "pydocs", max_span=1, evaluations=0, limit=64, max_length=16)
        >>> advice.choice.head <= 12
        True
    """
    if not tolerance >= 0:
        raise InputError(f"tolerance is {tolerance}; it must be 0 or more, such as 0.01.")
    if evaluations < 0:
        raise InputError(f"evaluations is {evaluations}; it must be 0 (no greedy search) or more.")
    check_seed(seed)
    sitting = exam(model, task, split=split, limit=limit, max_length=max_length, all_rows=all_rows)
    if len(sitting.examples) < _LEAST_ROWS:
        raise InputError(
            f"{sitting.examples.task} ({sitting.examples.split}) has {len(sitting.examples)} rows; advice needs at "
            f"least {_LEAST_ROWS}, half to choose on and half to score on."
        )
    depth = sitting.model.depth
    skips = [LayerPlan.skipped(depth, i, j) for i, j in contiguous(depth, max_span)]
    plans = list(dict.fromkeys([LayerPlan.truncated(depth, depth), *reversed(truncations(depth)), *skips]))
    logits = sweep(sitting, plans, f"cuts of {sitting.model.name}")
    halves = _halves(len(sitting.examples), seed)
    search = _Greedy(sitting, halves[0], evaluations)
    for plan, part in search.run(dict(zip(plans, logits, strict=True))):
        plans.append(plan)
        logits = np.concatenate([logits, part[None]])
    table = _table(sitting, plans, logits, halves, tolerance)
    chosen = int(np.flatnonzero(table["chosen"])[0])
    settings = {"tolerance": tolerance, "max_span": max_span, "evaluations": evaluations, "seed": seed}
    return Advice(table, plans[chosen], tolerance, sitting, sitting.provenance(**settings), logits[chosen], halves[1])


def _halves(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[: n // 2]), np.sort(order[n // 2 :])


class _Greedy:
    """Take out the block whose loss hurts least, again and again; choosing looks at one half of the rows only."""

    def __init__(self, sitting: Exam, rows: np.ndarray, evaluations: int) -> None:
        self._exam, self._rows, self._left = sitting, rows, evaluations

    def run(self, known: dict[LayerPlan, np.ndarray]) -> list[tuple[LayerPlan, np.ndarray]]:
        """The plans of the greedy path that are not known yet, with their logits."""
        depth = self._exam.model.depth
        current, path = LayerPlan(range(1, depth + 1)), []
        while len(current.keep) > 1:
            nexts = [LayerPlan([b for b in current.keep if b != gone]) for gone in current.keep]
            new = [plan for plan in nexts if plan not in known]
            if len(new) > self._left:
                break
            if new:
                self._left -= len(new)
                parts = sweep(self._exam, new, f"greedy search at {len(current.keep) - 1} blocks")
                known.update(zip(new, parts, strict=True))
            current = max(nexts, key=lambda plan: _order(self._exam.value(known[plan], self._rows)))
            if current in new:
                path.append((current, known[current]))
        return path


def _order(score: float) -> float:
    return -np.inf if np.isnan(score) else score


def _table(
    sitting: Exam,
    plans: Sequence[LayerPlan],
    logits: np.ndarray,
    halves: tuple[np.ndarray, np.ndarray],
    tolerance: float,
) -> pandas.DataFrame:
    import pandas

    model, costs = sitting.model, Costs(sitting.model)
    choosing, scoring = halves
    labels, metric = sitting.labels[scoring], sitting.task.metric
    rows = []
    with progress("latency", len(plans), "candidates") as advance:
        for plan, part in zip(plans, logits, strict=True):
            low, high = metrics.bootstrap(metric, labels, sitting.predictions(part)[scoring])
            rows.append(
                {
                    "plan": str(plan),
                    "blocks": spans(plan.keep),
                    "removed": len(plan.removed(model.depth)),
                    "chosen_on": sitting.value(part, choosing),
                    "score": sitting.value(part, scoring),
                    "low": low,
                    "high": high,
                    "parameters": costs.parameters(plan),
                    "macs": costs.macs(plan),
                    "latency_1": costs.latency(plan, 1),
                    "latency_32": costs.latency(plan, 32),
                    "savable": _savable(sitting, plan),
                }
            )
            advance(1)
    table = pandas.DataFrame(rows)
    table["metric"] = metric
    table["front"] = _front(table)
    enough = table["savable"] & (table["chosen_on"] >= table["chosen_on"].iloc[0] - tolerance)
    enough.iloc[0] = True
    ranked = table[enough].sort_values(["macs", "chosen_on"], ascending=[True, False])
    for place in ranked.index:
        if place == 0 or _is_cut(sitting, plans[place]):
            break
        table.loc[place, "savable"] = False  # what it computes cannot be foreseen without cutting
    table["chosen"] = table.index == place
    return table


def _is_cut(sitting: Exam, plan: LayerPlan) -> bool:
    """Whether the plan really becomes a model that computes what it should."""
    try:
        cut(sitting.model, plan)
    except ModelError:
        return False
    return True


def _savable(sitting: Exam, plan: LayerPlan) -> bool:
    """Whether the plan can become a checkpoint; a head on the embeddings is for evaluation."""
    return bool(plan.keep) and can_be_built(sitting.model, plan)


def _front(table: pandas.DataFrame) -> np.ndarray:
    """Candidates that no other one beats in both the choosing score and multiply-adds."""
    score, macs = table["chosen_on"].to_numpy(), table["macs"].to_numpy()
    beaten = [
        bool(np.any((score >= s) & (macs <= m) & ((score > s) | (macs < m)))) for s, m in zip(score, macs, strict=True)
    ]
    return ~np.asarray(beaten)
