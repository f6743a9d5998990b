"""Statistics of scores, in points: a hundredth of the metric. Higher is better in all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from layerscope import metrics
from layerscope.evaluation.classification import ClassificationEvaluator
from layerscope.evaluation.evaluator import without_groups
from layerscope.recipes.claims import Statistic
from layerscope.recipes.statistics.learning import unlearned
from layerscope.recipes.statistics.registry import Range, Values, estimated, register, result, within
from layerscope.tuning.strategy import Strategy

_LEAST_TEXTS = 3  # where no text of n is answered otherwise, up to 3 in n may be (the rule of three, at 95 %)


@register("points")
def blocks_lost(values: Values, of: str, share: float) -> Statistic:
    """How many points are lost when the head reads the layer below the top share of the blocks, nothing trained."""
    curve = result(values, of)
    top = int(curve.frame["layer"].max())
    places = {int(layer): k for k, layer in enumerate(curve.frame["layer"])}
    kept = top - max(1, round(share * top))
    note = f"layer {kept} of {top}"
    return _points([curve], lambda scores: scores[places[top]] - scores[places[kept]], note)


@register("points")
def recovered(values: Values, of: str, over: str, layers: Range) -> Statistic:
    """How many points one truncation curve lies above another, on average over a range of layers."""
    curves = [result(values, name) for name in (of, over)]
    if not np.array_equal(curves[0].frame["layer"], curves[1].frame["layer"]):
        return Statistic.missing("the two curves are not of the same layers")
    layer = np.asarray(curves[0].frame["layer"])
    at = within(layer, layers, int(layer.max()))
    return _points(curves, lambda first, second: np.mean(first[at] - second[at]))


@register("points")
def skipping(values: Values, of: str, first: Range | int, second: Range) -> Statistic:
    """How many points more it costs to leave out a block of one range of depth than one of another, on average.

    A number instead of the first range is a block; the second then goes without it.
    """
    skips = result(values, of)
    frame, top = skips.frame, int(skips.frame["last"].max())
    single = np.asarray(frame["first"] == frame["last"])
    blocks = np.asarray(frame["first"])
    if np.ptp(frame["score"].to_numpy(dtype=float)[single]) == 0:  # a block that is run again and again, say
        return Statistic.missing("the model scores the same without any one of its blocks")
    costly = blocks == first if isinstance(first, int) else within(blocks, first, top)
    cheap = within(blocks, second, top) & ~costly
    return _points([skips], lambda scores: np.mean(scores[single & cheap]) - np.mean(scores[single & costly]))


def _points(curves: Sequence[Any], value: Callable[..., Any], note: str = "") -> Statistic:
    """Return a function of scores of the same texts as a statistic in points, text for text."""
    frames = [curve.frame for curve in curves]
    refused = _no_points(str(frames[0]["metric"].iloc[0]))
    if refused is not None:
        return refused
    n = {int(frame["n"].iloc[0]) for frame in frames}
    if len(n) > 1:
        return Statistic.missing("the scores are not of the same texts")
    whole = 100 * float(value(*(frame["score"].to_numpy(dtype=float) for frame in frames)))
    groups = None
    if all(curve.left_out is not None for curve in curves):
        groups = np.asarray([100 * float(value(*parts)) for parts in zip(*(c.left_out for c in curves), strict=True)])
    least = 100 * _LEAST_TEXTS / min(n)
    return estimated(whole, groups, n=min(n), least=least, note=note, undefined="a score that it needs is undefined")


def _no_points(metric: str) -> Statistic | None:
    """Return why a metric has no points, or None where it has."""
    if metrics.higher_is_better(metric):
        return None
    return Statistic.missing(f"points are of scores such as accuracy, and {metric} is none")


@register("points")
def strategy_gap(
    values: Values, of: str, better: str, worse: str, method: str = "finetune", as_many: bool = False
) -> Statistic:
    """How many points one strategy scores above another, both averaged over seeds, text for text; seeds in the note.

    A strategy that was not asked for by its name is looked for by its blocks and head. With `as_many` both must tune as
    many blocks, which (l*-2, l*, L) does not where l* is below 3.
    """
    study = result(values, of)
    frame = study.frame
    depth = study.trainings[0].trainings[0].job.training_data.model.depth
    of_method = {k: row for k, row in enumerate(frame.itertuples()) if row.method == method}
    places = {row.resolved: k for k, row in of_method.items()} | {row.strategy: k for k, row in of_method.items()}
    names = [name if name in places else _in_numbers(name, depth) for name in (better, worse)]
    for asked, name in zip((better, worse), names, strict=True):
        if name not in places:
            trained = ", ".join(_named(row) for row in of_method.values())
            others = f"with {method} there were: {trained}" if of_method else f"nothing was tuned with {method}"
            return Statistic.missing(f"the strategy {asked} was not trained; {others}")
    sides = [study.trainings[places[name]].trainings for name in names]
    resolved = [str(side[0].job.strategy) for side in sides]
    if resolved[0] == resolved[1]:
        return Statistic.missing(f"{names[0]} and {names[1]} are the same strategy here, {resolved[0]}")
    counts = [len(side[0].job.strategy.blocks) for side in sides]
    if as_many and counts[0] != counts[1]:
        return Statistic.missing(
            f"{names[0]} is {resolved[0]} here and {names[1]} {resolved[1]}: they do not tune as many blocks"
        )
    refused = _no_points(str(sides[0][0].metric))
    if refused is not None:
        return refused
    reasons = [unlearned(training) for side in sides for training in side]
    if all(reasons):
        return Statistic.missing(reasons[0])
    by_seed = [100 * (a.score - b.score) for a, b in zip(*sides, strict=True)]
    note = "; ".join([" against ".join(resolved), "seed by seed " + ", ".join(f"{gap:.2f}" for gap in by_seed)])
    groups = [np.mean([_without_groups(training) for training in side], axis=0) for side in sides]
    n = len(sides[0][0].job.training_data.validation)
    least = 100 * _LEAST_TEXTS / n
    return estimated(float(np.mean(by_seed)), 100 * (groups[0] - groups[1]), n=n, least=least, note=note)


def _named(row: Any) -> str:
    """Return a strategy as it was asked for, with its blocks and head."""
    return row.strategy if row.strategy == row.resolved else f"{row.strategy} as {row.resolved}"


def _in_numbers(name: str, depth: int) -> str:
    """Return a strategy's blocks and head, where they follow from the depth alone."""
    strategy = Strategy.parse(name)
    return name if strategy.needs_best else str(strategy.resolve(depth, quiet=True))


def _without_groups(training: Any) -> np.ndarray:
    """Return the score of a tuned model on its validation rows, without each group of texts."""
    job = training.job
    evaluator = ClassificationEvaluator(
        job.reopened(training.path),
        job.training_data.task,
        job.training_data.validation,
        job.hyperparameters.max_length,
    )
    return without_groups(evaluator, [evaluator.logits(note=False)])[:, 0]


@register("points")
def injected(values: Values, of: str, method: str, less: str | None = None) -> Statistic:
    """How many points the target loses when its top layer is replaced by the source's, mapped; less those of `less`.

    Text for text, both what is lost and, of two methods, by how much more.
    """
    study = result(values, of)
    frame = study.frame
    refused = _no_points(str(frame["metric"].iloc[0]))
    if refused is not None:
        return refused
    highest = np.asarray(frame["layer"] == frame["layer"].max())
    places = []
    for name in (method, less):
        at = np.flatnonzero(highest & np.asarray(frame["method"] == name))
        if name is not None and not len(at):
            return Statistic.missing(f"{name} was not among the methods, or cannot map these layers")
        places += at[:1].tolist()

    def value(lost: np.ndarray) -> float:
        return 100 * float(lost[places[0]] - sum(lost[places[1:]]))

    groups = None if study.left_out is None else np.asarray([value(lost) for lost in study.left_out.T])
    n = int(frame["n"].iloc[places[0]])
    return estimated(value(frame["lost"].to_numpy(dtype=float)), groups, n=n, least=100 * _LEAST_TEXTS / n)


@register("share")
def cheaper(
    values: Values, of: str, strategy: str, than: str = "full", column: str = "backward", frozen: float | None = None
) -> Statistic:
    """The share of multiply-adds that a strategy takes of another's: counted, so without an interval's doubt.

    `frozen` is the share of the blocks that it must leave as they are; a strategy that names a number of blocks leaves
    another share of a deeper model.
    """
    frame = result(values, of).frame.set_index("strategy")
    for name in (strategy, than):
        if name not in frame.index:
            return Statistic.missing(f"the strategy {name} is none that this model can have")
    depth = int(frame.loc[than, "head"])
    left = depth - len(Strategy.parse(frame.loc[strategy, "resolved"]).resolve(depth, quiet=True).blocks)
    if frozen is not None and left != frozen * depth:
        return Statistic.missing(f"{strategy} leaves {left} of {depth} blocks as they are, not {frozen:g} of them")
    share = float(frame.loc[strategy, column] / frame.loc[than, column])
    return Statistic(share, share, share, note="counted")
