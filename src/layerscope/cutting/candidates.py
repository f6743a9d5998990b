"""The table of candidates: which rules found each plan, what it scores on which rows, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from layerscope import metrics
from layerscope.cutting.costs import Costs
from layerscope.cutting.cut import Built, can_be_built
from layerscope.cutting.plan import LayerPlan, spans
from layerscope.cutting.search import Rule, Search
from layerscope.cutting.selection_test import Parts
from layerscope.evaluation.evaluator import Evaluator
from layerscope.models.fingerprint import hashed_once
from layerscope.progress import progress

if TYPE_CHECKING:
    import pandas

_FLOOR = "random"


def proposed(search: Search, rules: Iterable[Rule]) -> dict[LayerPlan, tuple[str, ...]]:
    """Return every plan with the rules that found it; the whole model, which no rule proposes, is the first."""
    found: dict[LayerPlan, tuple[str, ...]] = {LayerPlan(range(1, search.depth + 1)): ()}
    with hashed_once():  # every step of a search has a key
        for rule in rules:
            for plan in rule.plans(search):
                found[plan] = (*found.get(plan, ()), rule.name)
    return found


def table_of(
    evaluator: Evaluator,
    plans: dict[LayerPlan, tuple[str, ...]],
    logits: np.ndarray,
    parts: Parts,
    costs: Costs,
    timed: bool,
) -> pandas.DataFrame:
    """Return the table of candidates, with one row for each plan."""
    import pandas

    model, scoring, rows = evaluator.model, parts.scoring, []
    built: Built = {}
    with progress("latency" if timed else "scores", len(plans), "candidates") as advance:
        for (plan, rules), part in zip(plans.items(), logits, strict=True):
            low, high = evaluator.interval(part, scoring)
            rows.append(
                {
                    "plan": str(plan),
                    "rule": ", ".join(rules),
                    "blocks": spans(plan.keep),
                    "removed": len(plan.removed(model.depth)),
                    "chosen_on": evaluator.value(part, parts.picking),
                    "change": math.nan,
                    "change_low": math.nan,
                    "score": evaluator.value(part, scoring),
                    "low": low,
                    "high": high,
                    "parameters": costs.parameters(plan),
                    "macs": costs.macs(plan),
                    "latency_1_ms": 1000 * costs.latency(plan, 1) if timed else math.nan,
                    "latency_32_ms": 1000 * costs.latency(plan, 32) if timed else math.nan,
                    "savable": bool(plan.keep) and can_be_built(model, plan, built),
                }
            )
            advance(1)
    table = pandas.DataFrame(rows)
    table["metric"] = evaluator.metric
    table["front"] = front(table)
    return table


def by_rule(table: pandas.DataFrame, rules: Sequence[str]) -> pandas.DataFrame:
    """Return each rule's best plan of each size, beside the middle one of the random plans of that size.

    A rule's best plan is the one with the best score on the rows that choose (of the random ones it is the middle one);
    `score` is on the others, and so is `random`, which is NaN where no random plan was tried. `lost` says that the
    rule's plan is worse than that.
    """
    import pandas

    metric, rows = str(table["metric"].iloc[0]), []
    candidates = [(row, row["rule"].split(", ")) for row in table.to_dict("records")]
    for rule in rules:
        found = [row for row, names in candidates if rule in names]
        for removed in sorted({int(row["removed"]) for row in found}):
            group = [row for row in found if row["removed"] == removed]
            drawn = [row for row, names in candidates if _FLOOR in names and row["removed"] == removed]
            floor = float(np.median([row["score"] for row in drawn])) if drawn else math.nan
            best = max(group, key=lambda row: metrics.upward(metric, row["chosen_on"]))
            if rule == _FLOOR and not math.isnan(floor):
                best = group[int(np.argmin([abs(row["score"] - floor) for row in group]))]
            worse = metrics.upward(metric, best["score"]) < metrics.upward(metric, floor)
            lost = rule != _FLOOR and not math.isnan(floor) and worse
            rows.append(
                {
                    "rule": rule,
                    "removed": removed,
                    "blocks": best["blocks"],
                    "plans": len(group),
                    "score": best["score"],
                    "random": floor,
                    "lost": lost,
                }
            )
    return pandas.DataFrame(rows, columns=["rule", "removed", "blocks", "plans", "score", "random", "lost"])


def in_short(rules: pandas.DataFrame, metric: str) -> pandas.DataFrame:
    """Return `by_rule` in one row per rule: at how many sizes its plan is the best, and worse than random ones.

    Rules whose plans have the same score at a size are the best there together.
    """
    import pandas

    worth = rules["score"].map(lambda value: metrics.upward(metric, value))
    ahead = (worth == worth.groupby(rules["removed"]).transform("max")) & (worth > -math.inf)
    rows = []
    for rule, part in rules.assign(ahead=ahead).groupby("rule", sort=False):
        floor = rule != _FLOOR and bool(part["random"].notna().any())
        counts = {"plans": int(part["plans"].sum()), "sizes": len(part), "best_at": int(part["ahead"].sum())}
        rows.append({"rule": rule, **counts, "worse_than_random_at": int(part["lost"].sum()) if floor else None})
    return pandas.DataFrame(rows, columns=["rule", "plans", "sizes", "best_at", "worse_than_random_at"], dtype=object)


def best_of_each_size(table: pandas.DataFrame) -> np.ndarray:
    """Return a mask of the candidates with the best score, on the rows that choose, of their number of blocks."""
    metric = str(table["metric"].iloc[0])
    worth = table["chosen_on"].map(lambda value: metrics.upward(metric, value))
    return np.asarray(table.index.isin(worth.groupby(table["removed"]).idxmax()))


def front(table: pandas.DataFrame, column: str = "chosen_on") -> np.ndarray:
    """Return a mask of the candidates that no other one beats in both multiply-adds and the score in a column."""
    metric, macs = str(table["metric"].iloc[0]), table["macs"].to_numpy()
    score = np.asarray([metrics.upward(metric, value) for value in table[column]])
    beaten = [
        bool(np.any((score >= s) & (macs <= m) & ((score > s) | (macs < m)))) for s, m in zip(score, macs, strict=True)
    ]
    return ~np.asarray(beaten)
