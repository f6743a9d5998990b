"""The similarity that chance gives: that of layers after the texts of the column side have changed places.

One shuffle serves all pairs of layers, so the best pair can be judged too, by the best that each shuffle gives among
as many pairs. Rows of one text stay together, since words of a text are alike for reasons of their own, and a text's
row k meets another text's row k, since rows at one place are alike as well. Rows that have no such counterpart are left
out, of the shuffles and of the values that these are set beside.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.errors import InputError, LayerscopeWarning, log
from layerscope.extraction.representations import Representations
from layerscope.progress import progress
from layerscope.resampling import counterparts, exchanged
from layerscope.similarity.execution_plan import GIB, Groups, Plan
from layerscope.similarity.layer_sources import Stored
from layerscope.similarity.matrices import (
    Cells,
    Prepared,
    from_moments,
    from_rows,
    from_sums,
    gram_matrices,
    matrices_of,
    size_in_bytes,
)
from layerscope.similarity.measures.kernels import double_centred
from layerscope.similarity.registry import Measure, Undefined, finite
from layerscope.similarity.result import Best, Similarity
from layerscope.similarity.row_means import RowSums

SHUFFLES = 5  # for the mean alone
LEAST = 19  # shuffles for a 95th percentile, and for a p-value of .05
LEVEL = 0.95  # of the percentile above which a similarity is more than chance
TIED = 1e-6  # values that differ by less are the same: shuffles are summed in another order, some in float32

Shuffled = Callable[[np.ndarray], np.ndarray]  # from the row that takes each row's place to (rows, columns) values


def shuffle_count(baseline: bool | int) -> int:
    """How many shuffles `baseline` asks for: none, 5, or its number."""
    if isinstance(baseline, bool):
        return SHUFFLES if baseline else 0
    if not isinstance(baseline, int | np.integer) or baseline < 0:
        raise InputError(f"baseline is {baseline}; it must be True, or a number of shuffles such as 200.")
    return int(baseline)


def add_baseline(matrices: dict[str, Similarity], plan: Plan, rows: Stored, count: int, seed: int) -> None:
    """Set `baseline` of every similarity, and with enough shuffles `p_values`, `calibrated` and `best`."""
    kept, classes = counterparts(rows.texts)
    beside = matrices
    if len(kept) < len(rows.texts):
        log.info("The baseline is over %d of %d rows: texts differ in length.", len(kept), len(rows.texts))
        rows = Stored(rows.groups.with_sources([reps.select(rows=kept) for reps in rows.reps]), None, rows.device)
        beside = matrices_of(plan, rows)
    seeds = np.random.SeedSequence(seed).generate_state(count)
    values = [(m.name, _shuffled(m, plan, rows)) for m in plan.measures]
    chance = {m.name: np.empty((count, *matrices[m.name].values.shape)) for m in plan.measures}
    with progress("What chance gives", count, "shuffles") as advance:
        for k in range(count):
            order = exchanged(rows.texts, seed=int(seeds[k]), classes=classes)
            for name, shuffled_values in values:
                chance[name][k] = shuffled_values(order)
            advance(1)
    apart = np.asarray([[i != j for j in rows.column_views] for i in rows.row_views])
    for name, similarity in matrices.items():
        judge(similarity, beside[name].values, chance[name], apart)
        if beside is not matrices:
            similarity.provenance = {**similarity.provenance, "baseline": {"rows": len(kept)}}


def judge(similarity: Similarity, values: np.ndarray, chance: np.ndarray, apart: np.ndarray) -> None:
    """Set what `values` are worth beside those under `chance` (shuffles, rows, columns).

    The values are the similarity's own, or those of the rows that the shuffles have; `apart` marks different layers.
    """
    similarity.baseline = chance.mean(axis=0)
    sign = -1.0 if similarity.distance else 1.0  # a distance is turned round: what is high is alike
    for i, j in np.argwhere(np.isnan(similarity.baseline) & ~np.isnan(similarity.values)).tolist():
        similarity.reasons.setdefault((i, j), "the baseline is undefined: some shuffles of the texts have no value")
    if len(chance) < LEAST:
        return
    values, chance = sign * values, sign * chance
    most = max(sign * bound for bound in similarity.bounds)
    similarity.p_values = p_values(values, chance)
    similarity.calibrated = calibrated(values, chance, most)
    allowed = apart & ~np.isnan(values) & ~np.isnan(similarity.baseline)
    if not allowed.any():
        return
    row, column = np.unravel_index(np.argmax(np.where(allowed, values, -np.inf)), allowed.shape)
    value, highest = values[row, column], chance[:, allowed].max(axis=1)
    similarity.best = Best(
        row=similarity.rows[row],
        column=similarity.columns[column],
        value=float(similarity.values[row, column]),
        baseline=float(sign * highest.mean()),
        p_value=float(p_values(value, highest)),
        calibrated=float(calibrated(value, highest, most)),
    )


def p_values(values: Any, chance: np.ndarray) -> np.ndarray:
    """The share of orders, the given one counted in, whose values are as high or higher; NaN where a value is NaN.

    A value that is the same up to rounding counts as high, as that of a shuffle that leaves every text in its place.
    """
    values = np.asarray(values)
    share = (1 + (chance >= values - TIED).sum(axis=0)) / (1 + len(chance))
    return np.where(np.isnan(values) | np.isnan(chance).any(axis=0), np.nan, share)


def calibrated(values: Any, chance: np.ndarray, most: float = 1.0) -> np.ndarray:
    """max(0, (s - tau) / (most - tau)) with tau the 95th percentile of chance: 0 for what chance gives, 1 at the most.

    tau is one of the shuffles' values, not one between two: then a value is above 0 where its p-value is at most .05.
    """
    values = np.asarray(values)
    tau = np.quantile(chance, LEVEL, axis=0, method="higher")
    above = values - TIED > tau
    share = np.divide(values - tau, most - tau, out=np.zeros(values.shape), where=above)
    return np.where(np.isnan(values) | np.isnan(tau), np.nan, share)


def _shuffled(measure: Measure, plan: Plan, rows: Stored) -> Shuffled:
    """A function that gives the values of a measure for a shuffle, by the cheapest way that fits into memory."""
    alone = plan.subset([measure])
    if alone.gram_measures(rows, rows.stored):
        try:
            return _OfGrams(measure, alone, rows)
        except Undefined:
            return lambda _: np.full((len(rows.row_views), len(rows.column_views)), np.nan)
    if measure.reorder is not None:
        factors = _OfFactors(measure, alone, rows)
        if factors.fit:
            return factors
    return _OfRows(measure, alone, rows)


class _OfGrams:
    """Values of shuffles from Gram matrices, which are made once: a shuffle picks their rows and columns."""

    def __init__(self, measure: Measure, plan: Plan, rows: Stored) -> None:
        self._dual, self._rows = measure.dual, rows
        self._centre = double_centred if measure.gram is None else partial(measure.gram, texts=rows.texts)
        self._grams = gram_matrices(rows, plan.exact(measure))
        self._left = torch.stack([self._centre(self._grams[i].clone()).flatten() for i in rows.row_views])
        self._norms = self._left.pow(2).sum(dim=1)  # of the row side's Gram matrices, squared

    def __call__(self, places: np.ndarray) -> np.ndarray:
        rows, order = self._rows, torch.from_numpy(places)
        values = np.empty((len(rows.row_views), len(rows.column_views)))
        for b, j in enumerate(rows.column_views):
            moved = self._centre(self._grams[j][order][:, order]).flatten()
            crossed, other = self._left @ moved, torch.dot(moved, moved)
            for a, norm in enumerate(self._norms):
                values[a, b] = _or_nan(self._value, norm, other, crossed[a])
        return values

    def _value(self, left: Tensor, right: Tensor, crossed: Tensor) -> float:
        """The measure from the inner products of two Gram matrices with themselves and with one another."""
        assert self._dual is not None
        return self._dual(torch.stack([left, crossed, crossed, right]).view(2, 2), 0, 1)


class _OfFactors:
    """Values of shuffles from the factors that the measure makes of each layer's rows: made once, then reordered.

    `fit` says whether the factors of all layers fit into memory.
    """

    def __init__(self, measure: Measure, plan: Plan, rows: Stored) -> None:
        self._measure, self._rows = measure, rows
        self._options = measure.own(plan.options)
        self._held: dict[int, Any] = {}
        for view in range(len(rows.views)):
            self._held[view] = self._factor(view)
            self.fit = sum(map(size_in_bytes, self._held.values())) <= plan.memory * GIB
            if not self.fit:
                return

    def _factor(self, view: int) -> Any:
        """The factor of a layer's rows; None where it is undefined."""
        rows = self._rows.rows(view)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LayerscopeWarning)  # given already, for the values themselves
            try:
                given = rows if self._measure.estimate else rows.double()
                return self._measure.factored(given, self._rows.texts, **self._options)
            except Undefined:
                return None

    def __call__(self, places: np.ndarray) -> np.ndarray:
        rows, order = self._rows, torch.from_numpy(places)
        values = np.full((len(rows.row_views), len(rows.column_views)), np.nan)
        assert self._measure.reorder is not None
        for b, j in enumerate(rows.column_views):
            if self._held[j] is None:
                continue
            moved = self._measure.reorder(self._held[j], order)
            for a, i in enumerate(rows.row_views):
                if self._held[i] is not None:
                    values[a, b] = _or_nan(self._measure.of_factors, self._held[i], moved, **self._options)
        return values


class _OfRows:
    """Values of shuffles from the rows themselves; statistics of single layers are kept."""

    def __init__(self, measure: Measure, plan: Plan, rows: Stored) -> None:
        self._measure, self._plan, self._prepared = measure, plan, Prepared()
        self._left, self._right = (
            [rows.reps[source] for source in side] for side in (rows.groups.row_sources, rows.groups.column_sources)
        )

    def __call__(self, places: np.ndarray) -> np.ndarray:
        layer_source = Stored(Groups(self._left, [_reordered(reps, places) for reps in self._right]), None)
        cells = Cells(self._measure, layer_source, self._plan.options)
        if self._measure.needs == "rows":
            from_rows(cells, layer_source, self._plan.memory)
        elif self._measure.needs == "sums":
            sums = [RowSums.for_views([self._measure], layer_source)]
            layer_source.gather(sums)
            from_sums([cells], sums)
        else:
            options: dict[str, Any] = {"exact": self._plan.exact(self._measure), "room": self._plan.memory * GIB}
            options["debiased"] = self._measure.cross == "hsic"
            parts = (layer_source.tile(pairs, **options) for pairs in self._plan.passes(layer_source))
            from_moments([cells], parts, self._prepared)
        return cells.similarity().values


def _or_nan(value: Callable[..., float], *arguments: Any, **options: Any) -> float:
    """The value of a function, NaN where it is undefined; it gives no warnings, since the values themselves did."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LayerscopeWarning)
        try:
            return finite(value(*arguments, **options))
        except Undefined:
            return float("nan")


def _reordered(reps: Representations, order: np.ndarray) -> Representations:
    """Representations whose rows are in another order and keep their identities, so that row i is another text's."""
    moved: Any = {layer: reps[layer][torch.from_numpy(order)] for layer in reps.layers}
    return Representations(moved, reps.rows, names=reps.names, info=reps.info)
