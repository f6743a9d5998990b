"""Measures over all pairs of layers: each layer is factored once, tile by tile where memory is short."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.errors import LayerscopeWarning, log
from layerscope.measures.dual import dual_is_cheaper, gram_cka, gram_products
from layerscope.measures.moments import Moments, Pair, product_bytes
from layerscope.measures.registry import Measure, Undefined
from layerscope.measures.sides import Side, scaled, side_from
from layerscope.measures.similarity import Similarity
from layerscope.measures.tiles import GIB, tiles, views_of
from layerscope.measures.work import Stored, Tile, Views, Work
from layerscope.version import __version__

Value = Callable[[int, int], float]  # of two views


class Cells:
    """What is known of one measure's matrix: a value, or the reason why there is none."""

    def __init__(self, measure: Measure, work: Views, options: dict[str, Any]) -> None:
        self.measure = measure
        self.options = {name: value for name, value in options.items() if name in measure.options()}
        self._work = work
        self._wanted = {(i, j) for i in work.row_views for j in work.column_views}
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
                found: float | str = value(i, j)
            except Undefined as reason:
                found = str(reason)
        for one in said:
            if issubclass(one.category, LayerscopeWarning):
                self._warned[i, j] = str(one.message)
            else:
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        return found

    def similarity(self) -> Similarity:
        """The whole matrix with its labels."""
        work, m = self._work, self.measure
        values = np.full((len(work.row_views), len(work.column_views)), math.nan)
        reasons: dict[tuple[int, int], str] = {}
        for a, i in enumerate(work.row_views):
            for b, j in enumerate(work.column_views):
                result = self._known[i, j]
                if isinstance(result, str):
                    reasons[a, b] = result
                else:
                    values[a, b] = result
        if reasons:
            log.info("%s is undefined for %d pairs of layers: %s.", m.name, len(reasons), next(iter(reasons.values())))
        provenance = {**work.provenance, "layerscope": __version__, "torch": torch.__version__}
        if self._warned:
            such = next(iter(self._warned.values()))
            provenance["warning"] = f"{len(self._warned)} pairs of layers, such as one with {such}"
        rows, columns = work.axis(work.groups.row_sources), work.axis(work.groups.column_sources)
        return Similarity(values, rows, columns, m.name, self.options, work.n, reasons, (m.low, m.high), provenance)


def say_warnings(found: Mapping[str, Similarity]) -> None:
    """What a measure had to say of single pairs, in one warning."""
    for name, similarity in found.items():
        if "warning" in similarity.provenance:
            warnings.warn(f"{name}, {similarity.provenance['warning']}", LayerscopeWarning, stacklevel=3)


def matrices(wanted: Sequence[Measure], work: Work, options: dict[str, Any], memory: float) -> dict[str, Similarity]:
    """Every wanted measure over the work's pairs; `memory` in GiB bounds cross products and factored layers."""
    cells = {m.name: Cells(m, work, options) for m in wanted}
    by_moments = [cells[m.name] for m in wanted if m.needs == "moments"]
    if takes_dual(wanted, work, options):
        log.info("CKA from the n x n side: %d rows make it cheaper than the d x d side.", work.n)
        products = gram_products(work)
        by_moments[0].fill(work.pairs, lambda i, j: gram_cka(products, i, j))
    elif by_moments:
        if any(cell.measure.name == "cka" for cell in by_moments):
            log.info("CKA from the d x d side, the cheaper one here or shared with other measures.")
        from_moments(by_moments, (work.tile(p, **needs(wanted)) for p in plan(work, memory)))
    for m in wanted:
        if m.needs == "rows":
            _from_rows(cells[m.name], work, memory)
    return {name: cell.similarity() for name, cell in cells.items()}


def takes_dual(wanted: Sequence[Measure], work: Work, options: dict[str, Any]) -> bool:
    """Whether CKA comes from n x n Gram matrices: where no other measure needs moments and that is cheaper."""
    only_cka = [m.name for m in wanted if m.needs == "moments"] == ["cka"]
    return only_cka and isinstance(work, Stored) and not options.get("standardize") and dual_is_cheaper(work)


def needs(wanted: Sequence[Measure]) -> dict[str, bool]:
    """What the moments must keep for the measures."""
    return {"exact": any(m.inverts for m in wanted), "debiased": any(m.name == "cka_debiased" for m in wanted)}


def plan(work: Work, memory: float) -> list[list[Pair]]:
    """The pairs of views of each pass; more than one pass is said aloud."""

    def cost(pairs: Sequence[Pair]) -> int:
        return product_bytes(work.widths, {*pairs, *((view, view) for view in views_of(pairs))})

    found = tiles(work.pairs, cost, memory * GIB)
    if len(found) > 1:
        log.warning(
            "The cross products of all layers take %.3g GiB, above the budget of %.3g GiB: %d passes over the rows, "
            "of at most %.3g GiB each.",
            cost(work.pairs) / GIB,
            memory,
            len(found),
            max(map(cost, found)) / GIB,
        )
    return found


def from_moments(cells: Sequence[Cells], parts: Any) -> None:
    """Fill the cells from tiles of moments; what follows from one layer alone is kept from tile to tile."""
    sides: dict[tuple[int, bool], Side] = {}

    def side(tile: Tile, view: int, standardize: bool) -> Side:
        if (view, standardize) not in sides:
            found = side_from(tile.moments, tile.at[view])
            sides[view, standardize] = found.standardized() if standardize else found
        return sides[view, standardize]

    for tile in parts:
        for cell in cells:
            cell.fill(tile.pairs, _value(cell, tile, side))


def _value(cell: Cells, tile: Tile, side: Callable[[Tile, int, bool], Side]) -> Value:
    options = dict(cell.options)
    standardize = options.pop("standardize", False)

    def value(i: int, j: int) -> float:
        if tile.moments.n < 2:
            raise Undefined("one row has no variation")
        if cell.measure.factor is not None:
            return _debiased(tile.moments, tile.at[i], tile.at[j])
        cross = tile.moments.scatter(tile.at[i], tile.at[j])
        x, y = side(tile, i, standardize), side(tile, j, standardize)
        if standardize:
            _, _, cross = scaled(side(tile, i, False), side(tile, j, False), cross, True)
        return float(cell.measure.compute(x, y, cross, **options))

    return value


def _debiased(moments: Moments, i: int, j: int) -> float:
    if moments.n < 4:
        raise Undefined(f"unbiased HSIC needs at least 4 rows and there are {moments.n}")
    for view in (i, j):
        side_from(moments, view).trace  # noqa: B018  (raises if nothing varies)
    own = moments.hsic(i, i), moments.hsic(j, j)
    if min(own) <= 0:
        raise Undefined("the unbiased variance of a side is not above 0")
    return moments.hsic(i, j) / (own[0] * own[1]) ** 0.5


def _from_rows(cell: Cells, work: Work, memory: float) -> None:
    """Fill the cells from rows: every layer is factored once, as long as the factors fit."""
    held: dict[int, Any] = {}

    def factor(view: int) -> Any:
        try:
            rows = work.rows(view)
            return cell.measure.factored(rows if cell.measure.estimate else rows.double(), **cell.options)
        except Undefined as reason:
            return reason

    def value(i: int, j: int) -> float:
        for side in (held[i], held[j]):
            if isinstance(side, Undefined):
                raise side
        return cell.measure.of_factors(held[i], held[j], **cell.options)

    first = work.pairs[0][0]
    held[first] = factor(first)
    size = max(_bytes(held[first]), 8 * len(work.rows(first)))
    for pairs in tiles(work.pairs, lambda p: size * len(views_of(p)), memory * GIB):
        held = {view: held[view] if view in held else factor(view) for view in views_of(pairs)}
        cell.fill(pairs, value)


def _bytes(factor: Any) -> int:
    if isinstance(factor, tuple):
        return sum(map(_bytes, factor))
    return factor.nbytes if isinstance(factor, Tensor) else 0
