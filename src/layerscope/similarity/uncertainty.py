"""How sure a similarity is: a delete-a-group jackknife over texts, its interval and its bias.

Not the bootstrap: a row drawn twice is similar to itself on both sides, which fakes similarity.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from layerscope.data.resampling import folds, jackknifed
from layerscope.errors import InputError, LayerscopeWarning, log
from layerscope.similarity.arriving import Arrival, Stored, Tile
from layerscope.similarity.planning import Plan
from layerscope.similarity.registry import measure
from layerscope.similarity.routes import GIB
from layerscope.similarity.row_sums import RowSums
from layerscope.similarity.similarity import Similarity
from layerscope.similarity.values import Cells, Prepared, from_moments, from_sums, matrices_of

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

    def groups_of(self, texts: np.ndarray) -> np.ndarray:
        """The group of each text."""
        return self._group[np.searchsorted(self._texts, texts)]


def with_intervals(plan: Plan, arrival: Arrival, ci: float, seed: int) -> Matrices:
    """Values and intervals, from the moments and sums of each group of texts, or from rows."""
    groups = Grouping(arrival.all_texts, seed)
    summed = plan.of(plan.of_moments(arrival, arrival.stored))
    means = plan.of(plan.of_sums)
    others = plan.of([m for m in plan.measures if m not in (*summed.measures, *means.measures)])
    parts = [RowSums.of(means.measures, arrival, arrival.device) for _ in range(groups.count if means.measures else 0)]
    matrices: Matrices = {}
    if summed.measures:
        matrices |= _from_moments(summed, arrival, groups, ci, parts)
    elif parts:
        arrival.gather(parts, groups)
    if parts:
        matrices |= _from_sums(means, arrival, parts, ci)
    if others.measures:
        matrices |= _from_rows(others, arrival.kept(), groups, ci)
    return {m.name: matrices[m.name] for m in plan.measures}


def _from_sums(plan: Plan, arrival: Arrival, parts: list[RowSums], ci: float) -> Matrices:
    log.info("Intervals from the sums over %d groups of texts.", len(parts))
    total = parts[0]
    for part in parts[1:]:
        total = total.merge(part)
    matrices = _of_sums(plan, arrival, total)
    without = [_of_sums(plan, arrival, total.merge(part, -1)) for part in parts]
    add_intervals(matrices, without, ci, {})
    return matrices


def _of_sums(plan: Plan, arrival: Arrival, sums: RowSums) -> Matrices:
    """The measures from given sums over rows."""
    cells = _cells(plan, arrival)
    from_sums(cells, [sums])
    return _matrices(cells)


def _from_moments(plan: Plan, arrival: Arrival, groups: Grouping, ci: float, beside: list[RowSums]) -> Matrices:
    """Tile by tile of pairs of layers: the moments of all groups, of the whole, and of what is left without each."""
    log.info("Intervals from the moments of %d groups of texts.", groups.count)
    unbiased = _unbiased(plan)
    debiased = any(m.cross == "hsic" for m in (*plan.measures, *unbiased.measures))
    whole, better = _cells(plan, arrival), _cells(unbiased, arrival)
    without = [_cells(plan, arrival) for _ in range(groups.count)]
    for number, pairs in enumerate(plan.passes(arrival, groups.count + 2)):
        sums = () if number else beside  # in the first pass
        parts = arrival.by_group(groups, pairs, plan.memory * GIB, sums, exact=True, debiased=debiased)
        total = _whole(parts)
        prepared = Prepared()
        from_moments(whole, [total], prepared)
        from_moments(better, [total], prepared)
        for cells, tile in zip(without, _left_out(parts, total), strict=True):
            from_moments(cells, [tile])
    matrices = _matrices(whole)
    add_intervals(matrices, [_matrices(cells) for cells in without], ci, _matrices(better))
    return matrices


def _cells(plan: Plan, arrival: Arrival) -> list[Cells]:
    return [Cells(m, arrival, plan.options) for m in plan.measures]


def _matrices(cells: list[Cells]) -> Matrices:
    return {cell.measure.name: cell.similarity() for cell in cells}


def _unbiased(plan: Plan) -> Plan:
    """The same for the measures that lack the bias of some that are asked for."""
    return plan.of([measure(m.unbiased) for m in plan.measures if m.unbiased and not m.own(plan.options)])


def _from_rows(plan: Plan, rows: Stored, groups: Grouping, ci: float) -> Matrices:
    log.info("Intervals from the rows, %d times without a group of texts.", groups.count)
    matrices, group = matrices_of(plan, rows), groups.groups_of(rows.texts)
    without = [matrices_of(plan, _rest(rows, group != g)) for g in range(groups.count)]
    add_intervals(matrices, without, ci, matrices_of(_unbiased(plan), rows))
    return matrices


def _rest(rows: Stored, chosen: np.ndarray) -> Stored:
    """Some of the rows, where they are."""
    return Stored(rows.groups.with_sources([r.select(rows=chosen) for r in rows.reps]), None, rows.device)


def _whole(parts: list[Tile]) -> Tile:
    """The moments of all groups together."""
    total = parts[0].moments.without(parts[0].moments)
    for part in parts:
        total.merge(part.moments)
    return replace(parts[0], moments=total)


def _left_out(parts: list[Tile], total: Tile) -> Iterable[Tile]:
    """The moments without each group in turn."""
    return (replace(total, moments=total.moments.without(part.moments)) for part in parts)


def add_intervals(matrices: Matrices, without: list[Matrices], ci: float, unbiased: Matrices) -> None:
    """`low`, `high` and `bias` for every value, from the values with one group of texts left out at a time.

    The bias is the jackknife's, (groups - 1) times the mean difference of what is left to the whole (Quenouille 1956).
    `debiased` is without it; where there is an `unbiased` form of the measure, that is better and stands there.
    """
    count = len(without)
    for name, similarity in matrices.items():
        similarity.left_out = values = np.stack([part[name].values for part in without])
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
    """Say where an interval lies around a value that is off by more than the interval is wide to a side.

    Shares of k neighbours are of a certain number of rows: there is no value of more rows that they could be off from.
    """
    assert similarity.bias is not None
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
        stacklevel=4,
    )
