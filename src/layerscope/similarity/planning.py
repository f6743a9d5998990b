"""What to compute: the views that are compared, their pairs, and the passes that fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from layerscope.errors import InputError, log
from layerscope.extraction.representations import Representations
from layerscope.similarity.moments import Pair, product_bytes
from layerscope.similarity.registry import Measure
from layerscope.similarity.similarity import Axis

GIB = 1 << 30
MEMORY = 4.0  # GiB, for cross products or factored layers
_MOST_GRAM_BYTES = 2 << 30
_LEAST_FOR_GRAMS = 4  # rows: unbiased HSIC has no value below, and says so on the other side


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
    if isinstance(given, (np.ndarray, Tensor)):
        return [Representations.from_arrays([given])]
    if isinstance(given, (list, tuple)):
        if given and all(isinstance(part, (np.ndarray, Tensor)) for part in given):
            return [Representations.from_arrays(given)]
        return [source for part in given for source in (_sources(part) if isinstance(part, (list, tuple)) else [part])]
    return [given]


def source_names(own: list[str], names: Sequence[str] | None) -> list[str]:
    """The sources' names, told apart where two are the same."""
    if names is not None:
        if len(names) != len(own):
            raise InputError(f"{len(names)} names were given for {len(own)} models.")
        return list(names)
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
    """Measures with their options over some views, within `memory` GiB of cross products or factored layers.

    How a measure is computed never depends on the other measures: no value changes with what is asked for beside it.
    """

    measures: tuple[Measure, ...]
    options: dict[str, Any]
    memory: float = MEMORY
    single: bool = False  # float32 products for measures that bear them: where the rows, and nothing else, cost time

    @property
    def of_rows(self) -> list[Measure]:
        return [m for m in self.measures if m.needs == "rows"]

    def of_grams(self, views: Views, stored: bool) -> list[Measure]:
        """Measures from n x n Gram matrices, where those are the cheaper side."""
        able = [m for m in self.measures if m.dual is not None and not m.own(self.options).get("standardize")]
        return able if able and stored and grams_are_cheaper(views) else []

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

    def passes(self, views: Views) -> list[list[Pair]]:
        """The pairs of views of each pass over the rows; more than one pass is said aloud."""

        def cost(pairs: Sequence[Pair]) -> int:
            return product_bytes(views.widths, {*pairs, *((view, view) for view in views_of(pairs))})

        parts = tiles(views.pairs, cost, self.memory * GIB)
        if len(parts) > 1:
            log.warning(
                "The cross products of all layers take %.3g GiB, above the budget of %.3g GiB: %d passes over the "
                "rows, of at most %.3g GiB each.",
                cost(views.pairs) / GIB,
                self.memory,
                len(parts),
                max(map(cost, parts)) / GIB,
            )
        return parts

    def fits_groups(self, views: Views, count: int) -> bool:
        """Whether the moments of `count` groups of texts fit beside one another."""
        return (count + 2) * product_bytes(views.widths, views.pairs) <= self.memory * GIB


def grams_are_cheaper(views: Views) -> bool:
    """Compare multiply-adds: n^2 d per view and n^2 per pair, against n d^2 per pair; and Gram matrices must fit."""
    widths, pairs = views.widths, len(views.pairs)
    width = sum(widths) / len(widths)
    dual = views.n**2 * (sum(widths) + pairs)
    fits = 8 * len(widths) * views.n**2 <= _MOST_GRAM_BYTES
    return views.n >= _LEAST_FOR_GRAMS and dual < views.n * width**2 * pairs and fits


def tiles(pairs: Sequence[Pair], cost: Callable[[Sequence[Pair]], int], budget: float) -> list[list[Pair]]:
    """The pairs in as few tiles as fit: the views in g groups of neighbours, one tile for every two groups.

    A tile of one pair is the smallest there is, even if that is above the budget.
    """
    views = views_of(pairs)
    count = 0
    tiled: list[list[Pair]] = [[]]
    while count < len(views):
        count += 1
        group = {view: k * count // len(views) for k, view in enumerate(views)}
        parts: dict[Pair, list[Pair]] = {}
        for i, j in pairs:
            a, b = sorted((group[i], group[j]))
            parts.setdefault((a, b), []).append((i, j))
        tiled = [parts[key] for key in sorted(parts)]
        if max(map(cost, tiled)) <= budget:
            break
    return tiled


def views_of(pairs: Sequence[Pair]) -> list[int]:
    """The views of some pairs."""
    return sorted({view for pair in pairs for view in pair})
