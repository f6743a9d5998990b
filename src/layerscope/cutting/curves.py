"""Truncation curve and skip map: the score with the head on every layer, and without each span of blocks.

Both follow Phang et al. (2021, section 4). Every plan of a curve is scored in one sweep.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope import metrics
from layerscope.cutting.costs import Costs
from layerscope.cutting.patch import Patches, Variant, answers
from layerscope.cutting.patch_texts import PatchTexts, texts_of
from layerscope.cutting.plan import LayerPlan, spans
from layerscope.cutting.selection_test import differences
from layerscope.cutting.sweep import sweep
from layerscope.cutting.trained_heads import HeadTraining, TrainedHeads, check_same
from layerscope.data import TaskSource
from layerscope.data import task as open_task
from layerscope.drawing.captions import MAJORITY, UNDEFINED, caveat, numbers
from layerscope.drawing.figure import HeatmapAxis
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.drawing.figures.heatmap import HeatmapFigure
from layerscope.errors import InputError, choose, log, whole
from layerscope.evaluation.classification import ClassificationEvaluator
from layerscope.evaluation.evaluate import make_evaluator
from layerscope.evaluation.evaluator import Evaluator, without_groups
from layerscope.models import Model, load
from layerscope.models.load import ModelSource, load_whole
from layerscope.results import Finding, NextStep, Tabled
from layerscope.results.finding import (
    ADVISE,
    ANSWER,
    DETAIL,
    SUPPORT,
    apart,
    better_end,
    interval,
    number,
    over_windows,
    rows,
    widened,
    worse,
)

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure


UNDECIDED = "cannot be told from the whole model"
_HELD = "the 95% interval of the difference, row by row on the same texts, holds 0"
_EMPTY_POINTS = f"An empty point {UNDECIDED}: {_HELD}. A full one differs from it."
_RINGS = f"A ring marks a span without which the model {UNDECIDED}: {_HELD}. A span without one differs from it."
_OVER = ("over_whole", "over_whole_low", "over_whole_high")


def _with_differences(frame: pandas.DataFrame) -> pandas.DataFrame:
    """Return a table with columns of the differences from the whole model: NaN where it was made without them."""
    return frame.assign(**{name: math.nan for name in _OVER if name not in frame})


def _undecided(frame: pandas.DataFrame) -> pandas.Series:
    """Return which rows' difference from the whole model was tested, and may be none."""
    return (frame["over_whole_low"] <= 0) & (frame["over_whole_high"] >= 0)


def _may_be_as_good(row: Any, whole: float, up: bool) -> bool:
    """Return whether a cut may score as the whole model does: by their difference where it was tested."""
    if not math.isnan(row["over_whole_low"]):
        return bool(row["over_whole_high"] >= 0)
    return math.isfinite(row["score"]) and not worse(better_end(row["low"], row["high"], up), whole, up)


def _of_difference(row: Any) -> str:
    """Return the interval of the difference from the whole model as a part of a finding's evidence."""
    low, high = float(row["over_whole_low"]), float(row["over_whole_high"])
    if math.isnan(low):
        return "; the difference from the whole model was not tested"
    if math.isinf(low) or math.isinf(high):
        return "; too few rows for an interval of the difference from the whole model"
    holds = ", which holds 0" if low <= 0 <= high else ""
    return (
        f"; row by row the difference from the whole model is {number(low)} to {number(high)} (below 0 is worse){holds}"
    )


class Truncation(Tabled):
    """The score with the head on every layer. Several curves, told apart by the column `curve`, are drawn as one.

    Attributes:
        left_out: (groups, layers) the scores without each of some groups of texts, for intervals of differences.

    Example:
        >>> import layerscope as ls
        >>> tuned = ls.tune("garden:bert-s0", "pydocs", max_steps=2, train_limit=64, validation_limit=32, max_length=16)
        >>> curve = ls.truncation_curve(tuned.model, "pydocs", limit=32, max_length=16)
        >>> both = ls.Truncation.together({"one": curve, "the same": curve})
        >>> both.frame["curve"].unique().tolist()
        ['one', 'the same']
    """

    name = "truncation"

    @staticmethod
    def together(curves: Mapping[str, Truncation]) -> Truncation:
        """Several curves of one task as one result, each under its name in the column `curve`."""
        import pandas

        frames = []
        for name, truncation in curves.items():
            frame = truncation.frame.copy()
            frame.insert(0, "curve", name)
            frames.append(frame)
        parts = [curve.left_out for curve in curves.values() if curve.left_out is not None]
        same = len(parts) == len(curves) and len({len(part) for part in parts}) == 1
        left_out = np.hstack(parts) if same else None  # of the same groups of texts
        return Truncation(pandas.concat(frames, ignore_index=True), next(iter(curves.values())).provenance, left_out)

    @property
    def frame(self) -> pandas.DataFrame:
        """Columns: layer, score, majority, low, high (95 % over texts), over_whole (how much better it is than the head
        on the last layer, which reads the whole model; below 0 is worse), over_whole_low, over_whole_high (95 %, row by
        row on the same texts), parameters, macs, task, split, metric, n."""
        return self._frame

    def figures(self) -> list[Figure]:
        table = _with_differences(self._frame)
        first = table.iloc[0]
        metric, n = str(first["metric"]), int(first["n"])
        several = "curve" in self._frame
        up = metrics.higher_is_better(metric)
        flat = "Where the curve is flat at the top" if up else "Lower is better: where the curve is flat at the bottom"
        guess = not np.isnan(float(first["majority"]))
        dashed = " The dashed line is the score of always giving the most frequent class." if guess else ""
        parts = table.groupby("curve", sort=False) if several else [("the head on this layer", table)]
        alike = _undecided(table)
        empty = f" {_EMPTY_POINTS}" if alike.any() else ""
        drawn = CurveFigure(
            title="Truncation curve",
            shows=f"{metric} on {first['task']} with the head put on each layer in turn, everything above left out.",
            reading=f"{flat}, the blocks to its right can go at no cost.{dashed}{empty}",
            caveat=caveat(
                "Bands are 95% intervals; layerscope advise scores its choice on other rows.",
                n,
            ),
            series=tuple(
                Series(
                    str(name),
                    *(tuple(map(float, part[column])) for column in ("layer", "score", "low", "high")),
                    hollow=tuple(map(bool, alike[part.index])) if alike[part.index].any() else None,
                )
                for name, part in parts
            ),
            hollow=UNDECIDED if alike.any() else "",
            x_name="layer that the head reads",
            y_name=metric,
            references=((MAJORITY, float(first["majority"])),) if guess else (),
            n=n,
        )
        return [drawn, numbers("What each cut leaves", "Score and size with the head on each layer.", self._frame)]

    def findings(self) -> list[Finding]:
        """How many of the top blocks may be dispensable, and from which layer on the head reads anything."""
        table = _with_differences(self._frame)
        curves = table.groupby("curve", sort=False) if "curve" in table else [("", table)]
        found = [finding for name, part in curves for finding in _dispensable_top(str(name), part)]
        return [*over_windows(self.provenance), *found]

    def next_step(self) -> NextStep:
        """The advice, which tests what may go."""
        return ADVISE

    def __repr__(self) -> str:
        first = self._frame.iloc[0]
        return f"Truncation({first['metric']} on {first['task']}, layers 0..{self._frame['layer'].max()})"


class SkipMap(Tabled):
    """The score without each contiguous span of blocks.

    Attributes:
        left_out: (groups, spans) the scores without each of some groups of texts, for intervals of differences.

    Example:
        >>> import layerscope as ls
        >>> tuned = ls.tune("garden:bert-s0", "pydocs", max_steps=2, train_limit=64, validation_limit=32, max_length=16)
        >>> skips = ls.skip_map(tuned.model, "pydocs", max_span=2, limit=32, max_length=16)
        >>> bool(((skips.frame["last"] - skips.frame["first"]) <= 1).all())
        True
    """

    name = "skip-map"

    @property
    def frame(self) -> pandas.DataFrame:
        """Columns: first, last, score, whole (of the whole model), low, high, over_whole (how much better it is than
        the whole model; below 0 is worse), over_whole_low, over_whole_high (95 %, row by row on the same texts),
        parameters, macs, task, metric, n."""
        return self._frame

    def figures(self) -> list[Figure]:
        frame, first = _with_differences(self._frame), self._frame.iloc[0]
        metric, n = str(first["metric"]), int(first["n"])
        depth = int(frame["last"].max())
        grid = np.full((depth, depth), np.nan)
        grid[frame["last"].to_numpy() - 1, frame["first"].to_numpy() - 1] = frame["score"]
        reasons = {
            (int(r["last"]) - 1, int(r["first"]) - 1): f"{metric} is undefined: every prediction or label is the same"
            for r in frame[frame["score"].isna()].to_dict("records")
        }
        scores = frame["score"].replace([np.inf, -np.inf], np.nan).dropna()
        shade = "Bright" if metrics.higher_is_better(metric) else f"Dark cells have little {metric}: dark"
        blocks = tuple(str(b) for b in range(1, depth + 1))
        alike = frame[_undecided(frame)]
        rings = f" {_RINGS}" if len(alike) else ""
        drawn = HeatmapFigure(
            title="Skip map",
            shows=f"{metric} on {first['task']} without blocks first..last, nothing trained; the whole model scores "
            f"{first['whole']:.4f}.",
            reading="The lowest cells of each column leave out one block, each step up leaves out one more. "
            f"{shade} cells are spans that the model does not miss.{rings}" + (UNDEFINED if reasons else ""),
            caveat=caveat("The best of many cells is too good: layerscope advise scores its choice on other rows.", n),
            values=grid,
            rows=HeatmapAxis("last skipped block", ("",) * depth, blocks),
            columns=HeatmapAxis("first skipped block", ("",) * depth, blocks),
            value_name=metric,
            scale=(float(scores.min()), float(scores.max())) if len(scores) else (0.0, 1.0),
            reasons=reasons,
            marked=tuple((int(r["last"]) - 1, int(r["first"]) - 1) for r in alike.to_dict("records")),
            marked_name=UNDECIDED if len(alike) else "",
            n=n,
        )
        return [drawn, numbers("What each skip leaves", "Score and size without blocks first..last.", self._frame)]

    def findings(self) -> list[Finding]:
        """The longest span that is not clearly missed, and the blocks that are missed most and least."""
        frame, first = _with_differences(self._frame), self._frame.iloc[0]
        whole, metric, n = float(first["whole"]), str(first["metric"]), first["n"]
        up = metrics.higher_is_better(metric)
        defined = frame[frame["score"].notna()]
        single = defined[defined["first"] == defined["last"]].sort_values("score", ascending=not up)
        if len(single) < 2 or not math.isfinite(whole):
            return []
        least, most = single.iloc[0], single.iloc[-1]
        worst: Any = most.name
        others = apart(single, "score", worst, self.left_out)
        bounds = widened(most["over_whole"], most["over_whole_low"], most["over_whole_high"], len(single))
        sure = None
        if others is not None and not math.isnan(bounds[1]):
            sure = bool(bounds[1] < 0 and others.drop(worst).all())
        missed = [
            Finding(
                f"The model misses block {int(most['first'])} most: {metric} is {number(most['score'])} without it and "
                f"{number(whole)} with it.",
                interval(most["low"], most["high"]) + _of_difference(most) + rows(n),
                sure,
                SUPPORT,
            ),
            Finding(
                f"It misses block {int(least['first'])} least: {metric} is {number(least['score'])} without it.",
                f"{interval(least['low'], least['high'])}; the best of {len(single)} blocks on the same rows, so a "
                f"little too good{rows(n)}",
                False,
                DETAIL,
            ),
        ]
        reached = [_may_be_as_good(row, whole, up) for _, row in defined.iterrows()]
        dispensable = defined[reached].assign(length=lambda part: part["last"] - part["first"] + 1)
        if not len(dispensable):
            side = "below" if up else "above"
            text = (
                f"No span of blocks can go without a loss of {metric}: every one lies clearly {side} the whole model."
            )
            tested = bool(defined["over_whole_low"].notna().all())  # that each of them is missed needs no correction
            of = "the differences of " * tested
            evidence = f"95% intervals of {of}{len(defined)} spans{rows(n)}"
            return [Finding(text, evidence, True if tested else None, ANSWER), *missed]
        best = dispensable.sort_values(["length", "score"], ascending=[False, not up]).iloc[0]
        start, end = int(best["first"]), int(best["last"])
        which = f"block {start}" if start == end else f"blocks {start} to {end}"
        text = (
            f"The longest span that may be dispensable is {which}: {metric} is {number(best['score'])} without it, "
            f"and the whole model has {number(whole)}."
        )
        evidence = f"{interval(best['low'], best['high'])}{_of_difference(best)}"
        evidence += f"; picked among {len(defined)} spans on the same rows{rows(n)}"
        return [Finding(text, evidence, False, ANSWER), *missed]

    def next_step(self) -> NextStep:
        """The advice, which tests what may go."""
        return ADVISE

    def __repr__(self) -> str:
        first = self._frame.iloc[0]
        return f"SkipMap({first['metric']} on {first['task']}, {len(self._frame)} spans)"


def healing_step(
    plan: LayerPlan, depth: int, why: str = "Train the cut model a little, and save it"
) -> NextStep | None:
    """Return the command that heals what a plan leaves of a model; None where it leaves all of it."""
    gone = spans(plan.removed(depth)).replace(" ", "")
    return NextStep("heal", ("--without", gone, "-o", "healed"), why) if plan.removed(depth) else None


def _dispensable_top(name: str, part: pandas.DataFrame) -> list[Finding]:
    """Return what one curve says of the top blocks; `name` tells it from others where there are several."""
    part = part.sort_values("layer")
    whole, below = part.iloc[-1], part.iloc[:-1]
    metric, depth, n = str(whole["metric"]), int(whole["layer"]), whole["n"]
    if not len(below) or not math.isfinite(whole["score"]):
        return []
    up, whose = metrics.higher_is_better(metric), f"{name}: " if name else ""
    reaching = {int(row["layer"]): _may_be_as_good(row, whole["score"], up) for _, row in below.iterrows()}
    kept = depth
    while reaching.get(kept - 1, False):
        kept -= 1
    if kept < depth:
        row = below[below["layer"] == kept].iloc[0]
        text = (
            f"{whose}{count_blocks(depth - kept).capitalize()} of {depth} at the top may be dispensable: with the head "
            f"on layer {kept}, {metric} is {number(row['score'])}, where the whole model has {number(whole['score'])}."
        )
        # That no difference is shown does not show that there is none.
        evidence = f"{interval(row['low'], row['high'])}{_of_difference(row)}{rows(n)}"
        finding = Finding(text, evidence, False, ANSWER)
    else:
        row = below.iloc[-1]
        text = (
            f"{whose}No block at the top is dispensable as it is: with the head on layer {depth - 1}, {metric} is "
            f"{number(row['score'])}, where the whole model has {number(whole['score'])}."
        )
        sure = None if math.isnan(row["over_whole_high"]) else bool(row["over_whole_high"] < 0)
        finding = Finding(text, interval(row["low"], row["high"]) + _of_difference(row) + rows(n), sure, ANSWER)
    return [finding, *_above_guessing(part, whose, metric, n)]


def _above_guessing(part: pandas.DataFrame, whose: str, metric: str, n: Any) -> list[Finding]:
    """Return from which layer on every score lies above that of always giving the most frequent class."""
    guess = float(part["majority"].iloc[0])
    if math.isnan(guess):
        return []
    above = [bool(widened(r["score"], r["low"], r["high"], len(part))[0] > guess) for _, r in part.iterrows()]
    if not above[-1]:
        text = f"{whose}Even the whole model is not shown to do better than always giving the most frequent class."
        last = part.iloc[-1]
        evidence = f"{metric} {number(last['score'])}, {interval(last['low'], last['high'])}, against {number(guess)}"
        return [Finding(text, evidence + rows(n), False, SUPPORT)]
    start = len(above) - 1
    while start and above[start - 1]:
        start -= 1
    text = (
        f"{whose}From layer {int(part['layer'].iloc[start])} on the head does better than always giving the most "
        f"frequent class ({metric} {number(guess)})."
    )
    return [Finding(text, f"95% intervals, widened for {len(part)} layers, lie above it{rows(n)}", True, DETAIL)]


def count_blocks(count: int) -> str:
    """Return `one block`, `3 blocks`."""
    return "one block" if count == 1 else f"{count} blocks"


MODES = ("untuned", "patched", "tuned", "tunedorig")
_TRAINED = ("tuned", "tunedorig")


def truncation_curve(
    model: ModelSource,
    task: TaskSource,
    *,
    mode: str | Sequence[str] = "untuned",
    base: ModelSource | None = None,
    texts: TaskSource | None = None,
    other: TaskSource | None = None,
    split: str | None = None,
    limit: int | None = None,
    max_length: int | None = None,
    batch_tokens: int | None = None,
    all_rows: bool = False,
    train_limit: int | None = None,
    learning_rate: float | None = None,
    epochs: int | None = None,
    max_steps: int | None = None,
    batch: int | None = None,
    warmup: int | None = None,
    seed: int | None = None,
) -> Truncation:
    """Put the head on every layer 0..L in turn, by one forward over the data and not L + 1.

    The result is kept in the store; a killed command goes on where it was.

    Args:
        model: A checkpoint whose head can answer the task: a folder, a hub id, `id@revision`, a GGUF file or a `Model`.
        task: A task of the registry (`layerscope tasks` lists them), a file, a folder, a hub id, or a `Task`.
        mode: `untuned` trains nothing: the tuned head reads every layer. `patched` trains nothing either: what each cut
            takes away is solved for, on `texts`. `tuned` trains the tuned head further on each frozen layer,
            `tunedorig` a new head on each layer of the untuned model `base`. Several, separated by commas, become
            curves of one figure: `untuned,patched,tuned`.
        base: The untuned model, for `tunedorig`.
        texts: Unlabelled texts, for `patched`: a task, a file, ..; the task's own training texts if not given. None of
            them is scored.
        other: For `patched`: texts of another domain, on which a patch must not be worse than the plain cut either.
        split: The split; `validation` where there is one, else the only one.
        limit: Use only the first N examples.
        max_length: The longest text in tokens: what the model allows, at most 512 (running text: 2,048); where
            heads are trained, 128.
        batch_tokens: Tokens per batch, padding included.
        all_rows: Also score the rows that the model learned from.
        train_limit: Where heads are trained or patches solved: use only the first N training examples (patches:
            2,500 if not given).
        learning_rate: Where heads are trained: 1e-3 if not given.
        epochs: Where heads are trained: 10 if not given.
        max_steps: Where heads are trained: how many steps, instead of epochs.
        batch: Where heads are trained: texts per step; 32 if not given.
        warmup: Where heads are trained: over how many steps the learning rate rises first; none if not given.
        seed: Where heads are trained: decides new heads and the order of rows; 0 if not given.

    Returns:
        A `Truncation`, whose `frame` has the columns layer, score, majority (always the most frequent class), low and
        high (95 % by the bootstrap over texts), over_whole (how much better it is than the head on the last layer, row
        by row on the same texts; below 0 is worse) with the ends of its 95% interval, over_whole_low and
        over_whole_high, parameters and macs (multiply-adds of a text of 128 tokens) of the model cut there.

    Example:
        >>> import layerscope as ls
        >>> tuned = ls.tune("garden:bert-s0", "pydocs", max_steps=2, train_limit=64, validation_limit=32, max_length=16)
        >>> curve = ls.truncation_curve(tuned.model, "pydocs", limit=32, max_length=16)
        >>> list(curve.frame["layer"])[:3]
        [0, 1, 2]
    """
    modes = [name.strip() for name in mode.split(",")] if isinstance(mode, str) else list(mode)
    for name in modes:
        choose("mode", name, MODES)
    if not modes or len(set(modes)) < len(modes):
        raise InputError(f"mode is {mode!r}; name one of {', '.join(MODES)}, or several, each once.")
    if (base is not None) != ("tunedorig" in modes):
        raise InputError("base=, the untuned model, belongs to mode='tunedorig', which needs it.")
    if texts is not None and "patched" not in modes:
        raise InputError("texts= (--texts) are for mode='patched'; give that mode, or leave them out.")
    if other is not None and "patched" not in modes:
        raise InputError("other= (--other) is for mode='patched'; give that mode, or leave it out.")
    training: dict[str, Any] = {"learning_rate": learning_rate, "epochs": epochs, "batch": batch, "seed": seed}
    training |= {"max_steps": max_steps, "warmup": warmup}
    training = {name: value for name, value in training.items() if value is not None}
    given = training if train_limit is None else {**training, "train_limit": train_limit}
    learning = {*_TRAINED, "patched"} if not training else {*_TRAINED}  # patches are solved on training texts
    if given and not set(modes) & learning:
        raise InputError(f"mode={mode!r} trains nothing, so it has no option {next(iter(given))!r}.")
    given_rows: dict[str, Any] = {"split": split, "limit": limit, "all_rows": all_rows}
    given_rows |= {"max_length": max_length, "batch_tokens": batch_tokens}
    used: PatchTexts | None = None
    if "patched" in modes:
        data = open_task(task)
        model = load_whole(model, "patching")  # once: texts that patch are read by the network that is patched
        used = texts_of(model, data if texts is None else texts, other, data, limit=train_limit)
    evaluator = make_evaluator(model, task, **given_rows, used=() if used is None else used.used)
    curves = {}
    for name in modes:
        if name == "untuned":
            logits = sweep(evaluator, truncations(evaluator.model.depth), f"truncation of {evaluator.model.name}")
            made = _scored(evaluator, logits)
        elif used is not None and name == "patched":
            made = _scored(evaluator, _patched_logits(evaluator, used))
        else:
            untuned = load(base) if base is not None and name == "tunedorig" else None
            made = _tuned(evaluator, name, untuned, max_length or 128, train_limit, HeadTraining.read(training))
        scores, bounds, left_out, over = made
        frame = _frame(evaluator, truncations(evaluator.model.depth), scores, bounds, over)
        frame.insert(0, "layer", range(evaluator.model.depth + 1))
        frame.insert(2, "majority", evaluator.majority)
        curves[name] = Truncation(frame, evaluator.provenance(mode=name, **given), left_out)
    return curves[modes[0]] if len(modes) == 1 else Truncation.together(curves)


# For each layer a score, its interval, scores without groups of texts, and the difference from the last layer's.
_Scored = tuple[list[float], np.ndarray, np.ndarray, np.ndarray]


def _scored(evaluator: Evaluator, logits: np.ndarray) -> _Scored:
    scores = [evaluator.value(part) for part in logits]
    over = differences(evaluator, logits[:-1], logits[-1])
    return scores, _bounds(evaluator, logits), without_groups(evaluator, logits), np.vstack([over, _SAME])


def _patched_logits(evaluator: Evaluator, texts: PatchTexts) -> np.ndarray:
    """Return what the head on every layer answers where each cut has its patch."""
    plans = truncations(evaluator.model.depth)
    patches = Patches(evaluator.model, plans[:-1], texts).solved()
    if dropped := [patch for patch in patches if not patch.applied]:
        layers = ", ".join(str(len(patch.plan.keep)) for patch in dropped)
        log.info("No patch is applied with the head on layers %s: %s.", layers, dropped[-1].notes[-1])
    variants = [Variant(patch.plan, patch.folds) for patch in patches]
    return answers(evaluator, evaluator.model, [*variants, Variant(plans[-1])])[1:]


def _tuned(
    evaluator: Evaluator,
    mode: str,
    base: Model | None,
    max_length: int,
    train_limit: int | None,
    training: HeadTraining,
) -> _Scored:
    """Return what heads score that are trained on every layer."""
    if not isinstance(evaluator, ClassificationEvaluator):
        raise InputError(
            f"mode={mode!r} trains heads for classes, numbers and choices, and {evaluator.model.name} is asked for "
            f"{evaluator.metric}; leave mode out: its own head reads every layer."
        )
    source = evaluator.model if base is None else base
    check_same(evaluator.model, source)
    heads = TrainedHeads(
        source,
        evaluator.task,
        evaluator.examples,
        new_head=base is not None,
        max_length=max_length,
        train_limit=train_limit,
        training=training,
    )
    return heads.scores().tolist(), heads.bounds(), heads.left_out(), np.vstack([heads.differences(), _SAME])


def skip_map(
    model: ModelSource,
    task: TaskSource,
    *,
    max_span: int | None = None,
    split: str | None = None,
    limit: int | None = None,
    max_length: int | None = None,
    batch_tokens: int | None = None,
    all_rows: bool = False,
) -> SkipMap:
    """Score a model without each contiguous span of blocks first..last, nothing trained; prefixes are shared.

    Args:
        model: A checkpoint whose head can answer the task: a folder, a hub id, `id@revision`, a GGUF file or a `Model`.
        task: A task of the registry (`layerscope tasks` lists them), a file, a folder, a hub id, or a `Task`.
        max_span: How many blocks are left out at once, at most.
        split: The split; `validation` where there is one, else the only one.
        limit: Use only the first N examples.
        max_length: The longest text in tokens: what the model allows, at most 512 (running text: 2,048).
        batch_tokens: Tokens per batch, padding included.
        all_rows: Also score the rows that the model learned from.

    Returns:
        A `SkipMap`, whose `frame` has the columns first, last, score, whole (the score of the whole model), low and
        high (95 % by the bootstrap over texts), over_whole (how much better it is than the whole model, row by row on
        the same texts; below 0 is worse) with the ends of its 95% interval, over_whole_low and over_whole_high,
        parameters and macs.

    Example:
        >>> import layerscope as ls
        >>> tuned = ls.tune("garden:bert-s0", "pydocs", max_steps=2, train_limit=64, validation_limit=32, max_length=16)
        >>> len(ls.skip_map(tuned.model, "pydocs", max_span=1, limit=32, max_length=16).frame)
        12
    """
    given_rows: dict[str, Any] = {"split": split, "limit": limit, "all_rows": all_rows}
    evaluator = make_evaluator(model, task, **given_rows, max_length=max_length, batch_tokens=batch_tokens)
    depth = evaluator.model.depth
    ranges = contiguous(depth, max_span)
    plans = [LayerPlan.skipped(depth, first, last) for first, last in ranges]
    logits = sweep(evaluator, [*plans, LayerPlan.truncated(depth, depth)], f"skip map of {evaluator.model.name}")
    *scores, whole = (evaluator.value(part) for part in logits)
    over = differences(evaluator, logits[:-1], logits[-1])
    frame = _frame(evaluator, plans, scores, _bounds(evaluator, logits[:-1]), over)
    frame.insert(0, "first", [first for first, _ in ranges])
    frame.insert(1, "last", [last for _, last in ranges])
    frame.insert(3, "whole", whole)
    return SkipMap(frame, evaluator.provenance(max_span=max_span), without_groups(evaluator, logits[:-1]))


def truncations(depth: int) -> list[LayerPlan]:
    """Return the plans that put the head on layers 0, 1, .. L."""
    return [LayerPlan.truncated(depth, keep) for keep in range(depth + 1)]


def contiguous(depth: int, max_span: int | None = None) -> list[tuple[int, int]]:
    """Return every span of blocks first..last, of at most `max_span` blocks."""
    if max_span is not None and (not whole(max_span) or not 1 <= max_span <= depth):
        raise InputError(f"max_span is {max_span}; this model has {depth} blocks, so 1..{depth} are allowed.")
    most = max_span or depth
    return [(i, j) for i in range(1, depth + 1) for j in range(i, min(i + most, depth + 1))]


def _bounds(evaluator: Evaluator, logits: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """Return (plans, 2): an interval over texts for every score; NaN where the score is undefined."""
    defined = [not np.isnan(evaluator.value(part)) for part in logits]
    return np.asarray([evaluator.interval(p) if k else (np.nan, np.nan) for p, k in zip(logits, defined, strict=True)])


_SAME = np.asarray([[0.0, np.nan, np.nan]])  # the difference of the whole model from itself, which needs no test


def _frame(
    evaluator: Evaluator, plans: list[LayerPlan], scores: list[float], bounds: np.ndarray, over: np.ndarray
) -> pandas.DataFrame:
    """Return the table with score, interval, difference from the whole model and cost of each plan."""
    import pandas

    costs = Costs(evaluator.model)
    columns = {
        "score": scores,
        "low": bounds[:, 0],
        "high": bounds[:, 1],
        **dict(zip(_OVER, over.T, strict=True)),
        "parameters": [costs.parameters(plan) for plan in plans],
        "macs": [costs.macs(plan) for plan in plans],
    }
    source = {"task": evaluator.task.name, "split": evaluator.examples.split, "metric": evaluator.metric}
    return pandas.DataFrame(columns).assign(**source, n=len(evaluator.examples))
