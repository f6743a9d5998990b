"""The statistics that decide claims: functions of the results of an experiment's calls, with intervals over texts.

Each takes the results by the names of their calls. A function of similarities has its interval by the jackknife over the
groups of texts that `ls.compare(.., ci=..)` left out; scores and errors bring intervals of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.data.resampling import jackknifed
from layerscope.errors import unknown
from layerscope.recipes.claims import Statistic
from layerscope.recipes.recipe import REFERENCE, resolved

if TYPE_CHECKING:
    import pandas

    from layerscope.similarity.similarity import Similarity

Values = Mapping[str, Any]
Range = tuple[float, float]  # of depth: 0 is below the first block, 1 the top layer
_EPSILON = 1e-9
STATISTICS: dict[str, Callable[..., Statistic]] = {}


def statistic(name: str) -> Callable[..., Statistic]:
    """The statistic of that name."""
    if name not in STATISTICS:
        raise unknown("statistic", name, STATISTICS)
    return STATISTICS[name]


def _result(values: Values, name: str) -> Any:
    """The result of a call; what follows a dot is a part of it, as `states.cka`."""
    return resolved(f"{REFERENCE}{name}", values)


def _register(function: Callable[..., Statistic]) -> Callable[..., Statistic]:
    STATISTICS[function.__name__] = function
    return function


# Of similarities


@_register
def block_strength(values: Values, of: str) -> Statistic:
    """How much more alike layers are within blocks than across them, with the p-value against gradual change."""
    cut = _result(values, of)
    p = "no p-value" if math.isnan(cut.p_value) else f"p = {cut.p_value:.3g}"
    return Statistic(cut.strength, cut.low, cut.high, n=cut.similarity.n, note=p)


@_register
def most_alike(values: Values, of: str, layers: Range = (1, 1)) -> Statistic:
    """The similarity of some rows of a matrix to the column that is most like each, on average."""
    similarity = _result(values, of)
    rows = _within(similarity.row_axis.layers, layers)
    return _of_matrices([similarity], lambda s: float(np.nanmean(np.nanmax(s[rows], axis=1))))


@_register
def diagonal(values: Values, of: str, layers: Range, minus: Range | None = None) -> Statistic:
    """The mean similarity of layers of the same depth, in a range of depths; less that of another range."""
    similarity = _result(values, of)
    places = [_within(similarity.row_axis.layers, part) for part in (layers, minus) if part is not None]

    def value(matrix: np.ndarray) -> float:
        along = np.diagonal(matrix)
        means = [float(np.nanmean(along[place])) for place in places]
        return means[0] - sum(means[1:])

    return _of_matrices([similarity], value)


@_register
def neighbours_alike(values: Values, of: str) -> Statistic:
    """The mean similarity of each layer with the next, less that of layers half the depth apart."""
    similarity = _result(values, of)
    half = max(2, (len(similarity.row_axis) - 1) // 2)

    def value(matrix: np.ndarray) -> float:
        return float(np.nanmean(np.diagonal(matrix, 1)) - np.nanmean(np.diagonal(matrix, half)))

    return _of_matrices([similarity], value)


@_register
def same_family(
    values: Values, of: str, families: Mapping[str, Sequence[str]], less: str | None = None
) -> Statistic:
    """Layers of the same depth: their similarity within a family less that across families; less the same of `less`."""
    matrices = [_result(values, name) for name in (of, less) if name is not None]
    groups = {model: family for family, models in families.items() for model in models}
    axis = matrices[0].row_axis
    family = np.asarray([groups.get(model, model) for model in axis.models])
    model = np.asarray(axis.models)
    aligned = np.equal.outer(_depths(axis), _depths(axis)) & np.not_equal.outer(model, model)
    alike = np.equal.outer(family, family)
    if not (aligned & alike).any() or not (aligned & ~alike).any():
        return Statistic.missing("there are not two models of one family and two families among those that were run")

    def value(*parts: np.ndarray) -> float:
        each = [float(np.nanmean(m[aligned & alike]) - np.nanmean(m[aligned & ~alike])) for m in parts]
        return each[0] - sum(each[1:])

    return _of_matrices(matrices, value)


@_register
def across_models(values: Values, of: str, layers: Range, minus: Range | None = None) -> Statistic:
    """The mean similarity of different models' layers of the same depth in a range; less that in another range."""
    similarity = _result(values, of)
    axis = similarity.row_axis
    models, depth = np.asarray(axis.models), _depths(axis)
    aligned = np.equal.outer(depth, depth) & np.not_equal.outer(models, models)
    ranges = [part for part in (layers, minus) if part is not None]
    parts = [aligned & ((low - _EPSILON <= depth) & (depth <= high + _EPSILON))[:, None] for low, high in ranges]
    if not aligned.any():
        return Statistic.missing("one model alone was run")

    def value(matrix: np.ndarray) -> float:
        means = [float(np.nanmean(matrix[part])) for part in parts]
        return means[0] - sum(means[1:])

    return _of_matrices([similarity], value)


@_register
def localization_trend(values: Values, neuron: str, svcca: str) -> Statistic:
    """Spearman's correlation of a layer's depth with how localised it is, averaged over models."""
    from scipy.stats import spearmanr

    first, second = _result(values, neuron), _result(values, svcca)
    axis = first.row_axis
    models, depth = np.asarray(axis.models), _depths(axis)

    def value(one: np.ndarray, other: np.ndarray) -> float:
        localised = _to_others(one) - _to_others(other)
        each = [_spearman(depth[models == m], localised[models == m], spearmanr) for m in dict.fromkeys(models)]
        return float(np.nanmean(each))

    return _of_matrices([first, second], value)


def _spearman(x: np.ndarray, y: np.ndarray, correlate: Any) -> float:
    known = ~np.isnan(y)
    return float(correlate(x[known], y[known]).statistic) if known.sum() > 2 else math.nan


def _to_others(matrix: np.ndarray) -> np.ndarray:
    off = matrix.copy()
    np.fill_diagonal(off, np.nan)
    return np.nanmean(off, axis=1)


def _of_matrices(similarities: Sequence[Similarity], value: Callable[..., float]) -> Statistic:
    """A function of matrices, with its interval from the same function of the matrices without each group of texts."""
    whole = value(*(s.values for s in similarities))
    n = min(s.n for s in similarities)
    if math.isnan(whole):
        return Statistic.missing("the similarities that it is made of are undefined")
    if any(s.left_out is None for s in similarities):
        return Statistic(whole, n=n)
    groups = zip(*(s.left_out for s in similarities), strict=True)
    half = float(jackknifed(np.asarray([value(*parts) for parts in groups])))
    return Statistic(whole, whole - half, whole + half, n=n)


def _depths(axis: Any) -> np.ndarray:
    """The depth of each layer in its model, from 0 to 1."""
    layers, models = np.asarray(axis.layers, dtype=float), np.asarray(axis.models)
    top = np.asarray([layers[models == model].max() for model in models])
    return np.round(layers / np.maximum(top, 1), 3)


def _within(layers: Sequence[int], part: Range) -> np.ndarray:
    depth = np.asarray(layers, dtype=float) / max(max(layers), 1)
    return (part[0] - _EPSILON <= depth) & (depth <= part[1] + _EPSILON)


# Of scores


@_register
def blocks_lost(values: Values, of: str, share: float) -> Statistic:
    """How many points are lost when the head reads the layer below the top share of the blocks, nothing trained."""
    frame = _result(values, of).frame
    depth = int(frame["layer"].max())
    kept = depth - max(1, round(share * depth))
    return _points(_scored(frame, "layer", depth).minus(_scored(frame, "layer", kept)))


@_register
def recovered(values: Values, of: str, over: str, layers: Range) -> Statistic:
    """How many points one truncation curve lies above another, on average over a range of layers."""
    first, second = _result(values, of).frame, _result(values, over).frame
    at = [int(layer) for layer in np.asarray(first["layer"])[_within(list(first["layer"]), layers)]]
    parts = [_scored(first, "layer", layer).minus(_scored(second, "layer", layer)) for layer in at]
    return _points(_mean(parts))


@_register
def skipping(values: Values, of: str, first: Range, second: Range) -> Statistic:
    """How many points more it costs to leave out a block of one range of depths than one of another, on average."""
    frame = _result(values, of).frame
    single = frame[frame["first"] == frame["last"]]
    blocks = np.asarray(single["first"])
    scores = [[_scored(single, "first", int(b)) for b in blocks[_within(list(blocks), part)]] for part in (first, second)]
    return _points(_mean(scores[1]).minus(_mean(scores[0])))


@_register
def score_gap(values: Values, of: str, minus: str) -> Statistic:
    """How many points one score lies above another on the same texts."""
    return _points(_of_score(_result(values, of)).minus(_of_score(_result(values, minus))))


@_register
def strategy_gap(values: Values, of: str, better: str, worse: str, method: str = "finetune") -> Statistic:
    """How many points one strategy scores above another, both averaged over seeds. The interval is over texts."""
    study = _result(values, of)
    frame = study.frame
    places = {row.strategy: k for k, row in enumerate(frame.itertuples()) if row.method == method}
    missing = [name for name in (better, worse) if name not in places]
    if missing:
        return Statistic.missing(f"the strategy {missing[0]} is none that this model can have")
    return _points(_of_trainings(study.trainings[places[better]]).minus(_of_trainings(study.trainings[places[worse]])))


def _of_trainings(trainings: Any) -> Statistic:
    """The mean score over seeds; accuracies have an interval over texts."""
    first = trainings.trainings[0]
    score, n = float(trainings.mean), len(first.job.lesson.validation)
    half = 1.96 * math.sqrt(score * (1 - score) / n) if first.metric == "accuracy" else math.nan
    return Statistic(score, score - half, score + half, n=n)


@_register
def injected(values: Values, of: str, method: str) -> Statistic:
    """How many points the target loses when its top layer is replaced by the source's, mapped."""
    frame = _result(values, of).frame
    rows = frame[(frame["layer"] == frame["layer"].max()) & (frame["method"] == method)]
    if not len(rows):
        return Statistic.missing(f"{method} cannot map these layers")
    row = rows.iloc[0]
    own = Statistic(*(float(row[f"target_{name}"]) for name in ("score", "low", "high")), n=int(row["n"]))
    return _points(own.minus(Statistic(*(float(row[name]) for name in ("score", "low", "high")), n=int(row["n"]))))


def _of_score(score: Any) -> Statistic:
    sign = 1 if score.higher_is_better else -1
    bounds = sorted(sign * float(getattr(score, name, math.nan)) for name in ("low", "high"))
    return Statistic(sign * float(score), *bounds, n=score.n)


def _scored(frame: pandas.DataFrame, column: str, value: int) -> Statistic:
    """A row's score, higher is better, with its interval where the table has one."""
    row = frame[frame[column] == value].iloc[0]
    low, high = (float(row.get(name, math.nan)) for name in ("low", "high"))
    return Statistic(float(row["score"]), low, high, n=int(row["n"]))


def _points(statistic: Statistic) -> Statistic:
    value, low, high = (100 * each for each in (statistic.value, statistic.low, statistic.high))
    return Statistic(value, low, high, statistic.reason, statistic.n)


def _mean(parts: Sequence[Statistic]) -> Statistic:
    """The mean of some statistics of the same texts: their errors may all go one way, so half-widths are averaged."""
    if not parts:
        return Statistic.missing("there are no such layers")
    low, value, high = (float(np.mean([getattr(p, name) for p in parts])) for name in ("low", "value", "high"))
    return Statistic(value, low, high, n=min(p.n for p in parts))


# Of alignments


@_register
def error_gap(
    values: Values,
    of: str,
    layers: Range = (0, 1),
    method: str = "linear",
    minus: str | None = None,
    minus_layers: Range | None = None,
    minus_method: str | None = None,
) -> Statistic:
    """The mean relative error on held-out rows, less that of another study, other layers or another method."""
    first = _error(_result(values, of).frame, layers, method)
    second = _error(_result(values, minus or of).frame, minus_layers or layers, minus_method or method)
    return first.minus(second)


def _error(frame: pandas.DataFrame, layers: Range, method: str) -> Statistic:
    rows = frame[(frame["split"] == "test") & (frame["method"] == method) & (frame["layer"] == frame["target_layer"])]
    rows = rows[_within(list(rows["layer"]), layers)] if len(rows) else rows
    if not len(rows):
        return Statistic.missing(f"{method} has no error on these layers")
    names = ("relative", "relative_low", "relative_high")
    each = [Statistic(*(float(row[name]) for name in names), n=int(row["n"])) for row in rows.to_dict("records")]
    return _mean(each)


@_register
def recovers(values: Values, of: str, truth: str, method: str) -> Statistic:
    """The largest relative error, over repeats without noise, of a method that has to find a map of a known kind."""
    frame = _result(values, of).frame
    rows = frame[(frame["truth"] == truth) & (frame["method"] == method) & (frame["noise"] == 0)]
    if "split" in rows:
        rows = rows[rows["split"] == "test"]
    if not len(rows):
        return Statistic.missing(f"{method} was not tried on {truth}")
    worst = rows.loc[rows["relative"].idxmax()]
    low, high = (float(worst.get(f"relative_{name}", worst["relative"])) for name in ("low", "high"))
    return Statistic(float(worst["relative"]), low, high, n=int(worst.get("n", 0)))


# Of curves


@_register
def curves_agree(values: Values, of: str, over: str | None = None, which: str = "pearson") -> Statistic:
    """The size of the correlation of two curves over layers; less that of two others."""
    first = _agreed(_result(values, of), which)
    return first if over is None else first.minus(_agreed(_result(values, over), which))


def _agreed(agreement: Mapping[str, Any], which: str) -> Statistic:
    if agreement["note"]:
        return Statistic.missing(str(agreement["note"]).rstrip("."))
    value, (low, high) = float(agreement[which]), agreement["intervals"][which]
    if math.isnan(value):
        return Statistic.missing("one of the curves does not vary")
    sizes = sorted((abs(low), abs(high)))
    return Statistic(abs(value), 0.0 if low <= 0 <= high else sizes[0], sizes[1], n=int(agreement["n"]))


@_register
def still_agrees(values: Values, of: str) -> Statistic:
    """The size of nu's correlation with probes in the hardest setting (the last), less that in the easiest."""
    settings = _result(values, of).settings
    rho = settings["rho"].abs()
    return Statistic(float(rho.iloc[-1] - rho.iloc[0]), n=int(settings["n"].iloc[-1]), note=f"{settings['setting'].iloc[-1]}")


@_register
def cheaper(values: Values, of: str, strategy: str, than: str = "full", column: str = "backward") -> Statistic:
    """The share of multiply-adds that a strategy takes of another's: counted, not measured."""
    frame = _result(values, of).frame.set_index("strategy")
    share = float(frame.loc[strategy, column] / frame.loc[than, column])
    return Statistic(share, share, share)
