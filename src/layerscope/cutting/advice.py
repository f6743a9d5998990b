"""Which blocks can a tuned model lose? Candidates, what each costs, and a choice that is scored on other rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.cutting.advice_results import Advice, all_rows_for
from layerscope.cutting.costs import Costs
from layerscope.cutting.curves import contiguous, truncations
from layerscope.cutting.cutting import can_be_built, cut
from layerscope.cutting.decision import Decision, Parts, check_confidence, decide, least_rows, smallest_within
from layerscope.cutting.greedy import Greedy
from layerscope.cutting.judging import Judge
from layerscope.cutting.plan import LayerPlan, spans
from layerscope.cutting.sweep import sweep
from layerscope.cutting.tolerance import Tolerance
from layerscope.data import metrics
from layerscope.errors import InputError, ModelError, check_seed, log
from layerscope.evaluation.exam import exam
from layerscope.evaluation.sitting import Sitting
from layerscope.progress import progress

if TYPE_CHECKING:
    import pandas


EVALUATIONS = 60  # of the greedy search, at most
_LEAST_ROWS = 20


def advise(
    model: Any,
    task: Any,
    *,
    tolerance: float | str = 0.01,
    confidence: float = 0.9,
    split: str | None = None,
    limit: int | None = None,
    max_span: int | None = None,
    evaluations: int = EVALUATIONS,
    max_length: int | None = None,
    seed: int = 0,
    all_rows: bool = False,
) -> Advice:
    """Find the smallest model within a tolerance, among every truncation, every skipped span and a greedy search.

    One half of the rows chooses. A quarter of it picks the best candidate of each size; the rest tests the picks, from
    the largest to the smallest, and stops at the first that cannot be shown, with the confidence asked for, to score at
    most `tolerance` below the whole model. So the bound holds after the choice among many. The other half scores what
    was chosen, so that the reported score is not the maximum of many. Intervals are by the bootstrap over texts.

    Args:
        model: A model argument.
        task: The task that it is scored on, as in `ls.evaluate`.
        tolerance: How much of the metric may be lost: an amount, such as 0.01, or a share of the whole model's score,
            such as "5%". Of a perplexity, and of other losses, a number is a share too.
        confidence: How sure it must be that no more than that is lost, from 0.5 on and below 1. Where the rows are too
            few for it, no block goes, and the advice says how many it would take. 0 takes the smallest candidate whose
            score on the half that chooses is within the tolerance, without any bound, and warns.
        split: The split; `validation` where there is one.
        limit: Only the first so many examples.
        max_span: How many blocks are skipped in a row, at most.
        evaluations: How many further plans the greedy search may evaluate.
        max_length: The longest text in tokens: as the model allows, at most 512.
        seed: Decides which rows pick, confirm and score.
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
    Tolerance.parse(tolerance, "accuracy")
    if confidence != 0:
        check_confidence(confidence)
    if evaluations < 0:
        raise InputError(f"evaluations is {evaluations}; it must be 0 (no greedy search) or more.")
    check_seed(seed)
    sitting = exam(model, task, split=split, limit=limit, max_length=max_length, all_rows=all_rows)
    if len(sitting.examples) < _LEAST_ROWS:
        raise InputError(
            f"{sitting.examples.task} ({sitting.examples.split}) has {len(sitting.examples)} rows; advice needs at "
            f"least {_LEAST_ROWS}, half to choose on and half to score on."
        )
    parts, tolerated = _parts(sitting, confidence, seed), Tolerance.parse(tolerance, sitting.metric)
    _warn(sitting, parts, tolerated, confidence)
    depth = sitting.model.depth
    skips = [LayerPlan.skipped(depth, i, j) for i, j in contiguous(depth, max_span)]
    plans = list(dict.fromkeys([LayerPlan.truncated(depth, depth), *reversed(truncations(depth)), *skips]))
    logits = sweep(sitting, plans, f"cuts of {sitting.model.name}")
    search = Greedy(sitting, parts.picking, evaluations)
    for plan, part in search.run(dict(zip(plans, logits, strict=True))):
        plans.append(plan)
        logits = np.concatenate([logits, part[None]])
    table = _table(sitting, plans, logits, parts)
    judge = Judge(sitting, logits, parts.confirming, tolerated)
    decision, chosen = _choice(judge, plans, table, confidence)
    for check in decision.checks if decision is not None else ():
        table.loc[check.candidate, ["change", "change_low"]] = judge.told(check.change), judge.told(check.low)
    table["chosen"] = table.index == chosen
    settings = {"tolerance": tolerance, "confidence": confidence, "max_span": max_span, "evaluations": evaluations}
    about = sitting.provenance(**settings, seed=seed)
    return Advice(table, plans[chosen], tolerance, confidence, sitting, about, logits[chosen], parts, decision)


def _parts(sitting: Sitting, confidence: float, seed: int) -> Parts:
    """Which rows pick, confirm and score; each part has its share of every class."""
    return Parts.dealt(sitting.texts, confidence, seed=seed, labels=sitting.classes)


def _warn(sitting: Sitting, parts: Parts, tolerance: Tolerance, confidence: float) -> None:
    """Say, before anything is computed, where no bound was asked for or none can be had."""
    if confidence == 0:
        log.warning(
            "confidence is 0: the smallest candidate that looks to be within the tolerance is taken, without a bound. "
            "It is the luckiest of many, and often loses more."
        )
        return
    if sitting.metric in metrics.LOSSES:  # how badly a row can be lost has no end
        return
    n, least = len(sitting.examples), least_rows(tolerance.amount, confidence)
    if least is None or len(parts.confirming) < least:
        takes = "no number of rows is enough" if least is None else f"that takes {all_rows_for(least, parts, n):,} rows"
        log.warning(
            "%d rows are too few to show with %.0f %% confidence that a smaller model is within %s of the whole one, "
            "even if it answers all of them alike: %s. A larger tolerance takes fewer; confidence 0 (--confidence 0) "
            "chooses without a bound.",
            *(n, 100 * confidence, tolerance, takes),
        )


def _choice(
    judge: Judge, plans: Sequence[LayerPlan], table: pandas.DataFrame, confidence: float
) -> tuple[Decision | None, int]:
    """The tests and the place of the plan that is chosen: 0, the whole model, where nothing can go.

    What cannot be foreseen without cutting is found out here; then it is no candidate, and the choice is made again.
    """
    sitting = judge.sitting
    worth = table["chosen_on"].map(lambda score: metrics.upward(sitting.metric, score))
    allowed = judge.tolerance.allowed(table["chosen_on"].iloc[0])
    while True:
        scores = worth.where(table["savable"] & (table["removed"] > 0) & (worth > -math.inf)).tolist()
        decision = None
        if confidence == 0:
            chosen = smallest_within(scores, table["macs"].tolist(), worth.iloc[0], allowed)
        else:
            sizes = (-table["removed"]).tolist()
            decision = decide(scores, sizes, judge.changes, tolerance=judge.limit, confidence=confidence)
            chosen = decision.choice
        if chosen is None:
            return decision, 0
        if _is_cut(sitting, plans[chosen]):
            return decision, chosen
        table.loc[chosen, "savable"] = False


def _table(sitting: Sitting, plans: Sequence[LayerPlan], logits: np.ndarray, parts: Parts) -> pandas.DataFrame:
    import pandas

    model, costs = sitting.model, Costs(sitting.model)
    scoring, metric = parts.scoring, sitting.metric
    rows = []
    with progress("latency", len(plans), "candidates") as advance:
        for plan, part in zip(plans, logits, strict=True):
            low, high = sitting.interval(part, scoring)
            rows.append(
                {
                    "plan": str(plan),
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
                    "latency_1_ms": 1000 * costs.latency(plan, 1),
                    "latency_32_ms": 1000 * costs.latency(plan, 32),
                    "savable": _savable(sitting, plan),
                }
            )
            advance(1)
    table = pandas.DataFrame(rows)
    table["metric"] = metric
    table["front"] = _front(table)
    return table


def _is_cut(sitting: Sitting, plan: LayerPlan) -> bool:
    """Whether the plan really becomes a model that computes what it should."""
    try:
        cut(sitting.model, plan)
    except ModelError:
        return False
    return True


def _savable(sitting: Sitting, plan: LayerPlan) -> bool:
    """Whether the plan can become a checkpoint; a head on the embeddings is for evaluation."""
    return bool(plan.keep) and can_be_built(sitting.model, plan)


def _front(table: pandas.DataFrame) -> np.ndarray:
    """Candidates that no other one beats in both the choosing score and multiply-adds."""
    metric, macs = str(table["metric"].iloc[0]), table["macs"].to_numpy()
    score = np.asarray([metrics.upward(metric, value) for value in table["chosen_on"]])
    beaten = [
        bool(np.any((score >= s) & (macs <= m) & ((score > s) | (macs < m)))) for s, m in zip(score, macs, strict=True)
    ]
    return ~np.asarray(beaten)
