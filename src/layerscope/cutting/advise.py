"""`ls.advise`: rules propose plans, every plan is evaluated, and the one that is chosen is scored on other rows.

The choice is the smallest plan within a tolerance, or the best of those that meet a target. What the evaluation will
take is estimated, and said, before it begins.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope import metrics
from layerscope.cutting.advice import Advice, all_rows_for
from layerscope.cutting.candidates import proposed, table_of
from layerscope.cutting.costs import BatchTimes, Costs
from layerscope.cutting.curves import contiguous
from layerscope.cutting.cut import check_in_place
from layerscope.cutting.patch import Patch, Patches, Variant, answers
from layerscope.cutting.patch_texts import PatchTexts, texts_of
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.search import EVALUATIONS, Rule, Search, checked_sizes, chosen_rules, usual_sizes
from layerscope.cutting.selection_test import (
    Comparison,
    Decision,
    Paired,
    Parts,
    check_confidence,
    decide,
    least_rows,
    lower_bound,
    paired_change,
    smallest_within,
)
from layerscope.cutting.sweep import Trial, sweep
from layerscope.cutting.targets import Target, Tolerance
from layerscope.data import TaskSource
from layerscope.data import task as open_task
from layerscope.distributed import Team
from layerscope.errors import NOTICE, InputError, PlanError, TargetError, check_seed, log
from layerscope.evaluation.evaluate import make_evaluator
from layerscope.evaluation.evaluator import Evaluator
from layerscope.models.load import ModelSource, load_whole

if TYPE_CHECKING:
    import pandas


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
    # A rule goes on from what another one has evaluated, whether that was named or not: it is done once.
    searching = {rule.name: rule for rule in rules}
    searching |= {base.name: base() for rule in rules if (base := rule.begins_with) is not None}
    searches = share * sum(rule.block_runs(search) for rule in searching.values())
    runs = Trial(evaluator.subject, plans).block_runs + searches
    searched = sum(rule.evaluations(search) for rule in searching.values())
    # By a batch of the texts themselves: short texts and a formula for the rest were off by two thirds.
    times, tokens = BatchTimes.measured(evaluator), evaluator.tokens(len(evaluator.examples))
    forwards = 1 + share * sum(rule.looks for rule in rules)
    answers = len(plans) + share * searched
    seconds = times.forward * forwards + times.block * max(0, runs - forwards * search.depth) + times.answer * answers
    seconds *= tokens / Team.current().size
    if timed:
        seconds += costs.measuring(plans, times)
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

    chosen = _first_that_can_be_cut(comparison.evaluator, plans, table, worth, choose)
    for check in decision.checks if decision is not None else ():
        table.loc[check.candidate, ["change", "change_low"]] = (
            comparison.in_metric(check.change),
            comparison.in_metric(check.low),
        )
    return decision, chosen or 0


def best_for_target(
    comparison: Comparison, plans: Sequence[LayerPlan], table: pandas.DataFrame, confidence: float, target: Target
) -> tuple[int, bool]:
    """Return the place of the plan with the best score among those that meet the target, and whether it is tolerated.

    With a confidence it is tolerated where the bound of what it loses is within the tolerance.
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

    chosen = _first_that_can_be_cut(evaluator, plans, table, worth, choose)
    if chosen is None:
        raise TargetError(_impossible(target, table, meets))
    if not confidence:
        whole, score = (float(table["score"].iloc[place]) for place in (0, chosen))
        return chosen, comparison.tolerance.holds(evaluator.metric, whole, score)
    change = comparison.changes(chosen)
    bounds = change.mean, lower_bound(change, confidence)
    table.loc[chosen, ["change", "change_low"]] = [comparison.in_metric(value) for value in bounds]
    return chosen, bool(bounds[1] >= -comparison.limit)


def _worths(evaluator: Evaluator, table: pandas.DataFrame) -> pandas.Series:
    """Return the scores on the rows that choose, with their sign turned so that more is better."""
    return table["chosen_on"].map(lambda score: metrics.upward(evaluator.metric, score))


def _first_that_can_be_cut(
    evaluator: Evaluator,
    plans: Sequence[LayerPlan],
    table: pandas.DataFrame,
    worth: pandas.Series,
    choose: Callable[[list[float]], int | None],
) -> int | None:
    """Return the place of the plan that is chosen and can be cut, or None.

    Some plans turn out only here to be impossible; such a one is no longer a candidate, and the choice is made again.
    Nothing is cut for that: the blocks are taken out of the network itself, which may wait on a disk.
    """
    while True:
        chosen = choose(worth.where(table["savable"] & (table["removed"] > 0) & (worth > -math.inf)).tolist())
        if chosen is None:
            return None
        try:
            check_in_place(evaluator.model, plans[chosen])
        except PlanError as error:
            log.info("%s", error)
            table.loc[chosen, "savable"] = False
        else:
            return chosen


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
_TOLERANCE = 0.01
_LONG = 300  # seconds; what takes longer is said without being asked


def advise(
    model: ModelSource,
    task: TaskSource,
    *,
    tolerance: float | str | None = None,
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
    patch: TaskSource | None = None,
    other: TaskSource | None = None,
) -> Advice:
    """Find the smallest model within a tolerance, or the best one of a size, among the plans of several rules.

    Rules propose plans, and may look at texts that choose only. Every plan is evaluated exactly, all in one pass.

    Within a tolerance: one half of the rows chooses. A quarter of it picks the best candidate of each size; the rest
    tests the picks, from the largest to the smallest, and stops at the first that cannot be shown, with the confidence
    asked for, to score at most `tolerance` below the whole model. So the bound holds after the choice among many. The
    other half scores what was chosen, so that the reported score is not the maximum of many. Running text is dealt out
    by texts and joined within each part; where it is one text, or texts are too few, windows are, and the advice says
    so.

    With a target (`blocks`, `parameters`, `latency`): the half that chooses picks the plan with the best score among
    those that meet all that is asked, whatever it loses; the other half scores it and bounds what it loses.

    Args:
        model: A checkpoint whose head can answer the task: a folder, a hub id, `id@revision`, a GGUF file or a `Model`.
        task: A task of the registry (`layerscope tasks` lists them), a file, a folder, a hub id, or a `Task`.
        tolerance: How much of the metric may be lost: an amount, such as 0.01, or a share of the whole model's score,
            such as "5%". Of a perplexity, and of other losses, a number is a share too. 0.01 if neither a tolerance nor
            a target is given. Beside a target it judges the best plan that meets the target (`verdict`).
        confidence: How sure it must be that no more than that is lost: at least 0.5 and below 1. Where the rows are too
            few for it, no block goes, and the advice says how many it would take. 0 takes the smallest candidate whose
            score on the half that chooses is within the tolerance, without any bound, and warns.
        rules: Where plans come from, by name: `angular`, `beam`, `deepest`, `greedy`, `influence`, `last`, `random`,
            `spans`, `swap`. If not given, all but `beam` and `swap`, which search longer; `spans` in models of more
            than 12 blocks only where `max_span` is given.
        blocks: A target: how many blocks stay.
        parameters: A target: at most this many parameters: 100_000_000, "100M", or "80%" of the whole model's.
        latency: A target: at most so much time for one text of 128 tokens on this device, as it is measured: "40ms", or
            a share of the whole model's time, "80%" or 0.8.
        remove: How many blocks the plans leave out: a number or several. If not given: as a target needs; else any
            number in models of up to 12 blocks, and eight numbers up to half of the blocks in deeper ones.
        max_span: How many blocks are skipped in a row, at most, by the rules `spans`, `angular` and `deepest`.
        evaluations: How many plans each rule that searches (`greedy`, `beam`, and `swap` after `greedy`) may evaluate
            on the rows that choose; 0 for no such search.
        timed: Measure how long every candidate takes. Without it latencies are NaN.
        split: The split; `validation` where there is one, else the only one.
        limit: Use only the first N examples.
        max_length: The longest text in tokens: what the model allows, at most 512 (running text: 2,048).
        seed: Decides which rows pick, confirm and score, and the random plans.
        all_rows: Use also the rows that the model learned from.
        patch: Texts, whose labels are not used: every plan is judged with what it takes away solved for on them, and
            folded into weights that stay, where that helps. None of these texts chooses or scores plans.
        other: With a patch: texts of another domain, on which it must not be worse than the plain cut either.

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
    target = Target.parse(blocks, parameters, latency)
    judged = tolerance is not None
    tolerance = _TOLERANCE if tolerance is None else tolerance
    Tolerance.parse(tolerance, "accuracy")
    if confidence != 0:
        check_confidence(confidence)
    if evaluations < 0:
        raise InputError(f"evaluations is {evaluations}; it must be 0 (no search) or more.")
    if target.latency is not None and not timed:
        raise InputError(
            "A latency was asked for, and without timing (timed=False, --no-timed) none is measured; leave one out."
        )
    if blocks is not None and remove is not None:
        raise InputError("blocks says how many stay and remove how many go; give one of them.")
    check_seed(seed)
    chosen_rules(rules, 0)
    # Opened once: texts that patch are read by the network that is patched.
    model, data = load_whole(model, "advice"), open_task(task)
    texts = texts_of(model, patch, other, data)
    rows: dict[str, Any] = {"split": split, "limit": limit, "max_length": max_length, "all_rows": all_rows}
    evaluator = make_evaluator(model, data, **rows, used=() if texts is None else texts.used)
    _check_rows(evaluator)
    costs, depth = Costs(evaluator.model), evaluator.model.depth
    contiguous(depth, max_span)
    sizes = target.sizes(costs) if target else usual_sizes(depth)
    if remove is not None:
        sizes = checked_sizes(remove, depth)
    # With a target the whole half picks, since the size is given and nothing is to be confirmed.
    bounded = 0 if target else confidence
    evaluator, parts = Parts.of(evaluator, bounded, seed=seed)
    search = Search(evaluator, parts.picking, sizes, max_span, evaluations, seed)
    settings = {
        "tolerance": tolerance if judged or not target else None,
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
    logits, patches = _answers(evaluator, plans, texts)
    table = table_of(evaluator, rules_of_plans, logits, parts, costs, timed)
    within: bool | None = None
    if target:
        comparison = Comparison(evaluator, logits, parts.scoring, tolerated)
        decision, (chosen, within) = None, best_for_target(comparison, plans, table, confidence, target)
    else:
        comparison = Comparison(evaluator, logits, parts.confirming, tolerated)
        decision, chosen = within_tolerance(comparison, plans, table, confidence)
    table["chosen"] = table.index == chosen
    if texts is not None:
        table["patched"] = [plan in patches and patches[plan].applied for plan in plans]
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
        within if judged else None,
        patches.get(plans[chosen]),
        texts,
        _regained(evaluator, patches.get(plans[chosen]), logits[chosen], parts.scoring),
    )


def _answers(
    evaluator: Evaluator, plans: Sequence[LayerPlan], texts: PatchTexts | None
) -> tuple[np.ndarray, dict[LayerPlan, Patch]]:
    """Return the answers of every plan, and the patch of each where there are texts to patch on."""
    if texts is None:
        return sweep(evaluator, plans, f"cuts of {evaluator.model.name}"), {}
    smaller = [plan for plan in plans if plan.removed(evaluator.model.depth)]
    patches = dict(zip(smaller, Patches(evaluator.model, smaller, texts).solved(), strict=True))
    variants = [Variant(plan, patches[plan].folds if plan in patches else ()) for plan in plans]
    return answers(evaluator, evaluator.model, variants)[1:], patches


def _regained(evaluator: Evaluator, patch: Patch | None, patched: np.ndarray, rows: np.ndarray) -> Paired | None:
    """Return how much better a plan answers with its patch than without; None where nothing is patched."""
    if patch is None or not patch.applied:
        return None
    # The loss on other texts judged the patch, and need not go with the metric.
    plain = sweep(evaluator, [patch.plan], "the chosen plan without its patch")[0]
    return paired_change(evaluator, plain, patched, rows)


def _check_rows(evaluator: Evaluator) -> None:
    """Raise InputError where there are too few rows to choose on some and to score on others."""
    if len(evaluator.examples) < _LEAST_ROWS:
        shorter = " (running text: more text, or shorter windows by max_length)" * (evaluator.rows_are == "windows")
        raise InputError(
            f"{evaluator.examples.task} ({evaluator.examples.split}) has {len(evaluator.examples)} rows; advice needs "
            f"at least {_LEAST_ROWS}, half to choose on and half to score on{shorter}."
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
