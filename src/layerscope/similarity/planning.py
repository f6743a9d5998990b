"""What to compute: the views that are compared, their pairs, and the tiles of them that fit into memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from layerscope.errors import InputError, log
from layerscope.extraction.representations import Representations
from layerscope.similarity.moments import Pair, product_bytes
from layerscope.similarity.registry import Measure
from layerscope.similarity.routes import GIB, LEAST_FOR_GRAMS, gram_operations, spelled, tiles, views_of
from layerscope.similarity.similarity import Axis

MEMORY = 4.0  # GiB, for products or factored layers, where nothing is known of the machine


class Groups:
    """Which sources stand along the rows and along the columns."""

    def __init__(self, a: Any, b: Any) -> None:
        rows, columns = _sources(a), [] if b is None else _sources(b)
        if not rows or (b is not None and not columns):
            raise InputError("There is nothing to compare: an empty list was given.")
        self.square = b is None
        self.sources = rows + columns
        self.row_sources = list(range(len(rows)))
        self.column_sources = self.row_sources if self.square else list(range(len(rows), len(rows) + len(columns)))

    def with_sources(self, sources: list[Any]) -> Groups:
        """The same arrangement of other sources."""
        count = len(self.row_sources)
        return Groups(sources[:count], None if self.square else sources[count:])


def _sources(given: Any) -> list[Any]:
    """What is compared: models or representations; an array is one layer, a list of arrays the layers of one source."""
    if _is_array(given):
        return [Representations.from_arrays([given])]
    if isinstance(given, (list, tuple)):
        if given and all(map(_is_array, given)):
            return [Representations.from_arrays(given)]
        return [source for part in given for source in (_sources(part) if isinstance(part, (list, tuple)) else [part])]
    return [given]


def _is_array(given: Any) -> bool:
    """Whether it is an array, or a table of pandas or polars."""
    return isinstance(given, (np.ndarray, Tensor)) or hasattr(given, "to_numpy")


def source_names(own: list[str], names: Sequence[str] | None) -> list[str]:
    """The sources' names, told apart where two are the same."""
    if names is not None:
        if len(names) != len(own):
            raise InputError(f"{len(names)} names were given for {len(own)} models.")
        own = list(map(str, names))
    return [f"{name} ({own[: k + 1].count(name)})" if own.count(name) > 1 else name for k, name in enumerate(own)]


class Views:
    """What is compared: views (a layer of a source each), and which of them are rows and columns of the result."""

    groups: Groups
    labels: list[str]  # one name per source
    layers: list[list[tuple[int, str]]]  # per source its layers and their names
    widths: list[int]  # of every view
    n: int  # rows, where they are counted already
    provenance: dict[str, Any]

    def __init__(self) -> None:
        self.views = [(s, layer) for s, layers in enumerate(self.layers) for layer, _ in layers]
        index = {view: k for k, view in enumerate(self.views)}
        self.row_views = [index[s, layer] for s in self.groups.row_sources for layer, _ in self.layers[s]]
        self.column_views = [index[s, layer] for s in self.groups.column_sources for layer, _ in self.layers[s]]

    @cached_property
    def pairs(self) -> list[Pair]:
        """Every pair of views that is wanted, the smaller first."""
        return sorted({(min(i, j), max(i, j)) for i in self.row_views for j in self.column_views})

    def axis(self, sources: Iterable[int]) -> Axis:
        pairs = [(self.labels[s], layer, name) for s in sources for layer, name in self.layers[s]]
        models, layers, names = zip(*pairs, strict=True)
        return Axis(models, layers, names)

    @property
    def axes(self) -> tuple[Axis, Axis]:
        """The axes of rows and columns."""
        return self.axis(self.groups.row_sources), self.axis(self.groups.column_sources)


@dataclass(frozen=True)
class Plan:
    """Measures with their options over some views, within `memory` GiB of products, Gram matrices or factored layers.

    How a measure is computed never depends on the other measures: no value changes with what is asked for beside it.
    """

    measures: tuple[Measure, ...]
    options: dict[str, Any]
    memory: float = MEMORY
    groups: int = 0  # of texts, for intervals: Gram matrices are then made without each of them in turn
    single: bool = False  # float32 products for measures that bear them: where the rows, and nothing else, cost time

    @property
    def of_rows(self) -> list[Measure]:
        return [m for m in self.measures if m.needs == "rows"]

    @property
    def of_sums(self) -> list[Measure]:
        """Measures that are a mean over rows: of sums that every pass can gather beside something else."""
        return [m for m in self.measures if m.needs == "sums"]

    @property
    def dual(self) -> list[Measure]:
        """Measures that can be computed from n x n Gram matrices."""
        return [m for m in self.measures if m.dual is not None and not m.own(self.options).get("standardize")]

    def of_grams(self, views: Views, stored: bool) -> list[Measure]:
        """Measures from n x n Gram matrices, where those are the cheaper side."""
        able = self.dual
        return able if able and stored and grams_are_cheaper(views, self.memory * GIB, self.groups + 1) else []

    def of_moments(self, views: Views, stored: bool) -> list[Measure]:
        """The other measures of moments."""
        dual = self.of_grams(views, stored)
        return [m for m in self.measures if m.needs == "moments" and m not in dual]

    def exact(self, measure: Measure) -> bool:
        """Whether the measure's products are made in float64."""
        return measure.exact or not self.single

    def of(self, measures: Sequence[Measure]) -> Plan:
        """The same for some of the measures."""
        return replace(self, measures=tuple(measures))

    def passes(self, views: Views, copies: int = 1) -> list[list[Pair]]:
        """The pairs of views in tiles whose products, `copies` sets of them, fit into memory: one pass for each."""

        def cost(pairs: Sequence[Pair]) -> int:
            return copies * product_bytes(views.widths, {*pairs, *((view, view) for view in views_of(pairs))})

        parts = tiles(views.pairs, cost, self.memory * GIB)
        if len(parts) > 1:
            log.info(
                "The products of all layers take %s, and there are %s: %d passes over the rows, of at most %s each.",
                spelled(cost(views.pairs)),
                spelled(self.memory * GIB),
                len(parts),
                spelled(max(map(cost, parts))),
            )
        return parts


def grams_are_cheaper(views: Views, room: float, times: int = 1) -> bool:
    """Compare multiply-adds: n^2 d per view and n^2 per pair, against n d^2 per pair; and Gram matrices must fit.

    They are made so many `times`, where products are made once.
    """
    products = views.n * sum(views.widths[i] * views.widths[j] for i, j in views.pairs)
    fit = 8 * len(views.widths) * views.n**2 <= room
    dual = gram_operations(views.n, views.widths, len(views.pairs))
    return views.n >= LEAST_FOR_GRAMS and fit and times * dual < products
