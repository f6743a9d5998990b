"""`ls.advise`: rules propose plans, every plan is evaluated, and the one that is chosen is scored on other rows.

The choice is the smallest plan within a tolerance, or the best of those that meet a target. What the evaluation will
take is estimated, and said, before it begins.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from layerscope import metrics
from layerscope.cutting.advice import Advice, all_rows_for
from layerscope.cutting.candidates import proposed, table_of
from layerscope.cutting.costs import Costs
from layerscope.cutting.curves import contiguous
from layerscope.cutting.cut import cut
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.search import EVALUATIONS, Rule, Search, checked_sizes, chosen_rules, usual_sizes
from layerscope.cutting.selection_test import (
    Comparison,
    Decision,
    Parts,
    check_confidence,
    decide,
    least_rows,
    lower_bound,
    smallest_within,
)
from layerscope.cutting.sweep import Trial, sweep
from layerscope.cutting.targets import Target, Tolerance
from layerscope.data import TaskSource
from layerscope.errors import NOTICE, InputError, ModelError, check_seed, log
from layerscope.evaluation.evaluate import make_evaluator
from layerscope.evaluation.evaluator import Evaluator
from layerscope.models.load import ModelSource

if TYPE_CHECKING:
    import pandas


_READ = 64  # texts that are tokenised to judge the length of all
_LEAST = 1.0  # seconds that the latency of a size takes, at least


@dataclass(frozen=True)
class Effort:
    """The estimated work: how many plans, how many runs of a block, and about how many seconds on this device."""

    rules: tuple[str, ...]
    plans: int
    searched: int  # plans that rules evaluate on the texts that choose, besides
    block_runs: float  # for each text, with those of the whole model
    depth: int
    rows: str  # how many, and of what
    seconds: float

    def __str__(self) -> str:
        more = f", and up to {self.searched} more while searching" if self.searched else ""
        times = self.block_runs / self.depth
        return (
            f"The rules {', '.join(self.rules)} propose about {self.plans} plans{more}. Evaluating them takes "
            f"{self.block_runs:,.0f} runs of a block for each of {self.rows}, {times:.0f} times what the whole model "
            f"takes, and about {_duration(self.seconds)} here. Fewer rules, sizes or texts (--rules, --remove, "
            "--limit) take less."
        )


def effort(search: Search, rules: Sequence[Rule], costs: Costs, *, timed: bool) -> Effort:
    """Return what evaluating the plans of these rules will take, as if nothing of it were in the store."""
    evaluator, share = search.evaluator, len(search.rows) / len(search.evaluator.examples)
    whole = LayerPlan(range(1, search.depth + 1))
    plans = list(dict.fromkeys([whole, *(plan for rule in rules for plan in rule.stand_ins(search))]))
    runs = Trial(evaluator.subject, plans).block_runs + share * sum(rule.block_runs(search) for rule in rules)
    searched = sum(rule.evaluations(search) for rule in rules)
    around, blocks = costs.around, costs.macs(whole) - costs.around
    batch = 1 if evaluator.model.device.type == "cpu" else 32
    macs = runs * blocks / search.depth + (len(plans) + share * searched) * around
    latency = costs.latency(whole, batch)
    seconds = macs * latency / (batch * costs.timed_macs(whole)) * evaluator.tokens(_READ) / costs.tokens
    if timed:
        seconds += len(search.sizes) * (_LEAST + latency * 32 / batch)
    names = tuple(rule.name for rule in rules)
    rows = f"{len(evaluator.examples):,} {evaluator.rows_are}"
    return Effort(names, len(plans), searched, runs, search.depth, rows, seconds)


def _duration(seconds: float) -> str:
    """Return seconds in the unit that reads best."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def within_tolerance(
    comparison: Comparison, plans: Sequence[LayerPlan], table: pandas.DataFrame, confidence: float
) -> tuple[Decision | None, int]:
    """Return the tests, and the place of the chosen plan: 0, the whole model, where nothing can go."""
    worth = _worths(comparison.evaluator, table)
    allowed = comparison.tolerance.allowed(table["chosen_on"].iloc[0])
    decision: Decision | None = None

    def choose(scores: list[float]) -> int | None:
        nonlocal decision
        if confidence == 0:
            return smallest_within(scores, table["macs"].tolist(), worth.iloc[0], allowed)
        sizes = (-table["removed"]).tolist()
        decision = decide(scores, sizes, comparison.changes, tolerance=comparison.limit, confidence=confidence)
        return decision.choice

    chosen = _first_that_is_cut(comparison.evaluator, plans, table, worth, choose)
    for check in decision.checks if decision is not None else ():
        table.loc[check.candidate, ["change", "change_low"]] = (
            comparison.in_metric(check.change),
            comparison.in_metric(check.low),
        )
    return decision, chosen or 0


def best_for_target(
    comparison: Comparison, plans: Sequence[LayerPlan], table: pandas.DataFrame, confidence: float, target: Target
) -> int:
    """Return the place of the plan with the best score among those that meet the target.

    The comparison is on the rows that did not choose: they bound what the chosen plan, and no other, changes.
    """
    evaluator = comparison.evaluator
    meets = [
        target.meets(len(plan.keep), row, table.iloc[0]) for plan, (_, row) in zip(plans, table.iterrows(), strict=True)
    ]
    worth = _worths(evaluator, table).where(np.asarray(meets))

    def choose(scores: list[float]) -> int | None:
        able = [place for place, score in enumerate(scores) if not math.isnan(score)]
        return max(able, key=lambda place: (scores[place], -table["macs"].iloc[place]), default=None)

    chosen = _first_that_is_cut(evaluator, plans, table, worth, choose)
    if chosen is None:
        raise InputError(_impossible(target, table, meets))
    if confidence:
        change = comparison.changes(chosen)
        bounds = change.mean, lower_bound(change, confidence)
        table.loc[chosen, ["change", "change_low"]] = [comparison.in_metric(value) for value in bounds]
    return chosen


def _worths(evaluator: Evaluator, table: pandas.DataFrame) -> pandas.Series:
    """Return the scores on the rows that choose, with their sign turned so that more is better."""
    return table["chosen_on"].map(lambda score: metrics.upward(evaluator.metric, score))


def _first_that_is_cut(
    evaluator: Evaluator,
    plans: Sequence[LayerPlan],
    table: pandas.DataFrame,
    worth: pandas.Series,
    choose: Callable[[list[float]], int | None],
) -> int | None:
    """Return the place of the plan that is chosen and can be cut, or None.

    Some plans turn out only here to be impossible; such a one is no longer a candidate, and the choice is made again.
    """
    while True:
        chosen = choose(worth.where(table["savable"] & (table["removed"] > 0) & (worth > -math.inf)).tolist())
        if chosen is None or _is_cut(evaluator, plans[chosen]):
            return chosen
        table.loc[chosen, "savable"] = False


def _is_cut(evaluator: Evaluator, plan: LayerPlan) -> bool:
    """Return whether the plan really becomes a model that computes what it should."""
    try:
        cut(evaluator.model, plan)
    except ModelError:
        return False
    return True


def _impossible(target: Target, table: pandas.DataFrame, meets: Sequence[bool]) -> str:
    """Return the message that says why no candidate can be chosen, and what there is."""
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


_LEAST_ROWS = 20
_LONG = 300  # seconds; what takes longer is said without being asked


def advise(
    model: ModelSource,
    task: TaskSource,
    *,
    tolerance: float | str = 0.01,
    confidence: float = 0.9,
    rules: str | Sequence[str] | None = None,
    blocks: int | None = None,
    parameters: float | str | None = None,
    latency: float | str | None = None,
    remove: int | Sequence[int] | None = None,
    max_span: int | None = None,
    evaluations: int = EVALUATIONS,
    timed: bool = True,
    split: str | None = None,
    limit: int | None = None,
    max_length: int | None = None,
    seed: int = 0,
    all_rows: bool = False,
) -> Advice:
    """Find the smallest model within a tolerance, or the best one of a size, among the plans of several rules.

    Rules propose plans, and may look at texts that choose only. Every plan is evaluated exactly, all in one pass.

    Within a tolerance: one half of the rows chooses. A quarter of it picks the best candidate of each size; the rest
    tests the picks, from the largest to the smallest, and stops at the first that cannot be shown, with the confidence
    asked for, to score at most `tolerance` below the whole model. So the bound holds after the choice among many. The
    other half scores what was chosen, so that the reported score is not the maximum of many.

    With a target (`blocks`, `parameters`, `latency`): the half that chooses picks the plan with the best score among
    those that meet all that is asked, whatever it loses; the other half scores it and bounds what it loses.

    Args:
        model: A checkpoint whose head can answer the task: a folder, a hub id, `id@revision`, a GGUF file or a `Model`.
        task: A task of the registry (`layerscope tasks` lists them), a file, a folder, a hub id, or a `Task`.
        tolerance: How much of the metric may be lost: an amount, such as 0.01, or a share of the whole model's score,
            such as "5%". Of a perplexity, and of other losses, a number is a share too. A target takes its place.
        confidence: How sure it must be that no more than that is lost: at least 0.5 and below 1. Where the rows are too
            few for it, no block goes, and the advice says how many it would take. 0 takes the smallest candidate whose
            score on the half that chooses is within the tolerance, without any bound, and warns.
        rules: Where plans come from, by name: `angular`, `deepest`, `greedy`, `influence`, `last`, `random`, `spans`.
            All of them if not given, but `spans` in models of more than 12 blocks only where `max_span` is given.
        blocks: A target: how many blocks stay.
        parameters: A target: at most this many parameters: 100_000_000, "100M", or "80%" of the whole model's.
        latency: A target: at most so much time for one text of 128 tokens on this device, as it is measured: "40ms", or
            a share of the whole model's time, "80%" or 0.8.
        remove: How many blocks the plans leave out: a number or several. If not given: as a target needs; else any
            number in models of up to 12 blocks, and eight numbers up to half of the blocks in deeper ones.
        max_span: How many blocks are skipped in a row, at most, by the rules `spans`, `angular` and `deepest`.
        evaluations: How many plans the greedy search may evaluate on the rows that choose; 0 for no such search.
        timed: Measure how long every candidate takes. Without it latencies are NaN.
        split: The split; `validation` where there is one, else the only one.
        limit: Use only the first N examples.
        max_length: The longest text in tokens: what the model allows, at most 512 (running text: 2,048).
        seed: Decides which rows pick, confirm and score, and the random plans.
        all_rows: Use also the rows that the model learned from.

    Returns:
        An `Advice`: `frame` has rule, score, cost and latency of every candidate, `choice` is the plan, `model` the
        smaller model, `score` its score on the rows that did not choose it, `rules` each rule beside random plans.

    Example:
        >>> import layerscope as ls
        >>> tuned = ls.tune("garden:bert-s0", "pydocs", max_steps=2, train_limit=64, validation_limit=64, max_length=16)
        >>> advice = ls.advise(tuned.model, "pydocs", rules=["last", "angular"], limit=64, max_length=16)
        >>> advice.choice.head <= 12
        True
    """
    Tolerance.parse(tolerance, "accuracy")
    target = Target.parse(blocks, parameters, latency)
    if confidence != 0:
        check_confidence(confidence)
    if evaluations < 0:
        raise InputError(f"evaluations is {evaluations}; it must be 0 (no greedy search) or more.")
    if target.latency is not None and not timed:
        raise InputError(
            "A latency was asked for, and without timing (timed=False, --no-timed) none is measured; leave one out."
        )
    if blocks is not None and remove is not None:
        raise InputError("blocks says how many stay and remove how many go; give one of them.")
    check_seed(seed)
    chosen_rules(rules, 0)
    evaluator = make_evaluator(model, task, split=split, limit=limit, max_length=max_length, all_rows=all_rows)
    if len(evaluator.examples) < _LEAST_ROWS:
        shorter = " (running text: more text, or shorter windows by max_length)" * (evaluator.rows_are == "windows")
        raise InputError(
            f"{evaluator.examples.task} ({evaluator.examples.split}) has {len(evaluator.examples)} rows; advice needs "
            f"at least {_LEAST_ROWS}, half to choose on and half to score on{shorter}."
        )
    costs, depth = Costs(evaluator.model), evaluator.model.depth
    contiguous(depth, max_span)
    sizes = target.sizes(costs) if target else usual_sizes(depth)
    if remove is not None:
        sizes = checked_sizes(remove, depth)
    # With a target the whole half picks, since the size is given and nothing is to be confirmed.
    bounded = 0 if target else confidence
    parts = Parts.dealt(evaluator.texts, bounded, seed=seed, labels=evaluator.classes)
    search = Search(evaluator, parts.picking, sizes, max_span, evaluations, seed)
    settings = {
        "tolerance": None if target else tolerance,
        "target": str(target) or None,
        "confidence": confidence,
        "remove": list(sizes),
        "max_span": max_span,
        "evaluations": evaluations,
        "seed": seed,
    }
    wanted = chosen_rules(rules, depth, max_span)
    cost = effort(search, wanted, costs, timed=timed)
    log.log(logging.WARNING if cost.seconds > _LONG else NOTICE, "%s", cost)
    tolerated = Tolerance.parse(tolerance, evaluator.metric)
    if not target:
        _warn(evaluator, parts, tolerated, confidence)
    rules_of_plans = proposed(search, wanted)
    plans = list(rules_of_plans)
    logits = sweep(evaluator, plans, f"cuts of {evaluator.model.name}")
    table = table_of(evaluator, rules_of_plans, logits, parts, costs, timed)
    decision: Decision | None = None
    if target:
        comparison = Comparison(evaluator, logits, parts.scoring, tolerated)
        chosen = best_for_target(comparison, plans, table, confidence, target)
    else:
        comparison = Comparison(evaluator, logits, parts.confirming, tolerated)
        decision, chosen = within_tolerance(comparison, plans, table, confidence)
    table["chosen"] = table.index == chosen
    names = tuple(rule.name for rule in wanted)
    return Advice(
        table,
        plans[chosen],
        tolerance,
        confidence,
        evaluator,
        evaluator.provenance(rules=list(names), **settings),
        logits[chosen],
        parts,
        decision,
        names,
        target,
    )


def _warn(evaluator: Evaluator, parts: Parts, tolerance: Tolerance, confidence: float) -> None:
    """Warn, before anything is computed, where no bound was asked for or none is possible."""
    if confidence == 0:
        log.warning(
            "confidence is 0: the smallest candidate that looks to be within the tolerance is taken, without a bound. "
            "It is the luckiest of many, and often loses more."
        )
        return
    if evaluator.metric in metrics.LOSSES:  # how badly a row can be lost has no end
        return
    n, least = len(evaluator.examples), least_rows(tolerance.amount, confidence)
    if least is None or len(parts.confirming) < least:
        takes = "no number of rows is enough" if least is None else f"that takes {all_rows_for(least, parts, n):,} rows"
        log.warning(
            "%d rows are too few to show with %.0f %% confidence that a smaller model is within %s of the whole one, "
            "even if it answers all of them alike: %s. A larger tolerance takes fewer; confidence 0 (--confidence 0) "
            "chooses without a bound.",
            *(n, 100 * confidence, tolerance, takes),
        )
