"""The plans of several rules: which rules found each, what each scores on which rows, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from layerscope.cutting.costs import Costs
from layerscope.cutting.cutting import can_be_built
from layerscope.cutting.decision import Parts
from layerscope.cutting.plan import LayerPlan, spans
from layerscope.cutting.rule import Rule
from layerscope.cutting.search import Search
from layerscope.data import metrics
from layerscope.evaluation.sitting import Sitting
from layerscope.progress import progress

if TYPE_CHECKING:
    import pandas

_FLOOR = "random"


def proposed(search: Search, rules: Iterable[Rule]) -> dict[LayerPlan, tuple[str, ...]]:
    """Every plan with the rules that found it; the whole model, which no rule found, is the first."""
    found: dict[LayerPlan, tuple[str, ...]] = {LayerPlan(range(1, search.depth + 1)): ()}
    for rule in rules:
        for plan in rule.plans(search):
            found[plan] = (*found.get(plan, ()), rule.name)
    return found


def table_of(
    sitting: Sitting,
    plans: dict[LayerPlan, tuple[str, ...]],
    logits: np.ndarray,
    parts: Parts,
    costs: Costs,
    timed: bool,
) -> pandas.DataFrame:
    """One row per plan."""
    import pandas

    model, scoring, rows = sitting.model, parts.scoring, []
    with progress("latency" if timed else "scores", len(plans), "candidates") as advance:
        for (plan, rules), part in zip(plans.items(), logits, strict=True):
            low, high = sitting.interval(part, scoring)
            rows.append(
                {
                    "plan": str(plan),
                    "rule": ", ".join(rules),
                    "blocks": spans(plan.keep),
                    "removed": len(plan.removed(model.depth)),
                    "chosen_on": sitting.value(part, parts.picking),
                    "change": math.nan,
                    "change_low": math.nan,
                    "score": sitting.value(part, scoring),
                    "low": low,
                    "high": high,
                    "parameters": costs.parameters(plan),
                    "macs": costs.macs(plan),
                    "latency_1_ms": 1000 * costs.latency(plan, 1) if timed else math.nan,
                    "latency_32_ms": 1000 * costs.latency(plan, 32) if timed else math.nan,
                    "savable": bool(plan.keep) and can_be_built(model, plan),
                }
            )
            advance(1)
    table = pandas.DataFrame(rows)
    table["metric"] = sitting.metric
    table["front"] = front(table)
    return table


def by_rule(table: pandas.DataFrame, rules: Sequence[str]) -> pandas.DataFrame:
    """Each rule's best plan of each size, beside the middle one of the random plans of that size.

    A rule's best plan is the one with the best score on the rows that choose (of the random ones it is the middle one);
    `score` is on the others, and so is `random`, which is NaN where no random plan was tried. `lost` says that the
    rule's plan is worse than that.
    """
    import pandas

    metric, rows = str(table["metric"].iloc[0]), []
    candidates = [(row, row["rule"].split(", ")) for row in table.to_dict("records")]
    for rule in rules:
        own = [row for row, names in candidates if rule in names]
        for removed in sorted({int(row["removed"]) for row in own}):
            group = [row for row in own if row["removed"] == removed]
            drawn = [row for row, names in candidates if _FLOOR in names and row["removed"] == removed]
            floor = float(np.median([row["score"] for row in drawn])) if drawn else math.nan
            best = max(group, key=lambda row: metrics.upward(metric, row["chosen_on"]))
            if rule == _FLOOR and not math.isnan(floor):
                best = group[int(np.argmin([abs(row["score"] - floor) for row in group]))]
            worse = metrics.upward(metric, best["score"]) < metrics.upward(metric, floor)
            lost = rule != _FLOOR and not math.isnan(floor) and worse
            known = {"blocks": best["blocks"], "plans": len(group), "score": best["score"], "random": floor}
            rows.append({"rule": rule, "removed": removed, **known, "lost": lost})
    return pandas.DataFrame(rows, columns=["rule", "removed", "blocks", "plans", "score", "random", "lost"])


def in_short(rules: pandas.DataFrame, metric: str) -> pandas.DataFrame:
    """What `by_rule` says in one row per rule: at how many sizes its plan is the best one, and worse than random ones.

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
    """Which candidates have the best score, on the rows that choose, of those that leave out as many blocks."""
    metric = str(table["metric"].iloc[0])
    worth = table["chosen_on"].map(lambda value: metrics.upward(metric, value))
    return np.asarray(table.index.isin(worth.groupby(table["removed"]).idxmax()))


def front(table: pandas.DataFrame, column: str = "chosen_on") -> np.ndarray:
    """Candidates that no other one beats in both multiply-adds and a score: by default that of the rows that choose."""
    metric, macs = str(table["metric"].iloc[0]), table["macs"].to_numpy()
    score = np.asarray([metrics.upward(metric, value) for value in table[column]])
    beaten = [
        bool(np.any((score >= s) & (macs <= m) & ((score > s) | (macs < m)))) for s, m in zip(score, macs, strict=True)
    ]
    return ~np.asarray(beaten)
