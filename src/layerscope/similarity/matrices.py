"""From rows or moments to matrices of values: each layer is factored once, then each pair is one small computation."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.errors import LayerscopeWarning, log
from layerscope.similarity.execution_plan import GIB, Plan, Views, tiles, views_of
from layerscope.similarity.layer_sources import LayerSource, Tile
from layerscope.similarity.layer_statistics import LayerStatistics, scaled_pair, side_from
from layerscope.similarity.moments import Pair, power_of_two
from layerscope.similarity.registry import CONSTANT, Measure, Undefined, finite, require_rows
from layerscope.similarity.result import Similarity
from layerscope.similarity.row_means import RowSums

Value = Callable[[int, int], float]  # of two views


class Cells:
    """The cells of one measure's matrix as they are filled: a value, or the reason why there is none."""

    def __init__(self, measure: Measure, views: Views, options: dict[str, Any]) -> None:
        self.measure = measure
        self.options = measure.own(options)
        self._views = views
        self._wanted = {(i, j) for i in views.row_views for j in views.column_views}
        self._filled: dict[Pair, float | str] = {}
        self._warned: dict[Pair, str] = {}

    def fill(self, pairs: Sequence[Pair], value: Value) -> None:
        """Fill the cells of some pairs of views, in both orders where that makes a difference."""
        for i, j in pairs:
            if self.measure.symmetric or (i, j) in self._wanted:
                self._filled[i, j] = self._defined(value, i, j)
            if self.measure.symmetric:
                self._filled[j, i] = self._filled[i, j]
            elif (j, i) in self._wanted and i != j:
                self._filled[j, i] = self._defined(value, j, i)

    def _defined(self, value: Value, i: int, j: int) -> float | str:
        """The value of a cell, or the reason why it is undefined; warnings are kept, to be given once for all cells."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", LayerscopeWarning)
            try:
                result: float | str = finite(value(i, j))
            except Undefined as reason:
                result = str(reason)
        for warning in caught:
            if issubclass(warning.category, LayerscopeWarning):
                self._warned[i, j] = str(warning.message)
            else:
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        return result

    def similarity(self) -> Similarity:
        """The whole matrix with its labels, once every cell is filled."""
        views, m = self._views, self.measure
        values = np.full((len(views.row_views), len(views.column_views)), math.nan)
        reasons: dict[tuple[int, int], str] = {}
        for a, i in enumerate(views.row_views):
            for b, j in enumerate(views.column_views):
                result = self._filled[i, j]
                if isinstance(result, str):
                    reasons[a, b] = result
                else:
                    values[a, b] = result
        if reasons:
            log.info("%s is undefined for %d pairs of layers: %s.", m.name, len(reasons), next(iter(reasons.values())))
        provenance = {**views.provenance, "data": {**views.provenance["data"], "n": views.n}}
        if self._warned:
            such = next(iter(self._warned.values()))
            provenance["warning"] = f"{len(self._warned)} pairs of layers, such as one with {such}"
        similarity = Similarity(
            values, *views.axes, m.name, self.options, views.n, reasons, (m.low, m.high), provenance
        )
        similarity.distance = m.distance
        return similarity


def warn_of_pairs(matrices: Mapping[str, Similarity]) -> None:
    """Warn once for each measure that had warnings about single pairs of layers."""
    for name, similarity in matrices.items():
        if "warning" in similarity.provenance:
            warnings.warn(f"{name}, {similarity.provenance['warning']}", LayerscopeWarning, stacklevel=4)


def matrices_of(plan: Plan, layer_source: LayerSource) -> dict[str, Similarity]:
    """The matrix of every measure of the plan, by name; moments and sums are gathered in the same passes."""
    cells = {m.name: Cells(m, layer_source, plan.options) for m in plan.measures}
    for m in plan.gram_measures(layer_source, layer_source.stored):
        log.info("%s from the n x n side: %d rows make it cheaper than the d x d side.", m.name, layer_source.n)
        from_grams(cells[m.name], layer_source, plan)
    primal = plan.moment_measures(layer_source, layer_source.stored)
    passes = plan.passes(layer_source) if primal else []
    row_sums = [RowSums.for_views(plan.sum_measures, layer_source, layer_source.device)] if plan.sum_measures else []
    waiting = row_sums  # until a pass has gathered them
    for exact in (False, True):
        alike = [m for m in primal if plan.exact(m) == exact]
        if alike:
            log.info("%s from the d x d side.", ", ".join(m.name for m in alike))
            how: dict[str, Any] = {"exact": exact, "debiased": any(m.cross == "hsic" for m in alike)}
            how |= {"room": plan.memory * GIB, "split": plan.split and not exact}
            # A generator, so that the moments of one pass are gone before those of the next are made.
            parts = (
                layer_source.tile(pairs, beside=() if number else waiting, **how) for number, pairs in enumerate(passes)
            )
            from_moments([cells[m.name] for m in alike], parts)
            waiting = []
    if waiting:
        layer_source.gather(waiting)
    from_sums([cells[m.name] for m in plan.sum_measures], row_sums)
    for m in plan.row_measures:
        from_rows(cells[m.name], layer_source, plan.memory)
    return {name: cell.similarity() for name, cell in cells.items()}


def from_sums(cells: Sequence[Cells], row_sums: Sequence[RowSums]) -> None:
    """Fill the cells from sums over rows."""
    for sums in row_sums:
        pairs = sorted({(min(i, j), max(i, j)) for i in sums.rows for j in sums.columns})
        for cell in cells:
            cell.fill(pairs, partial(sums.value, cell.measure.name))


class Prepared:
    """Statistics of single layers, and what measures derive from them, computed once for all pairs."""

    def __init__(self) -> None:
        self.sides: dict[int, LayerStatistics] = {}
        self.factors: dict[tuple[str, int, bool], Any] = {}


def from_moments(cells: Sequence[Cells], parts: Iterable[Tile], prepared: Prepared | None = None) -> None:
    """Fill the cells from tiles of moments; what was computed of one layer alone is kept from tile to tile."""
    prepared = prepared or Prepared()
    for tile in parts:
        for cell in cells:
            cell.fill(tile.pairs, _MomentsValue(cell, tile, prepared))


class _MomentsValue:
    """A function that gives the value of a measure for two views of a tile."""

    def __init__(self, cell: Cells, tile: Tile, prepared: Prepared) -> None:
        self._measure, self._tile, self._prepared = cell.measure, tile, prepared
        self._options = {name: value for name, value in cell.options.items() if name != "standardize"}
        self._standardize = bool(cell.options.get("standardize", False))

    def __call__(self, i: int, j: int) -> float:
        moments, at = self._tile.moments, self._tile.at
        require_rows(moments.n)
        x, y = self._of_side(i), self._of_side(j)
        if self._measure.cross == "hsic":
            for view in (i, j):
                self._side(view).require_hsic()
            return self._measure.of_pair(x, y, self._tile.hsic(i, j), **self._options)
        sides = self._side(i), self._side(j)
        cross = scaled_pair(*sides, moments.scatter(at[i], at[j]), self._standardize)[2]
        return self._measure.of_pair(x, y, cross, **self._options)

    def _of_side(self, view: int) -> Any:
        """What the measure derives from a view alone, computed once."""
        key = (self._measure.name, view, self._standardize)
        if key not in self._prepared.factors:
            side = self._side(view).standardized if self._standardize else self._side(view)
            self._prepared.factors[key] = self._measure.prepared(side, **self._options)
        return self._prepared.factors[key]

    def _side(self, view: int) -> LayerStatistics:
        """The statistics of a view, computed once."""
        if view not in self._prepared.sides:
            self._prepared.sides[view] = side_from(
                self._tile.moments, self._tile.at[view], lambda: self._tile.hsic(view, view)
            )
        return self._prepared.sides[view]


def from_grams(cell: Cells, layer_source: LayerSource, plan: Plan) -> None:
    """Fill the cells of a measure from inner products of n x n Gram matrices."""
    dual, centre = cell.measure.dual, cell.measure.gram
    assert dual is not None
    grams = gram_matrices(layer_source, plan.exact(cell.measure))
    if centre is not None:
        try:
            for gram in grams:
                gram.copy_(centre(gram, layer_source.texts))
        except Undefined as reason:
            grams.fill_(torch.nan)
            dual = partial(_undefined, reason)
    flat = grams.flatten(1)
    products = (flat @ flat.T).cpu()
    cell.fill(layer_source.pairs, partial(dual, products))


def _undefined(reason: Undefined, *_: Any) -> float:
    raise reason


def gram_matrices(layer_source: LayerSource, exact: bool) -> Tensor:
    """(views, n, n) the Gram matrices of centred rows; NaN where all rows are the same.

    The products are in float64 if `exact`; each view is scaled by a power of two, so that float32 holds them.
    """
    grams = torch.empty(
        len(layer_source.views), layer_source.n, layer_source.n, dtype=torch.float64, device=layer_source.device
    )
    for view, gram in enumerate(grams):
        rows = layer_source.rows(view).to(layer_source.device).double()
        mean = rows.mean(dim=0)
        centred = rows - mean
        alive = centred.pow(2).sum(dim=0) > CONSTANT * layer_source.n * mean**2
        if not bool(alive.any()):
            gram.fill_(torch.nan)
            continue
        centred = centred * alive
        centred /= power_of_two(centred)
        centred = centred if exact else centred.float()
        gram.copy_(centred @ centred.T)
    return grams


def from_rows(cell: Cells, layer_source: LayerSource, memory: float) -> None:
    """Fill the cells from rows: all layers at once, or in tiles whose factors of layers fit into memory."""
    views, texts = len(layer_source.views), layer_source.texts
    together = cell.measure.of_all(layer_source.unchecked_part, views, layer_source.n, texts, **cell.options)
    if together is not None:
        cell.fill(layer_source.pairs, together)
        return
    held: dict[int, Any] = {}
    layer_warnings: dict[int, list[str]] = {}  # of each layer, given again for each of its pairs

    def factor(view: int) -> Any:
        rows = layer_source.rows(view)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", LayerscopeWarning)
            try:
                made = cell.measure.factored(rows if cell.measure.estimate else rows.double(), texts, **cell.options)
            except Undefined as reason:
                made = reason
        layer_warnings[view] = [str(w.message) for w in caught if issubclass(w.category, LayerscopeWarning)]
        return made

    def value(i: int, j: int) -> float:
        for side in (held[i], held[j]):
            if isinstance(side, Undefined):
                raise side
        for sentence in (*layer_warnings[i], *layer_warnings[j]):
            warnings.warn(sentence, LayerscopeWarning, stacklevel=2)
        return cell.measure.of_factors(held[i], held[j], **cell.options)

    first = layer_source.pairs[0][0]
    held[first] = factor(first)
    size = max(size_in_bytes(held[first]), 8 * len(layer_source.rows(first)))
    for pairs in tiles(layer_source.pairs, lambda p: size * len(views_of(p)), memory * GIB):
        held = {view: held[view] if view in held else factor(view) for view in views_of(pairs)}
        cell.fill(pairs, value)


def size_in_bytes(factor: Any) -> int:
    """Bytes of what a measure made of a layer's rows: a tensor, or tuples of them."""
    if isinstance(factor, tuple):
        return sum(map(size_in_bytes, factor))
    return factor.nbytes if isinstance(factor, Tensor) else 0
