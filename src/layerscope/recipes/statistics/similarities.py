"""Statistics of similarities: how alike layers are within blocks, across models, at the same depth."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.recipes.claims import Statistic
from layerscope.recipes.statistics.registry import Range, Values, estimated, register, result, within
from layerscope.similarity.layer_blocks import strength_of

if TYPE_CHECKING:
    from layerscope.similarity.result import Axis, Similarity

_KIND = re.compile(r"(?=For[A-Z]|LMHead|Model$|DoubleHeads|PreTrained)")  # what follows a family in the name of a class


@register("similarity")
def block_strength(values: Values, of: str) -> Statistic:
    """How much more alike layers are within blocks than across them, with the p-value against gradual change."""
    cut = result(values, of)
    comparison = "more than gradual change gives" if cut.significant else "gradual change would give as much"
    p = "no p-value" if math.isnan(cut.p_value) else f"{comparison} (p = {cut.p_value:.3g})"
    return Statistic(cut.strength, cut.low, cut.high, n=cut.similarity.n, note=p)


@register("p-value")
def block_edge(values: Values, of: str) -> Statistic:
    """The p-value of the steps between blocks against gradual change. A large one leaves a claim undecided: it cannot
    tell a small edge from none."""
    cut = result(values, of)
    if math.isnan(cut.p_value):
        return Statistic.missing(cut.reasons["p_value"])
    if not cut.significant:
        return Statistic(cut.p_value, n=cut.similarity.n, note="a large p refutes nothing")
    return Statistic(cut.p_value, cut.p_value, cut.p_value, n=cut.similarity.n)


@register("similarity")
def stronger_blocks(values: Values, of: str, than: str) -> Statistic:
    """How much stronger the blocks of one matrix are than those of another of the same texts, each with its cuts."""
    cuts = [result(values, name) for name in (of, than)]

    def value(*matrices: np.ndarray) -> float:
        first, second = (_strength(m, cut.positions) for m, cut in zip(matrices, cuts, strict=True))
        return first - second

    statistic = _of_matrices([cut.similarity for cut in cuts], value)
    return statistic if statistic.reason else statistic.noted(" and ".join(f"{cut.strength:.3g}" for cut in cuts))


def _strength(matrix: np.ndarray, positions: Sequence[int]) -> float:
    """Return the mean of a symmetric matrix within blocks less that across them, a layer with itself left out."""
    both = (matrix + matrix.T) / 2
    np.fill_diagonal(both, np.nan)
    return float(strength_of(both, positions))


@register("similarity")
def most_alike(values: Values, of: str, layers: Range = (1, 1)) -> Statistic:
    """The similarity of some rows of a matrix to the column that is most like each, on average."""
    similarity = result(values, of)
    rows = _rows(similarity.row_axis, layers)
    return _of_matrices([similarity], lambda matrix: np.nanmean(np.nanmax(matrix[rows], axis=1)))


@register("similarity")
def diagonal(values: Values, of: str, layers: Range, minus: Range | None = None) -> Statistic:
    """The mean similarity of layers of the same number, in a range of depth; less that of another range."""
    similarity = result(values, of)
    places = [_rows(similarity.row_axis, part) for part in (layers, minus) if part is not None]

    def value(matrix: np.ndarray) -> float:
        means = [np.nanmean(np.diagonal(matrix)[place]) for place in places]
        return means[0] - sum(means[1:])

    return _of_matrices([similarity], value)


@register("similarity")
def corners(values: Values, of: str, low: Range = (0.01, 0.25), high: Range = (0.75, 1)) -> Statistic:
    """How much more alike late layers of two models are than early ones of one and late ones of the other."""
    similarity = result(values, of)
    axes = (similarity.row_axis, similarity.column_axis)
    (early, early_columns), (late, late_columns) = ([_rows(axis, part) for axis in axes] for part in (low, high))

    def value(matrix: np.ndarray) -> float:
        across = [matrix[np.ix_(early, late_columns)], matrix[np.ix_(late, early_columns)]]
        return np.nanmean(matrix[np.ix_(late, late_columns)]) - np.nanmean(np.concatenate([a.ravel() for a in across]))

    return _of_matrices([similarity], value)


@register("similarity")
def neighbours_alike(values: Values, of: str) -> Statistic:
    """The similarity of each layer with the next less that of layers half the depth apart, averaged over models."""
    similarity = result(values, of)
    models = np.asarray(similarity.row_axis.models)
    places_by_model = [np.flatnonzero(models == model) for model in dict.fromkeys(models)]

    def value(matrix: np.ndarray) -> Any:
        return np.mean([_neighbours(matrix[np.ix_(places, places)]) for places in places_by_model])

    return _of_matrices([similarity], value)


def _neighbours(matrix: np.ndarray) -> float:
    half = max(2, (len(matrix) - 1) // 2)
    return float(np.nanmean(np.diagonal(matrix, 1)) - np.nanmean(np.diagonal(matrix, half)))


@register("similarity")
def same_family(
    values: Values,
    of: str,
    less: str | None = None,
    families: Mapping[str, str] | None = None,
    only: str = "",
) -> Statistic:
    """Layers of the same depth: how much more alike they are within a family than across; less the same of `less`.

    A family is a class of networks (`Bert`, `GPT2`), or what `families` calls it. `only` is how names of models begin.
    """
    matrices = [result(values, name) for name in (of, less) if name is not None]
    pairs = _Pairs(matrices[0], families or {}, only)
    inside, across = pairs.aligned & pairs.alike, pairs.aligned & ~pairs.alike
    if not inside.any() or not across.any():
        return Statistic.missing("it takes two models of one family and two families, and those were not run")

    def value(*parts: np.ndarray) -> float:
        each = [np.nanmean(matrix[inside]) - np.nanmean(matrix[across]) for matrix in parts]
        return each[0] - sum(each[1:])

    return _of_matrices(matrices, value)


@register("share")
def shared_across_models(values: Values, of: str, less: str) -> Statistic:
    """The mean similarity of layers of different models over that of layers of the same; less the same of `less`."""
    matrices = [result(values, name) for name in (of, less)]
    model = np.asarray(matrices[0].row_axis.models)
    same_model = np.equal.outer(model, model)
    across, inside = ~same_model, same_model & ~np.eye(len(model), dtype=bool)
    if not across.any() or not inside.any():
        return Statistic.missing("it takes two models with several layers, and those were not run")

    def value(*parts: np.ndarray) -> float:
        first, second = (np.nanmean(matrix[across]) / np.nanmean(matrix[inside]) for matrix in parts)
        return float(first - second)

    return _of_matrices(matrices, value)


@register("similarity")
def across_families(
    values: Values, of: str, layers: Range, minus: Range, families: Mapping[str, str] | None = None
) -> Statistic:
    """Layers of the same depth across families: their mean similarity in a range of depth less that in another.

    Pair of models by pair of models, and then averaged: a shallow model may have layers in one of the ranges only.
    """
    similarity = result(values, of)
    pairs = _Pairs(similarity, families or {})
    across = pairs.aligned & ~pairs.alike
    low, high = (across & within(pairs.depth, part, 1)[:, None] for part in (layers, minus))
    both = [
        (low & of_pair, high & of_pair)
        for of_pair in pairs.by_models()
        if (low & of_pair).any() and (high & of_pair).any()
    ]
    if not both:
        return Statistic.missing("it takes two families with layers of the same depth, and those were not run")

    def value(matrix: np.ndarray) -> float:
        return float(np.mean([np.nanmean(matrix[first]) - np.nanmean(matrix[second]) for first, second in both]))

    return _of_matrices([similarity], value)


@register("Spearman's correlation")
def localization_trend(values: Values, neuron: str, svcca: str) -> Statistic:
    """Spearman's correlation of a layer's depth with how localised it is, averaged over models."""
    from scipy.stats import spearmanr

    first, second = result(values, neuron), result(values, svcca)
    models, depth = np.asarray(first.row_axis.models), depths(first.row_axis)

    def value(one: np.ndarray, other: np.ndarray) -> float:
        localised = _to_others(one) - _to_others(other)
        each = []
        for model in dict.fromkeys(models):
            defined = (models == model) & ~np.isnan(localised)
            each.append(spearmanr(depth[defined], localised[defined]).statistic if defined.sum() > 2 else math.nan)
        return np.nanmean(each)

    return _of_matrices([first, second], value)


@register("localization")
def localization_change(values: Values, neuron: str, svcca: str, layers: Range) -> Statistic:
    """How much more localised some layers of the second model are than those of the first, on average."""
    first, second = result(values, neuron), result(values, svcca)
    models = np.asarray(first.row_axis.models)
    names = list(dict.fromkeys(models))
    if len(names) != 2:
        return Statistic.missing(f"it is about two models, and there are {len(names)}")
    chosen = [(models == name) & within(depths(first.row_axis), layers, 1) for name in names]

    def value(one: np.ndarray, other: np.ndarray) -> float:
        localised = _to_others(one) - _to_others(other)
        return np.nanmean(localised[chosen[1]]) - np.nanmean(localised[chosen[0]])

    return _of_matrices([first, second], value)


class _Pairs:
    """Which pairs of layers of different models have the same depth, and which are of one family."""

    def __init__(self, similarity: Similarity, families: Mapping[str, str], only: str = "") -> None:
        axis = similarity.row_axis
        model, family = np.asarray(axis.models), np.asarray(family_names(similarity, families))
        self.depth = depths(axis)
        wanted = np.asarray([name.startswith(only) for name in axis.models])
        self.aligned = np.equal.outer(self.depth, self.depth) & np.not_equal.outer(model, model)
        self.aligned &= np.logical_and.outer(wanted, wanted)
        self.alike = np.equal.outer(family, family)
        self._model = model

    def by_models(self) -> Iterator[np.ndarray]:
        """The pairs of layers of every pair of models, both ways round."""
        for first, second in combinations(dict.fromkeys(self._model), 2):
            one, other = self._model == first, self._model == second
            yield np.logical_and.outer(one, other) | np.logical_and.outer(other, one)


def family_names(similarity: Similarity, families: Mapping[str, str]) -> list[str]:
    """Return the family of every layer's model: what stands in the name of its class before `For..` or `Model`."""
    classes = {str(model["name"]): str(model["class"]) for model in similarity.provenance.get("models", ())}
    found = [_KIND.split(classes.get(name, name))[0] for name in similarity.row_axis.models]
    return [families.get(name, name) for name in found]


def depths(axis: Axis) -> np.ndarray:
    """Return the depth of each layer in its model, from 0 to 1."""
    layers, models = np.asarray(axis.layers, dtype=float), np.asarray(axis.models)
    top = np.asarray([layers[models == model].max() for model in models])
    return np.round(layers / np.maximum(top, 1), 3)


def _rows(axis: Axis, part: Range) -> np.ndarray:
    return within(axis.layers, part, max(axis.layers))


def _to_others(matrix: np.ndarray) -> np.ndarray:
    off = matrix.copy()
    np.fill_diagonal(off, np.nan)
    return np.nanmean(off, axis=1)


def _of_matrices(similarities: Sequence[Similarity], value: Callable[..., Any]) -> Statistic:
    """Return a function of matrices as a statistic, whose interval comes from the matrices without each group."""
    resampled = all(s.left_out is not None for s in similarities)
    groups = zip(*(s.left_out for s in similarities), strict=True) if resampled else None
    with np.errstate(invalid="ignore"):
        whole = float(value(*(s.values for s in similarities)))
        left_out = None if groups is None else np.asarray([float(value(*parts)) for parts in groups])
    n = min(s.n for s in similarities)
    return estimated(whole, left_out, n=n, undefined="the similarities that it is made of are undefined")
