"""Intervals and biases of similarities, from a jackknife that leaves out one group of texts at a time.

A bootstrap would not do: a row that is drawn twice is similar to itself on both sides, which raises every similarity.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np

from layerscope.errors import InputError, LayerscopeWarning, log
from layerscope.resampling import folds, jackknifed
from layerscope.similarity.execution_plan import GIB, Plan
from layerscope.similarity.layer_sources import LayerSource, Stored
from layerscope.similarity.matrices import Cells, Prepared, from_moments, from_sums, matrices_of
from layerscope.similarity.registry import measure
from layerscope.similarity.result import Similarity
from layerscope.similarity.row_means import RowSums

GROUPS = 20
_ROUNDING = 1e-8  # of a value; the bias is a difference of values many times over

Matrices = dict[str, Similarity]


@dataclass
class Grouping:
    """Texts dealt out at random to groups of like size; all rows of a text (its words, its choices) go together."""

    rows: np.ndarray  # the text of every row
    seed: int
    count: int = GROUPS
    _texts: np.ndarray = field(init=False)
    _group: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self._texts = np.unique(self.rows)
        if len(self._texts) < 2 * self.count:
            raise InputError(
                f"An interval needs at least {2 * self.count} texts, to delete a group of them; there are "
                f"{len(self._texts)}."
            )
        self._group = folds(self._texts, self.count, seed=self.seed)

    @property
    def kept(self) -> np.ndarray:
        """(groups,) the share of all rows that is left without each group."""
        sizes = np.bincount(self.groups_of(self.rows), minlength=self.count)
        return 1 - sizes / len(self.rows)

    def groups_of(self, texts: np.ndarray) -> np.ndarray:
        """The group of each text."""
        return self._group[np.searchsorted(self._texts, texts)]


def with_intervals(plan: Plan, layer_source: LayerSource, ci: float, seed: int) -> Matrices:
    """The matrix of every measure with intervals, from the moments and sums of each group of texts, or from rows."""
    groups = Grouping(layer_source.all_texts, seed)
    summed = plan.subset(plan.moment_measures(layer_source, layer_source.stored))
    means = plan.subset(plan.sum_measures)
    others = plan.subset([m for m in plan.measures if m not in (*summed.measures, *means.measures)])
    parts = [
        RowSums.for_views(means.measures, layer_source, layer_source.device)
        for _ in range(groups.count if means.measures else 0)
    ]
    matrices: Matrices = {}
    if summed.measures:
        matrices |= _from_moments(summed, layer_source, groups, ci, parts)
    elif parts:
        layer_source.gather(parts, groups)
    if parts:
        matrices |= _from_sums(means, layer_source, groups, parts, ci)
    if others.measures:
        matrices |= _from_rows(others, layer_source.with_rows(), groups, ci)
    return {m.name: matrices[m.name] for m in plan.measures}


def _from_sums(plan: Plan, layer_source: LayerSource, groups: Grouping, parts: list[RowSums], ci: float) -> Matrices:
    """The plan's means over rows with intervals, from the sums of each group of texts."""

    def matrices_from(sums: RowSums) -> Matrices:
        cells = _cells(plan, layer_source)
        from_sums(cells, [sums])
        return _matrices(cells)

    log.info("Intervals from the sums over %d groups of texts.", len(parts))
    total = parts[0]
    for part in parts[1:]:
        total = total.merge(part)
    matrices = matrices_from(total)
    add_intervals(matrices, [matrices_from(total.merge(part, -1)) for part in parts], groups.kept, ci, {})
    return matrices


def _from_moments(
    plan: Plan, layer_source: LayerSource, groups: Grouping, ci: float, beside: list[RowSums]
) -> Matrices:
    """The plan's measures of moments with intervals, one tile of pairs of layers after the other.

    Of each tile there are the moments of every group of texts, their total, and the total without one group after the
    other.
    """
    log.info("Intervals from the moments of %d groups of texts.", groups.count)
    whole, better = _cells(plan, layer_source), _cells(plan.unbiased, layer_source)
    without = [_cells(plan, layer_source) for _ in range(groups.count)]
    for number, pairs in enumerate(plan.passes(layer_source, groups.count + 2)):
        sums = () if number else beside  # the first pass fills them
        sets = layer_source.by_group(groups, pairs, plan.memory * GIB, sums, exact=True, debiased=plan.unbiased_hsic)
        total, prepared = next(sets), Prepared()
        from_moments(whole, [total], prepared)
        from_moments(better, [total], prepared)
        for cells, rest in zip(without, sets, strict=True):
            from_moments(cells, [rest])
    matrices = _matrices(whole)
    add_intervals(matrices, [_matrices(cells) for cells in without], groups.kept, ci, _matrices(better))
    return matrices


def _cells(plan: Plan, layer_source: LayerSource) -> list[Cells]:
    """Empty matrices of the plan's measures."""
    return [Cells(m, layer_source, plan.options) for m in plan.measures]


def _matrices(cells: list[Cells]) -> Matrices:
    """The similarities of filled cells by the name of their measure."""
    return {cell.measure.name: cell.similarity() for cell in cells}


def _from_rows(plan: Plan, rows: Stored, groups: Grouping, ci: float) -> Matrices:
    """The plan's measures with intervals, computed anew from the rows without each group of texts."""
    log.info("Intervals from the rows, %d times without a group of texts.", groups.count)
    matrices, group = matrices_of(plan, rows), groups.groups_of(rows.texts)
    without = []
    for g in range(groups.count):
        rest = [reps.select(rows=group != g) for reps in rows.reps]
        without.append(matrices_of(plan, Stored(rows.groups.with_sources(rest), None, rows.device)))
    add_intervals(matrices, without, groups.kept, ci, matrices_of(plan.unbiased, rows))
    return matrices


def add_intervals(matrices: Matrices, without: list[Matrices], kept: np.ndarray, ci: float, unbiased: Matrices) -> None:
    """Set `low`, `high`, `bias` and `debiased` of every similarity, from its values without each group of texts.

    `kept` is the share of the rows that is left without each group: a measure that grows with the number of rows is
    brought to that of all rows first.

    The bias is the jackknife's, (groups - 1) times the mean difference of what is left to the whole (Quenouille 1956).
    `debiased` is the value less its bias, or that of the `unbiased` form of the measure where there is one.
    """
    count = len(without)
    for name, similarity in matrices.items():
        grown = kept ** measure(name).growth
        similarity.left_out = values = np.stack([part[name].values for part in without]) / grown[:, None, None]
        middle = values.mean(axis=0)
        half = jackknifed(values, ci)
        similarity.low = np.maximum(similarity.values - half, similarity.bounds[0])
        similarity.high = np.minimum(similarity.values + half, similarity.bounds[1])
        similarity.bias = (count - 1) * (middle - similarity.values)
        better = unbiased.get(measure(name).unbiased or "")
        removed = np.clip(similarity.values - similarity.bias, *similarity.bounds)
        similarity.debiased = removed if better is None else better.values
        for i, j in np.argwhere(np.isnan(half) & ~np.isnan(similarity.values)).tolist():
            cell = (i, j)
            reason = next(part[name].reasons[cell] for part in without if cell in part[name].reasons)
            similarity.reasons[cell] = f"the interval is undefined: without one group of texts {reason}"
        _warn_of_bias(similarity, half, (count - 1) * _ROUNDING)


def _warn_of_bias(similarity: Similarity, half: np.ndarray, rounding: float) -> None:
    """Warn where the bias of a value is larger than the half-width of its interval."""
    assert similarity.bias is not None
    # Shares of k neighbours depend on the number of rows, so no value of more rows is there for them to be biased from.
    if measure(similarity.measure).family == "neighbours":
        return
    beyond = np.abs(similarity.bias) > half + rounding
    if not beyond.any():
        return
    worst = np.unravel_index(np.argmax(np.where(beyond, np.abs(similarity.bias), -1.0)), half.shape)
    instead = measure(similarity.measure).unbiased
    better = f"{instead} has no such bias" if instead else "more texts make it smaller"
    warnings.warn(
        f"{similarity.measure}: in {int(beyond.sum())} of {beyond.size} pairs of layers the bias is larger than the "
        f"half-width of the interval (such as {similarity.bias[worst]:+.3f} beside {half[worst]:.3f}), so the interval "
        f"need not cover the true value; .debiased has the values without the bias, and {better}.",
        LayerscopeWarning,
        stacklevel=6,
    )
