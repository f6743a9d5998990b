"""What is compared: the layers of stored representations, or of models that stream over a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from layerscope.errors import InputError
from layerscope.extract.reading import Reading
from layerscope.extract.representations import Representations
from layerscope.extract.run import examples_of, extract
from layerscope.extract.streaming import Batch, Streamer
from layerscope.measures.moments import BLOCK, Moments, Pair
from layerscope.measures.similarity import Axis
from layerscope.measures.tiles import views_of
from layerscope.models import Model, load
from layerscope.team import Team

_SMALL_BLOCK = 1024  # rows buffered a group of texts, of which there are many


class Groups:
    """Which sources stand along the rows and along the columns."""

    def __init__(self, a: Any, b: Any) -> None:
        rows = list(a) if isinstance(a, (list, tuple)) else [a]
        columns = rows if b is None else (list(b) if isinstance(b, (list, tuple)) else [b])
        if not rows or not columns:
            raise InputError("There is nothing to compare: an empty list was given.")
        self.square = b is None
        self.sources = rows if self.square else rows + columns
        self.row_sources = list(range(len(rows)))
        self.column_sources = self.row_sources if self.square else list(range(len(rows), len(rows) + len(columns)))

    def of(self, sources: list[Any]) -> Groups:
        """The same arrangement of other sources."""
        count = len(self.row_sources)
        return Groups(sources[:count], None if self.square else sources[count:])


@dataclass(frozen=True)
class Tile:
    """The moments of some views, addressed by the numbers that the views have in the work."""

    moments: Moments
    pairs: Sequence[Pair]
    at: dict[int, int]  # view -> its place in the moments

    @staticmethod
    def of(widths: Sequence[int], pairs: Sequence[Pair], **options: Any) -> Tile:
        """No rows yet."""
        at = {view: place for place, view in enumerate(views_of(pairs))}
        local = [(at[i], at[j]) for i, j in pairs]
        return Tile(Moments([widths[view] for view in at], pairs=local, **options), pairs, at)

    def update(self, rows: dict[int, Tensor] | Sequence[Tensor]) -> None:
        """More rows of every view."""
        self.moments.update([rows[view] for view in self.at])


class TextGroups(Protocol):
    """Which group a text belongs to."""

    count: int

    def of(self, texts: np.ndarray) -> np.ndarray: ...


class Views:
    """What is compared: views (a layer of a source each), and which of them are rows and columns of the result."""

    groups: Groups
    labels: list[str]  # a name a source
    layers: list[list[tuple[int, str]]]  # per source its layers and their names
    widths: list[int]  # of every view
    n: int
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
        pairs = [(self.labels[s], name) for s in sources for _, name in self.layers[s]]
        return Axis(tuple(m for m, _ in pairs), tuple(layer for _, layer in pairs))


class Work(Views, ABC):
    """Views, and how to get their moments or their rows."""

    texts: np.ndarray  # the number of every row's text

    @abstractmethod
    def tile(self, pairs: Sequence[Pair], **options: Any) -> Tile:
        """The moments of some pairs of views, by a pass over the rows."""

    @abstractmethod
    def by_group(self, groups: TextGroups, **options: Any) -> list[Tile]:
        """The moments of all pairs, of each group of texts by itself, by one pass."""

    @abstractmethod
    def rows(self, view: int) -> Tensor:
        """(n, width) the rows of a view."""


def _shared(reps: Sequence[Representations]) -> dict[str, Any]:
    """How the texts were read, as far as all representations know it and agree."""
    readings = [one.info.get("reading", {}) for one in reps]
    names = [name for name in ("pool", "max_length", "final_norm") if all(name in reading for reading in readings)]
    return {name: readings[0][name] for name in names if all(r[name] == readings[0][name] for r in readings)}


class Stored(Work):
    """Representations that are already there."""

    def __init__(self, groups: Groups, names: Sequence[str] | None) -> None:
        self.groups = groups
        self.reps: list[Representations] = groups.sources
        for other in self.reps[1:]:
            self.reps[0].rows.require_same(other.rows)
        found = [str(reps.info.get("model", f"set {k + 1}")) for k, reps in enumerate(self.reps)]
        self.labels = named(found, names)
        self.layers = [list(zip(reps.layers, reps.names, strict=True)) for reps in self.reps]
        self.widths = [reps.part(layer, 0, 1).shape[1] for reps in self.reps for layer in reps.layers]
        self.n = len(self.reps[0])
        rows = self.reps[0].rows
        self.texts = rows.row
        self.provenance = {"task": rows.task, "split": rows.split, "models": self.labels, **_shared(self.reps)}
        super().__init__()

    def rows(self, view: int) -> Tensor:
        source, layer = self.views[view]
        return self.reps[source][layer]

    def tile(self, pairs: Sequence[Pair], **options: Any) -> Tile:
        tile = Tile.of(self.widths, pairs, **options)
        self._feed(tile, None)
        return tile

    def by_group(self, groups: TextGroups, **options: Any) -> list[Tile]:
        found = []
        group = groups.of(self.texts)
        for g in range(groups.count):
            found.append(Tile.of(self.widths, self.pairs, **options))
            self._feed(found[-1], torch.from_numpy(np.flatnonzero(group == g)))
        return found

    def _feed(self, tile: Tile, chosen: Tensor | None) -> None:
        """All rows, or the chosen ones, a block at a time."""
        for start in range(0, self.n, BLOCK):
            block = {view: self._part(view, start) for view in tile.at}
            if chosen is not None:
                here = chosen[(chosen >= start) & (chosen < start + BLOCK)] - start
                block = {view: rows[here] for view, rows in block.items()}
            tile.update(block)

    def _part(self, view: int, start: int) -> Tensor:
        source, layer = self.views[view]
        return self.reps[source].part(layer, start, start + BLOCK)


class Streamed(Work):
    """Models over a task: statistics by one pass, rows (if a measure needs them) from the store."""

    def __init__(
        self,
        groups: Groups,
        names: Sequence[str] | None,
        task: Any,
        split: str | None,
        limit: int | None,
        reading: dict[str, Any],
    ) -> None:
        if task is None:
            raise InputError("Models are compared over texts: name a task, as in compare('model', task='sst2').")
        if any(isinstance(source, Representations) for source in groups.sources):
            raise InputError("Models and representations cannot be mixed; extract the models' representations first.")
        self.groups = groups
        self.models: list[Model] = [load(source) for source in groups.sources]
        self.examples = examples_of(task, split, limit)
        self.reading = reading
        self._task, self._split, self._limit = task, split, limit
        self.labels = named(
            [
                m.name if not isinstance(s, (str, Path)) else str(s)
                for m, s in zip(self.models, groups.sources, strict=True)
            ],
            names,
        )
        self.layers = [[(layer, str(layer)) for layer in range(m.depth + 1)] for m in self.models]
        self.widths = [m.width for m in self.models for _ in range(m.depth + 1)]
        self.texts = self.examples.rows
        self.n = 0
        self.provenance = {"task": self.examples.task, "split": self.examples.split, "models": self.labels, **reading}
        self._reps: list[Representations] | None = None
        super().__init__()

    def tile(self, pairs: Sequence[Pair], **options: Any) -> Tile:
        tile = Tile.of(self.widths, pairs, device=self.models[0].device, **options)
        return self._stream([tile], lambda texts: np.zeros(len(texts), dtype=np.int64))[0]

    def by_group(self, groups: TextGroups, **options: Any) -> list[Tile]:
        options |= {"device": self.models[0].device, "block": _SMALL_BLOCK}
        return self._stream([Tile.of(self.widths, self.pairs, **options) for _ in range(groups.count)], groups.of)

    def _stream(self, tiles: list[Tile], group_of: Any) -> list[Tile]:
        """Every batch goes to the tiles of its rows' groups; several processes share the texts and add up."""
        team = Team.current()
        examples = self.examples.take(slice(team.rank, None, team.size))
        streamer = Streamer(self.models, None, Reading(**self.reading))
        streamer.feed(examples, [_Feed(tiles, self.views, group_of)], " + ".join(self.labels))
        found = [replace(tile, moments=tile.moments.reduce(team)) for tile in tiles]
        self.n = sum(tile.moments.n for tile in found)
        return found

    def representations(self) -> list[Representations]:
        """The models' rows, from the store, those that all of them have."""
        if self._reps is None:
            options = {"split": self._split, "limit": self._limit, **self.reading}
            self._reps = Representations.common(*(extract(m, self._task, **options) for m in self.models))
            self.n = len(self._reps[0])
        return self._reps

    def rows(self, view: int) -> Tensor:
        source, layer = self.views[view]
        return self.representations()[source][layer]


class _Feed:
    """A consumer that turns batches of several models into rows of views."""

    def __init__(self, tiles: list[Tile], views: Sequence[tuple[int, int]], group_of: Any) -> None:
        self.tiles, self.views, self.group_of = tiles, views, group_of

    def update(self, batch: Batch) -> None:
        rows = [batch.states[source][layer] for source, layer in self.views]
        groups = self.group_of(batch.rows.row)
        for g in np.unique(groups):
            if len(self.tiles) == 1:
                self.tiles[0].update(rows)
            else:
                here = torch.from_numpy(np.flatnonzero(groups == g)).to(rows[0].device)
                self.tiles[g].update([r[here] for r in rows])


def named(found: list[str], names: Sequence[str] | None) -> list[str]:
    """The sources' names, told apart where two are the same."""
    if names is not None:
        if len(names) != len(found):
            raise InputError(f"{len(names)} names were given for {len(found)} models.")
        return list(names)
    return [f"{name} ({found[: k + 1].count(name)})" if found.count(name) > 1 else name for k, name in enumerate(found)]
