"""Which blocks can a model lose? Rules propose, every plan is evaluated, and the choice is scored on other rows."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from layerscope.cutting.advice_results import Advice, all_rows_for
from layerscope.cutting.candidates import proposed, table_of
from layerscope.cutting.choosing import best_for_target, within_tolerance
from layerscope.cutting.costs import Costs
from layerscope.cutting.curves import contiguous
from layerscope.cutting.decision import Decision, Parts, check_confidence, least_rows
from layerscope.cutting.effort import Effort, effort
from layerscope.cutting.judging import Judge
from layerscope.cutting.rule import Rule, chosen_rules
from layerscope.cutting.search import EVALUATIONS, Search, checked_sizes, usual_sizes
from layerscope.cutting.sweep import sweep
from layerscope.cutting.targets import Target
from layerscope.cutting.tolerance import Tolerance
from layerscope.data import metrics
from layerscope.errors import InputError, check_seed, log
from layerscope.evaluation.exam import exam
from layerscope.evaluation.sitting import Sitting

_LEAST_ROWS = 20
_LONG = 300  # seconds; what takes longer is said without being asked


def advise(
    model: Any,
    task: Any,
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
        model: A model, or what `ls.load` takes.
        task: The task that it is scored on, as in `ls.evaluate`.
        tolerance: How much of the metric may be lost: an amount, such as 0.01, or a share of the whole model's score,
            such as "5%". Of a perplexity, and of other losses, a number is a share too. A target takes its place.
        confidence: How sure it must be that no more than that is lost: at least 0.5 and below 1. Where the rows are too
            few for it, no block goes, and the advice says how many it would take. 0 takes the smallest candidate whose
            score on the half that chooses is within the tolerance, without any bound, and warns.
        rules: Where plans come from, by name: `angular`, `deepest`, `greedy`, `influence`, `last`, `random`, `spans`.
            All of them if not given, but `spans` in models of more than 12 blocks only where `max_span` is given.
        blocks: A target: how many blocks stay.
        parameters: A target: at most this many parameters: 100_000_000, "100M", or "80%" of the whole model's.
        latency: The target of at most so much time for one text of 128 tokens on this device, as it is measured: a
            share of the whole model's, "80%" or 0.8, or "40ms".
        remove: How many blocks the plans leave out: a number or several. If not given: as a target needs; else any
            number in models of up to 12 blocks, and eight numbers up to half of the blocks in deeper ones.
        max_span: How many blocks are skipped in a row, at most, by the rules `spans`, `angular` and `deepest`.
        evaluations: How many plans the greedy search may evaluate on the rows that choose; 0 for no such search.
        timed: Measure how long every candidate takes. Without it latencies are NaN.
        split: The split; `validation` where there is one.
        limit: Use only the first N examples.
        max_length: The longest text in tokens: as the model allows, at most 512.
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
    given = {key: value for key, value in locals().items() if key not in ("model", "task")}
    consultation = consult(model, task, **given)
    cost = consultation.effort
    log.log(logging.WARNING if cost.seconds > _LONG else logging.INFO, "%s", cost)
    return consultation.advice()


def consult(
    model: Any,
    task: Any,
    *,
    tolerance: float | str,
    confidence: float,
    rules: str | Sequence[str] | None,
    blocks: int | None,
    parameters: float | str | None,
    latency: float | str | None,
    remove: int | Sequence[int] | None,
    max_span: int | None,
    evaluations: int,
    timed: bool,
    split: str | None,
    limit: int | None,
    max_length: int | None,
    seed: int,
    all_rows: bool,
) -> Consultation:
    """What `advise` was asked, checked, before any plan is evaluated."""
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
    sitting = exam(model, task, split=split, limit=limit, max_length=max_length, all_rows=all_rows)
    if len(sitting.examples) < _LEAST_ROWS:
        shorter = " (running text: more text, or shorter windows by max_length)" * (sitting.rows_are == "windows")
        raise InputError(
            f"{sitting.examples.task} ({sitting.examples.split}) has {len(sitting.examples)} rows; advice needs at "
            f"least {_LEAST_ROWS}, half to choose on and half to score on{shorter}."
        )
    costs, depth = Costs(sitting.model), sitting.model.depth
    contiguous(depth, max_span)
    sizes = target.sizes(costs) if target else usual_sizes(depth)
    if remove is not None:
        sizes = checked_sizes(remove, depth)
    bounded = 0 if target else confidence  # with a target the whole half picks, since nothing is to be confirmed
    parts = Parts.dealt(sitting.texts, bounded, seed=seed, labels=sitting.classes)
    search = Search(sitting, parts.picking, sizes, max_span, evaluations, seed)
    settings = {
        "tolerance": None if target else tolerance,
        "target": str(target) or None,
        "confidence": confidence,
        "remove": list(sizes),
        "max_span": max_span,
        "evaluations": evaluations,
        "seed": seed,
    }
    asked = chosen_rules(rules, depth, max_span)
    return Consultation(sitting, parts, search, asked, tolerance, confidence, target, costs, timed, settings)


@dataclass
class Consultation:
    """A question about a model's blocks, before it is answered."""

    sitting: Sitting
    parts: Parts
    search: Search
    rules: list[Rule]
    tolerance: float | str
    confidence: float
    target: Target
    costs: Costs
    timed: bool
    settings: dict[str, Any]

    @cached_property
    def effort(self) -> Effort:
        """What the answer will take."""
        return effort(self.search, self.rules, self.costs, timed=self.timed)

    def advice(self) -> Advice:
        """Evaluate every plan, and choose."""
        sitting, parts = self.sitting, self.parts
        tolerated = Tolerance.parse(self.tolerance, sitting.metric)
        if not self.target:
            _warn(sitting, parts, tolerated, self.confidence)
        rules_of_plans = proposed(self.search, self.rules)
        plans = list(rules_of_plans)
        logits = sweep(sitting, plans, f"cuts of {sitting.model.name}")
        table = table_of(sitting, rules_of_plans, logits, parts, self.costs, self.timed)
        decision: Decision | None = None
        if self.target:
            judge = Judge(sitting, logits, parts.scoring, tolerated)
            chosen = best_for_target(judge, plans, table, self.confidence, self.target)
        else:
            judge = Judge(sitting, logits, parts.confirming, tolerated)
            decision, chosen = within_tolerance(judge, plans, table, self.confidence)
        table["chosen"] = table.index == chosen
        names = tuple(rule.name for rule in self.rules)
        return Advice(
            table,
            plans[chosen],
            self.tolerance,
            self.confidence,
            sitting,
            sitting.provenance(rules=list(names), **self.settings),
            logits[chosen],
            parts,
            decision,
            names,
            self.target,
        )


def _warn(sitting: Sitting, parts: Parts, tolerance: Tolerance, confidence: float) -> None:
    """Say, before anything is computed, where no bound was asked for or none is possible."""
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
