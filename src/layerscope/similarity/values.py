"""How values come out: each layer is factored once, then each pair of layers is one small computation."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.errors import LayerscopeWarning, log
from layerscope.similarity.arriving import Arrival, Tile
from layerscope.similarity.moments import Pair
from layerscope.similarity.planning import GIB, Plan, Views, tiles, views_of
from layerscope.similarity.registry import CONSTANT, Measure, Undefined
from layerscope.similarity.sides import Side, scaled_pair, side_from
from layerscope.similarity.similarity import Similarity

Value = Callable[[int, int], float]  # of two views


class Cells:
    """What is known of one measure's matrix: a value, or the reason why there is none."""

    def __init__(self, measure: Measure, views: Views, options: dict[str, Any]) -> None:
        self.measure = measure
        self.options = {name: value for name, value in options.items() if name in measure.options()}
        self._views = views
        self._wanted = {(i, j) for i in views.row_views for j in views.column_views}
        self._known: dict[Pair, float | str] = {}
        self._warned: dict[Pair, str] = {}

    def fill(self, pairs: Sequence[Pair], value: Value) -> None:
        """The cells of some pairs of views, both ways round where that makes a difference."""
        for i, j in pairs:
            if self.measure.symmetric or (i, j) in self._wanted:
                self._known[i, j] = self._defined(value, i, j)
            if self.measure.symmetric:
                self._known[j, i] = self._known[i, j]
            elif (j, i) in self._wanted and i != j:
                self._known[j, i] = self._defined(value, j, i)

    def _defined(self, value: Value, i: int, j: int) -> float | str:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", LayerscopeWarning)
            try:
                result: float | str = value(i, j)
            except Undefined as reason:
                result = str(reason)
        for warning in said:
            if issubclass(warning.category, LayerscopeWarning):
                self._warned[i, j] = str(warning.message)
            else:
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        return result

    def similarity(self) -> Similarity:
        """The whole matrix with its labels."""
        views, m = self._views, self.measure
        values = np.full((len(views.row_views), len(views.column_views)), math.nan)
        reasons: dict[tuple[int, int], str] = {}
        for a, i in enumerate(views.row_views):
            for b, j in enumerate(views.column_views):
                result = self._known[i, j]
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
        return Similarity(values, *views.axes, m.name, self.options, views.n, reasons, (m.low, m.high), provenance)


def say_warnings(matrices: Mapping[str, Similarity]) -> None:
    """What a measure had to say of single pairs, in one warning."""
    for name, similarity in matrices.items():
        if "warning" in similarity.provenance:
            warnings.warn(f"{name}, {similarity.provenance['warning']}", LayerscopeWarning, stacklevel=3)


def matrices_of(plan: Plan, arrival: Arrival) -> dict[str, Similarity]:
    """Every measure of the plan over the pairs of what arrives."""
    cells = {m.name: Cells(m, arrival, plan.options) for m in plan.measures}
    by_moments = [cells[m.name] for m in plan.of_moments]
    if plan.takes_grams(arrival, arrival.stored):
        log.info("From the n x n side: %d rows make it cheaper than the d x d side.", arrival.n)
        from_grams(by_moments, arrival)
    elif by_moments:
        if any(cell.measure.dual is not None for cell in by_moments):
            log.info("From the d x d side, the cheaper one here or shared with other measures.")
        from_moments(by_moments, (arrival.tile(pairs, **plan.moments) for pairs in plan.passes(arrival)))
    for m in plan.of_rows:
        from_rows(cells[m.name], arrival, plan.memory)
    return {name: cell.similarity() for name, cell in cells.items()}


def from_moments(cells: Sequence[Cells], parts: Iterable[Tile]) -> None:
    """Fill the cells from tiles of moments; what follows from one layer alone is kept from tile to tile."""
    sides: dict[int, Side] = {}
    prepared: dict[tuple[str, int, bool], Any] = {}
    for tile in parts:
        for cell in cells:
            cell.fill(tile.pairs, _MomentsValue(cell, tile, sides, prepared))


class _MomentsValue:
    """The value of a measure for two views of a tile."""

    def __init__(
        self, cell: Cells, tile: Tile, sides: dict[int, Side], prepared: dict[tuple[str, int, bool], Any]
    ) -> None:
        self._measure, self._tile, self._sides, self._prepared = cell.measure, tile, sides, prepared
        self._options = {name: value for name, value in cell.options.items() if name != "standardize"}
        self._standardize = bool(cell.options.get("standardize", False))

    def __call__(self, i: int, j: int) -> float:
        moments, at = self._tile.moments, self._tile.at
        if moments.n < 2:
            raise Undefined("one row has no variation")
        x, y = self._of_side(i), self._of_side(j)
        if self._measure.cross == "hsic":
            for view in (i, j):
                self._side(view).require_hsic()
            return self._measure.of_pair(x, y, moments.hsic(at[i], at[j]), **self._options)
        cross = moments.scatter(at[i], at[j])
        if self._standardize:
            cross = scaled_pair(self._side(i), self._side(j), cross, True)[2]
        return self._measure.of_pair(x, y, cross, **self._options)

    def _of_side(self, view: int) -> Any:
        """What the measure takes of a view, made once."""
        key = (self._measure.name, view, self._standardize)
        if key not in self._prepared:
            side = self._side(view).standardized if self._standardize else self._side(view)
            self._prepared[key] = self._measure.prepared(side, **self._options)
        return self._prepared[key]

    def _side(self, view: int) -> Side:
        if view not in self._sides:
            self._sides[view] = side_from(self._tile.moments, self._tile.at[view])
        return self._sides[view]


def from_grams(cells: Sequence[Cells], arrival: Arrival) -> None:
    """Fill the cells from inner products of centred n x n Gram matrices."""
    products = gram_products(arrival)
    for cell in cells:
        dual = cell.measure.dual
        assert dual is not None
        cell.fill(arrival.pairs, lambda i, j, dual=dual: dual(products, i, j))  # type: ignore[misc]


def gram_products(arrival: Arrival) -> Tensor:
    """(views, views) <K_i, K_j> of centred Gram matrices; a view whose rows are all the same has NaN."""
    grams = torch.empty(len(arrival.views), arrival.n**2, dtype=torch.float64)
    for view in range(len(arrival.views)):
        rows = arrival.rows(view).double()
        mean = rows.mean(dim=0)
        centred = rows - mean
        constant = float(centred.pow(2).sum()) <= CONSTANT * arrival.n * float(mean @ mean)
        small = centred.float()
        grams[view] = torch.nan if constant else (small @ small.T).double().flatten()
    return grams @ grams.T


def from_rows(cell: Cells, arrival: Arrival, memory: float) -> None:
    """Fill the cells from rows: every layer is factored once, as long as the factors fit."""
    held: dict[int, Any] = {}

    def factor(view: int) -> Any:
        try:
            rows = arrival.rows(view)
            return cell.measure.factored(rows if cell.measure.estimate else rows.double(), **cell.options)
        except Undefined as reason:
            return reason

    def value(i: int, j: int) -> float:
        for side in (held[i], held[j]):
            if isinstance(side, Undefined):
                raise side
        return cell.measure.of_factors(held[i], held[j], **cell.options)

    first = arrival.pairs[0][0]
    held[first] = factor(first)
    size = max(_bytes(held[first]), 8 * len(arrival.rows(first)))
    for pairs in tiles(arrival.pairs, lambda p: size * len(views_of(p)), memory * GIB):
        held = {view: held[view] if view in held else factor(view) for view in views_of(pairs)}
        cell.fill(pairs, value)


def _bytes(factor: Any) -> int:
    if isinstance(factor, tuple):
        return sum(map(_bytes, factor))
    return factor.nbytes if isinstance(factor, Tensor) else 0
