"""`Advice`, the result of `ls.advise`: the candidates, the plan that was chosen, its findings and its figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope import metrics
from layerscope.cutting.candidates import by_rule, front, in_short
from layerscope.cutting.curves import count_blocks, healing_step
from layerscope.cutting.cut import cut
from layerscope.cutting.cut_on_disk import FolderCut
from layerscope.cutting.patch import Patch, apply
from layerscope.cutting.patch_texts import PatchTexts
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.save import save
from layerscope.cutting.selection_test import Decision, Paired, Parts
from layerscope.cutting.targets import Target, Tolerance
from layerscope.drawing.captions import caveat, listed, numbers, spread
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.drawing.figures.scatter import Point, ScatterFigure
from layerscope.errors import LayerscopeError, first_line
from layerscope.evaluation.evaluator import Evaluator
from layerscope.evaluation.score import Score
from layerscope.models import load
from layerscope.results import Finding, NextStep, Result
from layerscope.results.finding import (
    ANSWER,
    DETAIL,
    SUPPORT,
    better_end,
    interval,
    number,
    widened,
    worse,
    worse_end,
)

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure


@dataclass(frozen=True)
class Verdict:
    """Whether what was asked of an advice is met.

    Attributes:
        met: Whether it is. With a tolerance alone it is not where no block can go.
        says: The same as a sentence, with the reason.
        loses: How much of the metric the choice loses at most, with the confidence asked for; NaN without a bound.
        misses: By how much that is more than the tolerance; 0 where it is met, NaN where nothing bounds it.
        regains: How much of the metric the patch, or the healing, brings back over the plain cut on the rows that
            score; below 0 where it makes it worse, NaN where nothing was patched or healed.
        regains_low: The lower end of its 95% interval, row by row on the same texts.
        regains_high: The upper end.
    """

    met: bool
    says: str
    loses: float = math.nan
    misses: float = 0.0
    regains: float = math.nan
    regains_low: float = math.nan
    regains_high: float = math.nan


def regained_in_words(by: str, metric: str, regained: Paired) -> str:
    """Return a sentence on what a patch or a healing (`by`, such as `The patch`) brings back over the plain cut."""
    value, low, high = regained
    ends = f"95% interval {low:+.4f} to {high:+.4f}"
    if not (math.isfinite(low) and math.isfinite(high)):
        ends = "too few rows for an interval"
    if value < 0:
        sure = "" if high < 0 else ", so it may be chance"
        return (
            f"{by} makes it worse: with it the model scores {-value:.4f} {metric} worse than the plain cut on the same "
            f"rows ({ends} of the gain{sure})."
        )
    sure = "" if low > 0 else ", so it may be none"
    return f"{by} regains {value:.4f} {metric} over the plain cut on the same rows ({ends}{sure})."


_SPELLED = 6  # plans whose scores a sentence names; the table has all of them
HELD_OUT = "the half of the rows that did not choose the blocks"


@dataclass(repr=False)
class Advice(Result):
    """`frame` has one row per candidate, the whole model first; `choice` is the smallest plan within the tolerance, or
    the best one that meets the target.

    In the table `chosen_on` is the score on the rows that pick a candidate of each size; `change`, with its lower bound
    `change_low`, what it changes on the rows that confirm the pick (NaN where it was not tested; with a target, what
    the choice changes on the rows that did not choose it); `score` (with `low`
    and `high`) the score on the other half, which chose nothing and is to be believed.

    Attributes:
        choice: The chosen `LayerPlan`.
        tolerance: How much of the metric might be lost, as it was given.
        confidence: How sure it had to be that no more is lost; 0 if nothing was asked for.
        evaluator: The model, the task and the texts that it was scored on.
        answers: The logits of the chosen plan, (n, classes).
        parts: Which rows picked, confirmed and scored.
        decision: The tests of the picks, in their order; None without a confidence, and with a target.
        rule_names: The rules that proposed plans.
        target: The limits that were asked for: blocks, parameters, latency.
        within: With a target and a tolerance: whether what the choice loses is within it, at the confidence asked for.
            None where only one of them was asked for.
        patch: What was solved for the chosen plan, where plans were judged with their patches.
        texts: The texts of patches.
        regained: How much better the chosen plan scores with its patch than without, on the rows that score, and the
            ends of a 95% interval; None where nothing was patched.

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
    tolerance: float | str
    confidence: float
    evaluator: Evaluator
    provenance: Mapping[str, Any]
    answers: np.ndarray  # of the chosen plan, (n, classes)
    parts: Parts
    decision: Decision | None
    rule_names: tuple[str, ...] = ()
    target: Target = field(default_factory=Target)
    within: bool | None = None  # with a target and a tolerance: whether the choice is shown to be within the tolerance
    patch: Patch | None = None
    texts: PatchTexts | None = None
    regained: Paired | None = None

    @property
    def frame(self) -> pandas.DataFrame:
        """Columns: plan, rule (every rule that found it), blocks, removed, chosen_on, change, change_low, score, low,
        high, parameters, macs, latency_1_ms, latency_32_ms, savable, metric, front, chosen."""
        return self.candidates

    @cached_property
    def model(self) -> Any:
        """The whole model with the chosen blocks only, as a transformers model; it is cut when it is asked for."""
        smaller = cut(self.evaluator.model, self.choice)
        if self.patch is not None and self.texts is not None:
            apply(self.patch, smaller, self.texts)
        return smaller

    def save_model(self, path: str | Path, source: str | Path | None = None) -> str:
        """Save the chosen model with its score on its card, and return how that was done, in a few words.

        Args:
            path: The folder. An existing one is replaced only if layerscope saved it.
            source: The checkpoint that the model was opened from, if its weights are still those. Then it is cut on
                disk where that is possible, which takes no memory: an offloaded model can be cut only so.
        """
        reason = "the model was given as it is open"
        if self.patch is not None and self.patch.applied:
            source, reason = None, "it is patched"
        if source is not None:
            try:
                on_disk = FolderCut(source)
                on_disk.select(self.choice)  # raises where the plan cannot be cut on disk; then it is cut in memory
            except LayerscopeError as error:
                reason = first_line(error).rstrip(".")
            else:
                score = self.evaluator.score(self.answers, self.parts.scoring, HELD_OUT)
                compared = on_disk.write(self.choice, Path(path), scores=[score])
                return f"cut on disk, every tensor compared by its hash{', reopened and compared' * compared}"
        save(self.model, path, scores=self.score)
        return f"cut in memory ({reason}), reopened and compared"

    @cached_property
    def score(self) -> Score:
        """The chosen model's score on the rows that did not choose it, for its card: `ls.save(.., scores=..)`."""
        return self.evaluator.with_model(load(self.model)).score(self.answers, self.parts.scoring, HELD_OUT)

    @property
    def row(self) -> pandas.Series:
        """The chosen candidate's row."""
        return self.frame[self.frame["chosen"]].iloc[0]

    @cached_property
    def rules(self) -> pandas.DataFrame:
        """Each rule's best plan of each size beside the middle one of as many random blocks.

        Columns: rule, removed, blocks, plans (how many it proposed), score (on the rows that did not choose), random
        (the score of the middle random plan; NaN without the rule `random`), lost (whether that is better).
        """
        return by_rule(self.frame, self.rule_names)

    @property
    def rules_in_short(self) -> pandas.DataFrame:
        """How each rule did over all sizes, in one row.

        Columns: rule, plans, sizes (at how many it proposed any), best_at (at how many of them no other rule's plan
        scores better), worse_than_random_at (None without the rule `random`).
        """
        return in_short(self.rules, str(self.frame["metric"].iloc[0]))

    def print_as(self, tool: str, name: str | None = None) -> str:
        """The chosen plan as another tool takes it: `mergekit` or `llama.cpp`; `name` stands for the model there."""
        return self.choice.print_as(tool, self.evaluator.model.depth, name or self.evaluator.model.name)

    def figures(self) -> list[Figure]:
        """Score against cost of every candidate, the rules beside one another, and the tables."""
        return figures_of(self)

    @property
    def _tolerated(self) -> Tolerance:
        return Tolerance.parse(self.tolerance, str(self.frame["metric"].iloc[0]))

    @property
    def how(self) -> str:
        """How the choice was made, in a few words."""
        if self.target:
            return f"the chosen one is the best, on the rows that choose, of those that {self.target}"
        if self.decision is None:
            return "the chosen one is the cheapest within the tolerance on the rows that choose"
        return f"the chosen one is the smallest that other rows confirmed, with {self.confidence:.0%} confidence"

    @property
    def verdict(self) -> Verdict:
        """Whether what was asked for is met: a tolerance, a target, or both; and what a patch regains."""
        verdict = self._judged
        if self.patch is None:
            return verdict
        says = f"{verdict.says} {self._of_patch}"
        value, low, high = self.regained or (math.nan,) * 3
        return replace(verdict, says=says, regains=value, regains_low=low, regains_high=high)

    @property
    def _of_patch(self) -> str:
        """What the patch of the choice regains in the metric, or why there is none."""
        if self.regained is None:
            return "" if self.patch is None else f"No patch is folded in: {str(self.patch).rstrip('.')}."
        sentence = regained_in_words("The patch", str(self.row["metric"]), self.regained)
        way_out = " Without patch= (--patch) plans are judged as plain cuts."
        return sentence + way_out * (self.regained[0] < 0)

    @property
    def _judged(self) -> Verdict:
        """The verdict without what a patch regains."""
        row, whole, metric = self.row, self.frame.iloc[0], str(self.row["metric"])
        loses = max(-float(row["change_low"]), 0.0) if self.confidence else math.nan
        if not self.target:
            met = bool(self._gone)
            says = f"Blocks {row['blocks']} are enough, within {self._tolerated} {metric}." if met else self._nothing
            return Verdict(met, says, loses if met else math.nan, 0.0 if met else math.nan)
        patched = " once it is patched" * (self.patch is not None and self.patch.applied)
        best = f"The best plan that would {self.target} keeps blocks {row['blocks']}{patched}"
        if self.within is None:
            return Verdict(True, f"{best}.", loses)
        allowed = self._tolerated.allowed(float(whole["score"]))
        tolerance = f"the tolerance of {self._tolerated}"
        change = metrics.upward(metric, row["score"]) - metrics.upward(metric, whole["score"])
        seen = f"{best}, and {_moves(metric, change)} on {HELD_OUT}"
        if math.isfinite(loses):
            misses = 0.0 if self.within else max(loses - allowed, 0.0)
            found = f"within {tolerance}" if self.within else f"{misses:.4f} more than {tolerance}"
            says = f"{seen}: with {self.confidence:.0%} confidence it loses at most {loses:.4f}, which is {found}."
        elif self.confidence:
            misses, says = (
                math.nan,
                f"{seen}: too few rows to bound what it loses, so {tolerance} is not shown to hold.",
            )
        else:
            misses = max(-change - allowed, 0.0)
            says = f"{seen}, which is {'within' if self.within else 'outside'} {tolerance}; no bound was asked for."
        return Verdict(self.within, says, loses, misses)

    def findings(self) -> list[Finding]:
        """Whether the target is tolerable, what may go, which rules lost to random blocks, and which rule is best."""
        bounded = self.confidence > 0 and math.isfinite(self.row["change_low"])  # a bound was asked for and found
        findings = [Finding(str(self), "", bounded and bool(self._gone), ANSWER)]
        if self.within is not None:
            findings.insert(0, Finding(self.verdict.says, "", bounded, ANSWER))
        if self._found_by:
            findings.append(Finding(self._found_by, "", None, DETAIL))
        if self.regained is not None and self.within is None:  # else the verdict says it
            sure = self.regained[1] > 0 or self.regained[2] < 0
            findings.append(Finding(self._of_patch, "", sure, SUPPORT))
        if self.patch is not None:
            findings += [Finding(text, "", None, SUPPORT) for text in self.patch.sentences()]
        if self.against_random:
            findings.append(Finding(self.against_random, "", None, DETAIL))
        return [*findings, *self._over, *self._best_rule()]

    @property
    def _over(self) -> list[Finding]:
        """A finding on what intervals and bounds are over, where that is not texts."""
        for rows in (self.parts.scoring, self.parts.confirming):
            if len(rows) and (over := self.evaluator.resampled(rows)):
                text = f"Intervals and bounds are {over}; the more texts there are, the more they can be trusted."
                texts, parts = self.evaluator.texts, self.parts
                chose = np.concatenate([texts[parts.picking], texts[parts.confirming]])
                if np.isin(texts[parts.scoring], chose).any():  # too few texts to give every part its own
                    text += " Windows of one text are in the part that chooses and in the part that is scored."
                return [Finding(text, "", None, SUPPORT)]
        return []

    def next_step(self) -> NextStep:
        """The healing of what was chosen; where nothing may go, what healing would allow."""
        why = "See what healing would allow"
        heal = NextStep("advise", ("--heal", "300", "-o", "healed-advice"), why)
        return healing_step(self.choice, self.evaluator.model.depth) or heal

    @property
    def _gone(self) -> tuple[int, ...]:
        """The blocks that the choice leaves out."""
        return self.choice.removed(self.evaluator.model.depth)

    def _best_rule(self) -> list[Finding]:
        """Return a finding on the best rule beside random blocks, at the size that was chosen or else the smallest."""
        metric, table = str(self.frame["metric"].iloc[0]), self.rules
        table = table[table["random"].notna() & (table["rule"] != "random") & table["score"].notna()]
        if not len(table):
            return []
        up, sizes = metrics.higher_is_better(metric), {int(size) for size in table["removed"]}
        size = len(self._gone) if len(self._gone) in sizes else min(sizes)
        beside = table[table["removed"] == size].sort_values("score", ascending=not up)
        best = beside.iloc[0]
        row = self.frame[(self.frame["blocks"] == best["blocks"]) & (self.frame["removed"] == size)].iloc[0]
        low, high = widened(row["score"], row["low"], row["high"], len(beside))
        verb = "does worse than" if worse(best["score"], best["random"], up) else "does better than"
        text = (
            f"With {count_blocks(size)} left out, the plan of the rule {best['rule']} ({metric} "
            f"{number(best['score'])}) {verb} the middle one of random plans ({number(best['random'])})."
        )
        middle = self.rules[(self.rules["rule"] == "random") & (self.rules["removed"] == size)].iloc[0]
        drawn = self.frame[(self.frame["blocks"] == middle["blocks"]) & (self.frame["removed"] == size)].iloc[0]
        ends = best["random"] + drawn["low"] - drawn["score"], best["random"] + drawn["high"] - drawn["score"]
        # Intervals that do not meet show a difference, however the two scores go together.
        ahead = worse(better_end(*ends, up), worse_end(low, high, up), up)
        behind = worse(better_end(low, high, up), worse_end(*ends, up), up)
        evidence = f"{interval(row['low'], row['high'])} on the {len(self.parts.scoring):,} rows that did not choose"
        evidence += f", and {number(ends[0])} to {number(ends[1])} of the random one"
        evidence += f"; the best of {len(beside)} rules" if len(beside) > 1 else ""
        return [Finding(text, evidence, bool(ahead or behind), SUPPORT)]

    def __str__(self) -> str:
        if self.target:
            return " ".join(part for part in (self._kept_blocks, self._best, self._warning) if part)
        answer = self._kept_blocks if self.choice.removed(self.evaluator.model.depth) else self._nothing
        return " ".join(part for part in (answer, self._outside, self._further, self._warning) if part)

    @property
    def _found_by(self) -> str:
        """A sentence for a choice whose rule does not look the best among the rules, which are compared elsewhere."""
        found, short = str(self.row["rule"]).split(", "), self.rules_in_short
        if not self._gone or short[short["rule"].isin(found)]["best_at"].astype(bool).any():
            return ""
        middle = ", and random stands for the middle one of its plans" if "random" in found else ""
        return (
            f"The chosen plan was found by {listed(found)} and picked on the rows that choose. Rules are compared on "
            f"the {len(self.parts.scoring):,} other rows{middle}, so a rule can have found the choice and be the best "
            "at no size."
        )

    @property
    def against_random(self) -> str:
        """Which rules lost to random blocks, and where; nothing where no random plan was tried."""
        rules, metric = self.rules, self.frame["metric"].iloc[0]
        if not rules["random"].notna().any():
            return ""
        lost = rules[rules["lost"]]
        if not len(lost):
            return "Every rule is at least as good as random blocks at every size."
        parts = []
        for rule, rows in lost.groupby("rule", sort=False):
            sizes = rows.sort_values("removed")
            scored = [f"{r.removed} ({r.score:.4g}, random {r.random:.4g})" for r in sizes.itertuples()]
            parts.append(f"{rule} at {', '.join(scored if len(lost) <= _SPELLED else map(str, sizes['removed']))}")
        return (
            f"Worse in {metric} than the middle one of random plans, by blocks removed: {'; '.join(parts)}. Scores are "
            f"of {len(self.parts.scoring)} rows: where two are close, either may be ahead by chance."
        )

    @property
    def _best(self) -> str:
        """A sentence on the candidates among which the choice was made, where a target was given."""
        count = int((self.frame["removed"] > 0).sum())
        return (
            f"It was found by {self.row['rule']}, and has the best score on the rows that choose among those of "
            f"{count} plans that {self.target}."
        )

    @property
    def _kept_blocks(self) -> str:
        """A sentence on the blocks that stay, and what they score and cost."""
        whole, row = self.frame.iloc[0], self.row
        metric, bounded = row["metric"], self.decision is not None or (self.target and self.confidence)
        bound = f" With {self.confidence:.0%} confidence it loses at most {max(-row['change_low'], 0.0):.4f} {metric}."
        return (
            f"Keep blocks {row['blocks']}: {metric} {row['score']:.4f}{spread(row['low'], row['high'])} on rows "
            f"that did not choose it, where the whole model has {whole['score']:.4f}; "
            f"{row['parameters'] / whole['parameters']:.0%} of the parameters, {row['macs'] / whole['macs']:.0%} of "
            f"the multiply-adds{self._time}.{bound if bounded else ''}"
        )

    @property
    def _time(self) -> str:
        """The time that the choice takes, where it was measured; a target of latency is for one text at a time."""
        whole, row = self.frame.iloc[0], self.row
        batch = 1 if self.target.latency is not None else 32
        after, before = (part[f"latency_{batch}_ms"] for part in (row, whole))
        if np.isnan(after):
            return ""
        return f", {after / before:.0%} of the time at batch {batch} ({after:.1f} ms in place of {before:.1f} ms)"

    @property
    def _nothing(self) -> str:
        """A sentence that says why no block can go."""
        metric = self.frame["metric"].iloc[0]
        if not self.frame["savable"][self.frame["removed"] > 0].any():
            return "No block can go: no smaller model can be saved as a checkpoint."
        if self.decision is None:
            return f"No block can go: every smaller candidate loses more than {self._tolerated} {metric}."
        return f"No block is shown to be dispensable with {self.confidence:.0%} confidence."

    @property
    def _outside(self) -> str:
        """A sentence for the case that too much is lost on the rows that chose nothing."""
        whole, row = self.frame.iloc[0], self.row
        metric = str(row["metric"])
        loss = metrics.upward(metric, whole["score"]) - metrics.upward(metric, row["score"])
        if self._tolerated.holds(metric, float(whole["score"]), float(row["score"])):
            return ""
        return (
            f"On the rows that did not choose it, it loses {loss:.4f} {row['metric']}, which is more than the "
            f"tolerance of {self._tolerated}."
        )

    @property
    def _further(self) -> str:
        """A sentence on what stands in the way of a smaller model; without a confidence, a warning."""
        if self.decision is None:
            return (
                f"This is the smallest of {len(self.frame)} candidates that looks to be within the tolerance, chosen "
                "without a bound (confidence 0): the luckiest of many is often outside it."
            )
        if not self.decision.checks or self.decision.checks[-1].passed:
            return ""
        last, metric = self.decision.checks[-1], self.frame["metric"].iloc[0]
        n, needed = len(self.evaluator.examples), self.rows_needed
        row = self.frame.iloc[last.candidate]  # whose changes are in units of the metric, better above 0
        tested = (
            f"The next smaller candidate, blocks {row['blocks']}, {_moves(metric, row['change'])} on the "
            f"{len(self.parts.confirming)} rows that confirm, and perhaps {_moves('it', row['change_low'], metric)}"
        )
        if needed is None:
            return f"{tested}: more than the tolerance of {self._tolerated}."
        return (
            f"{tested}: too few rows to say that it is within the tolerance of {self._tolerated}. That would take "
            f"about {needed:,} rows, where there are {n:,}; confidence 0 chooses without a bound."
        )

    @property
    def rows_needed(self) -> int | None:
        """About how many rows would confirm the next smaller candidate, if it is as good as it looks; None if none."""
        if self.decision is None or self.decision.needed is None:
            return None
        return all_rows_for(self.decision.needed, self.parts, len(self.evaluator.examples))

    @property
    def _warning(self) -> str:
        """A sentence for a model that has not learned the task."""
        whole, guess = float(self.frame["score"].iloc[0]), self.evaluator.majority
        if not whole <= guess:
            return ""
        return f"Note that the whole model is no better than one answer to everything ({guess:.4f})."

    def __repr__(self) -> str:
        return f"Advice({self.choice}, {len(self.frame)} candidates)"


def _moves(what: str, change: float, metric: str = "") -> str:
    """Return `lowers accuracy by 0.0120`, `raises perplexity by 238`, for a change that is better above 0.

    `metric` is what counts where `what` is another word for it.
    """
    value, size = (change if metrics.higher_is_better(metric or what) else -change), abs(change)
    return f"{'lowers' if value < 0 else 'raises'} {what} by {f'{size:.4f}' if size < 1 else number(size)}"


def all_rows_for(confirming: int, parts: Parts, n: int) -> int:
    """Return how many rows there must be altogether for so many to confirm."""
    return int(np.ceil(confirming * n / max(len(parts.confirming), 1)))


def figures_of(advice: Advice) -> list[Figure]:
    """Return the figures: score against cost of every candidate, the rules by size, and the tables of both."""
    frame = advice.frame.drop(columns="plan").sort_values("macs")  # the column blocks says the same
    table = numbers("Every candidate", "What each keeps, scores and costs.", frame)
    rules = advice.rules
    if not len(rules):
        return [candidates(advice), table]
    beside = numbers(
        "Each rule's best plan",
        "The plan of each size that scored best on the rows that choose, its score on the others, and that of random "
        "plans.",
        rules,
    )
    return [candidates(advice), by_size(advice, rules), beside, table]


def candidates(advice: Advice) -> ScatterFigure:
    """Return the figure of score against multiply-adds, in which each point names the rules that found it."""
    table, chosen = advice.frame, advice.row.name
    metric, most = str(table["metric"].iloc[0]), float(table["macs"].max())
    points = []
    for (index, row), ahead in zip(table.iterrows(), front(table, "score"), strict=True):
        series = ["front"] if ahead else ["other candidates"] if index != chosen else []
        series += ["chosen"] if index == chosen else []
        found_by = f" ({row['rule']})" if row.get("rule") else ""
        name = f"blocks {row['blocks']}{found_by}" if row["removed"] else "the whole model"
        place = (float(row["macs"]) / most, float(row["score"]))
        points += [Point(*place, name, each, float(row["low"]), float(row["high"])) for each in series]
    n, scored = len(advice.evaluator.examples), len(advice.parts.scoring)
    by = f", found by the rules {listed(advice.rule_names)}" if advice.rule_names else ""
    better = "up" if metrics.higher_is_better(metric) else "down"
    return ScatterFigure(
        title="What each smaller model costs and scores",
        shows=f"{metric} against multiply-adds for every candidate{by}.",
        reading=f"Left is cheaper, {better} is better. Scores are on the rows that did not choose, and the line joins "
        f"the candidates that no other beats there; {advice.how}.",
        caveat=caveat("The interval of a score is a bootstrap on the rows that did not choose.", scored),
        points=tuple(sorted(points, key=lambda p: p.series == "chosen")),
        x_name="multiply-adds, share of the whole model",
        y_name=f"{metric} on rows that did not choose",
        joined=("front",),
        stressed=("chosen",),
        log=metric == "perplexity" and _spread(table["score"]),
        references=(("the whole model", float(table["score"].iloc[0])),),
        n=n,
    )


def by_size(advice: Advice, rules: pandas.DataFrame) -> CurveFigure:
    """Return the figure of the score of each rule's best plan by how many blocks it leaves out."""
    table = advice.frame
    metric, n = str(table["metric"].iloc[0]), len(advice.parts.scoring)
    better = "Up" if metrics.higher_is_better(metric) else "Down"
    floor = " What lies on the worse side of random lost to chance." if (rules["rule"] == "random").any() else ""
    return CurveFigure(
        title="Every rule by the number of blocks that go",
        shows=f"{metric} of each rule's best plan of each size; of random plans the middle one.",
        reading=f"{better} is better.{floor}",
        caveat=caveat("Plans are picked on some rows and scored on others.", n),
        series=tuple(
            Series(str(rule), tuple(map(float, part["removed"])), tuple(map(float, part["score"])))
            for rule, part in rules.groupby("rule", sort=False)
        ),
        x_name="blocks left out",
        y_name=f"{metric} on rows that did not choose",
        log=metric == "perplexity" and _spread(rules["score"]),
        references=(("the whole model", float(table["score"].iloc[0])),),
        n=n,
    )


def _spread(scores: pandas.Series) -> bool:
    """Return whether scores lie so far apart that an axis of powers of ten shows them better."""
    finite = scores[(scores > 0) & (scores < float("inf"))]
    return bool(len(finite) and finite.max() > 10 * finite.min())
