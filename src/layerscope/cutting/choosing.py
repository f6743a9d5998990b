"""The choice among candidates: the smallest within a tolerance, or the best of those that meet a target."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from layerscope.cutting.cutting import cut
from layerscope.cutting.decision import Decision, decide, lower_bound, smallest_within
from layerscope.cutting.judging import Judge
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.targets import Target
from layerscope.data import metrics
from layerscope.errors import InputError, ModelError
from layerscope.evaluation.sitting import Sitting

if TYPE_CHECKING:
    import pandas


def within_tolerance(
    judge: Judge, plans: Sequence[LayerPlan], table: pandas.DataFrame, confidence: float
) -> tuple[Decision | None, int]:
    """The tests and the place of the plan that is chosen: 0, the whole model, where nothing can go."""
    worth = _worths(judge.sitting, table)
    allowed = judge.tolerance.allowed(table["chosen_on"].iloc[0])
    decision: Decision | None = None

    def choose(scores: list[float]) -> int | None:
        nonlocal decision
        if confidence == 0:
            return smallest_within(scores, table["macs"].tolist(), worth.iloc[0], allowed)
        sizes = (-table["removed"]).tolist()
        decision = decide(scores, sizes, judge.changes, tolerance=judge.limit, confidence=confidence)
        return decision.choice

    chosen = _first_that_is_cut(judge.sitting, plans, table, worth, choose)
    for check in decision.checks if decision is not None else ():
        table.loc[check.candidate, ["change", "change_low"]] = judge.told(check.change), judge.told(check.low)
    return decision, chosen or 0


def best_for_target(
    judge: Judge, plans: Sequence[LayerPlan], table: pandas.DataFrame, confidence: float, target: Target
) -> int:
    """The place of the plan with the best score among those that meet the target.

    The judge has the rows that did not choose: they bound what the chosen plan, and no other, changes.
    """
    sitting = judge.sitting
    meets = [
        target.meets(len(plan.keep), row, table.iloc[0]) for plan, (_, row) in zip(plans, table.iterrows(), strict=True)
    ]
    worth = _worths(sitting, table).where(np.asarray(meets))

    def choose(scores: list[float]) -> int | None:
        able = [place for place, score in enumerate(scores) if not math.isnan(score)]
        return max(able, key=lambda place: (scores[place], -table["macs"].iloc[place]), default=None)

    chosen = _first_that_is_cut(sitting, plans, table, worth, choose)
    if chosen is None:
        raise InputError(_impossible(target, table, meets))
    if confidence:
        change = judge.changes(chosen)
        bounds = change.mean, lower_bound(change, confidence)
        table.loc[chosen, ["change", "change_low"]] = [judge.told(value) for value in bounds]
    return chosen


def _worths(sitting: Sitting, table: pandas.DataFrame) -> pandas.Series:
    return table["chosen_on"].map(lambda score: metrics.upward(sitting.metric, score))


def _first_that_is_cut(
    sitting: Sitting,
    plans: Sequence[LayerPlan],
    table: pandas.DataFrame,
    worth: pandas.Series,
    choose: Callable[[list[float]], int | None],
) -> int | None:
    """What is chosen and can be cut.

    What cannot be foreseen without cutting is found out here; then it is not a candidate, and the choice is made again.
    """
    while True:
        chosen = choose(worth.where(table["savable"] & (table["removed"] > 0) & (worth > -math.inf)).tolist())
        if chosen is None or _is_cut(sitting, plans[chosen]):
            return chosen
        table.loc[chosen, "savable"] = False


def _is_cut(sitting: Sitting, plan: LayerPlan) -> bool:
    """Whether the plan really becomes a model that computes what it should."""
    try:
        cut(sitting.model, plan)
    except ModelError:
        return False
    return True


def _impossible(target: Target, table: pandas.DataFrame, meets: Sequence[bool]) -> str:
    """Why no candidate can be chosen, and what there is."""
    smaller = table[table["removed"] > 0]
    if any(meets):
        return (
            f"{sum(meets)} of {len(smaller)} plans {target}, and none of them can be saved as a checkpoint with a "
            "score; other rules (--rules, rules=) may find some that can."
        )
    least = f"{smaller['parameters'].min():,} parameters"
    if smaller["latency_1_ms"].notna().any():
        least += f" and {smaller['latency_1_ms'].min():.2f} ms for a text"
    return (
        f"No plan of {len(smaller)} would {target}; the least of them are {least}. Ask for more, or let more blocks go "
        "(--remove, remove=)."
    )
