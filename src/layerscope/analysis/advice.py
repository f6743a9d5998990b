"""Which blocks can a tuned model lose? Candidates, what each costs, and a choice that is scored on other rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.analysis.cut_figures import plot_front
from layerscope.analysis.cuts import contiguous, truncations
from layerscope.analysis.sweep import sweep
from layerscope.data import metrics
from layerscope.errors import InputError, check_seed
from layerscope.extract.exam import Exam, exam
from layerscope.progress import progress
from layerscope.surgery import LayerPlan
from layerscope.surgery.costs import Costs
from layerscope.surgery.cutting import cut, refuse

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

EVALUATIONS = 60  # of the greedy search, at most
_LEAST_ROWS = 20


@dataclass
class Advice:
    """`table` has a row a candidate; `choice` is the smallest plan within the tolerance on the rows that chose it.

    `chosen_on` is the score on those rows, `score` (with `low` and `high`) that on the other rows, to be believed.
    """

    table: pandas.DataFrame
    choice: LayerPlan
    tolerance: float
    exam: Exam

    @property
    def model(self) -> Any:
        """The whole model with the chosen blocks only, as a transformers model."""
        return cut(self.exam.model, self.choice)

    @property
    def row(self) -> pandas.Series:
        """The chosen candidate's row."""
        return self.table[self.table["chosen"]].iloc[0]

    def plot(self, path: str | Path | None = None) -> Axes:
        """Score against multiply-adds, with the Pareto front and the choice."""
        return plot_front(self.table, self.row.name, path)

    def __str__(self) -> str:
        whole, row = self.table.iloc[0], self.row
        metric = row["metric"]
        if not self.choice.removed(self.exam.model.depth):
            return f"No block can go: every smaller candidate loses more than {self.tolerance:g} {metric}.{self._mind}"
        return (
            f"Keep blocks {row['blocks']}: {metric} {row['score']:.4f} ({row['low']:.4f} to {row['high']:.4f}) on rows "
            f"that did not choose it, where the whole model has {whole['score']:.4f}; "
            f"{row['parameters'] / whole['parameters']:.0%} of the parameters, {row['macs'] / whole['macs']:.0%} of "
            f"the multiply-adds, {row['latency_32'] / whole['latency_32']:.0%} of the time at batch 32.{self._mind}"
        )

    @property
    def _mind(self) -> str:
        """What to mind of a model that has not learned the task."""
        whole, guess = float(self.table["score"].iloc[0]), self.exam.majority
        if not whole <= guess:
            return ""
        return f" Mind that the whole model is no better than one answer to everything ({guess:.4f})."


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
) -> Advice:
    """Every truncation, every skipped span and a greedy search, with score, cost and latency; the smallest that holds.

    One half of the rows chooses: the smallest candidate whose score there is at most `tolerance` below the whole
    model's. The other half scores it, so that the reported score is not the maximum of many. Intervals are by the
    bootstrap over texts. `evaluations` bounds the greedy search.
    """
    if not tolerance >= 0:
        raise InputError(f"tolerance is {tolerance}; it must be 0 or more, such as 0.01.")
    if evaluations < 0:
        raise InputError(f"evaluations is {evaluations}; it must be 0 (no greedy search) or more.")
    check_seed(seed)
    found = exam(model, task, split=split, limit=limit, max_length=max_length)
    if len(found.examples) < _LEAST_ROWS:
        raise InputError(
            f"{found.examples.task} ({found.examples.split}) has {len(found.examples)} rows; advice needs at least "
            f"{_LEAST_ROWS}, half to choose on and half to score on."
        )
    depth = found.model.depth
    spans = [LayerPlan.skipped(depth, i, j) for i, j in contiguous(depth, max_span)]
    plans = list(dict.fromkeys([LayerPlan.truncated(depth, depth), *reversed(truncations(depth)), *spans]))
    logits = sweep(found, plans, f"cuts of {found.model.name}")
    halves = _halves(len(found.examples), seed)
    search = _Greedy(found, halves[0], evaluations)
    for plan, part in search.run(dict(zip(plans, logits, strict=True))):
        plans.append(plan)
        logits = np.concatenate([logits, part[None]])
    table = _table(found, plans, logits, halves, tolerance)
    chosen = int(np.flatnonzero(table["chosen"])[0])
    return Advice(table, plans[chosen], tolerance, found)


def _halves(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[: n // 2]), np.sort(order[n // 2 :])


class _Greedy:
    """Take out the block whose loss hurts least, again and again; choosing looks at one half of the rows only."""

    def __init__(self, found: Exam, rows: np.ndarray, evaluations: int) -> None:
        self._exam, self._rows, self._left = found, rows, evaluations

    def run(self, known: dict[LayerPlan, np.ndarray]) -> list[tuple[LayerPlan, np.ndarray]]:
        """The plans of the greedy path that are not known yet, with their logits."""
        depth = self._exam.model.depth
        current, found = LayerPlan(range(1, depth + 1)), []
        while len(current.keep) > 1:
            nexts = [LayerPlan([b for b in current.keep if b != gone]) for gone in current.keep]
            new = [plan for plan in nexts if plan not in known]
            if len(new) > self._left:
                break
            if new:
                self._left -= len(new)
                parts = sweep(self._exam, new, f"greedy search at {len(current.keep) - 1} blocks")
                known.update(zip(new, parts, strict=True))
            current = max(nexts, key=lambda plan: _order(self._exam.score(known[plan], self._rows)))
            if current in new:
                found.append((current, known[current]))
        return found


def _order(score: float) -> float:
    return -np.inf if np.isnan(score) else score


def _table(
    found: Exam,
    plans: Sequence[LayerPlan],
    logits: np.ndarray,
    halves: tuple[np.ndarray, np.ndarray],
    tolerance: float,
) -> pandas.DataFrame:
    import pandas

    model, costs = found.model, Costs(found.model)
    choosing, scoring = halves
    labels, metric = found.labels[scoring], found.task.metric
    rows = []
    with progress("latency", len(plans), "candidates") as advance:
        for plan, part in zip(plans, logits, strict=True):
            low, high = metrics.bootstrap(metric, labels, found.predictions(part)[scoring])
            rows.append(
                {
                    "plan": str(plan),
                    "blocks": _blocks(plan),
                    "removed": len(plan.removed(model.depth)),
                    "chosen_on": found.score(part, choosing),
                    "score": found.score(part, scoring),
                    "low": low,
                    "high": high,
                    "parameters": costs.parameters(plan),
                    "macs": costs.macs(plan),
                    "latency_1": costs.latency(plan, 1),
                    "latency_32": costs.latency(plan, 32),
                    "savable": _savable(found, plan),
                }
            )
            advance(1)
    table = pandas.DataFrame(rows)
    table["metric"] = metric
    table["front"] = _front(table)
    enough = table["savable"] & (table["chosen_on"] >= table["chosen_on"].iloc[0] - tolerance)
    enough.iloc[0] = True
    ranked = table[enough].sort_values(["macs", "chosen_on"], ascending=[True, False])
    table["chosen"] = table.index == ranked.index[0]
    return table


def _blocks(plan: LayerPlan) -> str:
    from layerscope.surgery.plan import spans

    return spans(plan.keep)


def _savable(found: Exam, plan: LayerPlan) -> bool:
    """Whether the plan can become a checkpoint; a head on the embeddings is for evaluation."""
    try:
        refuse(found.model, plan)
    except InputError:
        return False
    return bool(plan.keep)


def _front(table: pandas.DataFrame) -> np.ndarray:
    """Candidates that no other one beats in both the choosing score and multiply-adds."""
    score, macs = table["chosen_on"].to_numpy(), table["macs"].to_numpy()
    beaten = [
        bool(np.any((score >= s) & (macs <= m) & ((score > s) | (macs < m)))) for s, m in zip(score, macs, strict=True)
    ]
    return ~np.asarray(beaten)
