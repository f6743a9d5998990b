"""How rows arrive: from stored representations, or from models that stream over a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from layerscope.errors import InputError
from layerscope.extraction.extracting import examples_of, extract_all
from layerscope.extraction.finite import check_part
from layerscope.extraction.reading import Reading
from layerscope.extraction.representations import Representations
from layerscope.extraction.streaming import Batch, Streamer
from layerscope.models import Model, load
from layerscope.results import provenance_of
from layerscope.similarity.moments import BLOCK, Moments, Pair
from layerscope.similarity.planning import Groups, Views, source_names, views_of
from layerscope.team import Team

_SMALL_BLOCK = 1024  # rows buffered per group of texts, of which there are many


@dataclass(frozen=True)
class Tile:
    """The moments of some views, addressed by the numbers that the views have among all."""

    moments: Moments
    pairs: Sequence[Pair]
    at: dict[int, int]  # view -> its place in the moments

    @staticmethod
    def empty(widths: Sequence[int], pairs: Sequence[Pair], **options: Any) -> Tile:
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

    def groups_of(self, texts: np.ndarray) -> np.ndarray: ...


class Arrival(Views, ABC):
    """Views, and how to get their moments or their rows."""

    texts: np.ndarray  # the number of every row's text
    stored = False  # whether the rows are there already

    @abstractmethod
    def tile(self, pairs: Sequence[Pair], **options: Any) -> Tile:
        """The moments of some pairs of views, by a pass over the rows."""

    @abstractmethod
    def by_group(self, groups: TextGroups, **options: Any) -> list[Tile]:
        """The moments of all pairs, of each group of texts by itself, by one pass."""

    @abstractmethod
    def rows(self, view: int) -> Tensor:
        """(n, width) the rows of a view."""

    @abstractmethod
    def kept(self) -> Stored:
        """The same with its rows in the store or in memory."""


class Stored(Arrival):
    """Representations that are already there."""

    stored = True

    def __init__(self, groups: Groups, names: Sequence[str] | None) -> None:
        self.groups = groups
        self.reps: list[Representations] = groups.sources
        for other in self.reps[1:]:
            self.reps[0].rows.require_same(other.rows)
        own = [str(reps.info.get("model", f"set {k + 1}")) for k, reps in enumerate(self.reps)]
        self.labels = source_names(own, names)
        self.layers = [list(zip(reps.layers, reps.names, strict=True)) for reps in self.reps]
        self.widths = [reps.part(layer, 0, 1).shape[1] for reps in self.reps for layer in reps.layers]
        self.n = len(self.reps[0])
        self.texts = self.reps[0].rows.row
        self.provenance = self._provenance()
        super().__init__()

    def _provenance(self) -> dict[str, Any]:
        first = self.reps[0]
        models = [
            {**reps.info.get("described", {}), "name": label}
            for reps, label in zip(self.reps, self.labels, strict=True)
        ]
        data = {"task": first.rows.task, "split": first.rows.split, **first.info.get("data", {}), "n": self.n}
        return provenance_of(models, data, _shared_settings(self.reps))

    def rows(self, view: int) -> Tensor:
        source, layer = self.views[view]
        states = self.reps[source][layer]
        check_part(self.reps[source], layer, 0, states)
        return states

    def tile(self, pairs: Sequence[Pair], **options: Any) -> Tile:
        tile = Tile.empty(self.widths, pairs, **options)
        self._feed(tile, None)
        return tile

    def by_group(self, groups: TextGroups, **options: Any) -> list[Tile]:
        parts = []
        group = groups.groups_of(self.texts)
        for g in range(groups.count):
            parts.append(Tile.empty(self.widths, self.pairs, **options))
            self._feed(parts[-1], torch.from_numpy(np.flatnonzero(group == g)))
        return parts

    def kept(self) -> Stored:
        return self

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
        states = self.reps[source].part(layer, start, start + BLOCK)
        check_part(self.reps[source], layer, start, states)
        return states


def _shared_settings(reps: Sequence[Representations]) -> dict[str, Any]:
    """How the texts were read, as far as all representations know it and agree."""
    readings = [part.info.get("reading", {}) for part in reps]
    names = [name for name in ("pool", "max_length", "final_norm") if all(name in reading for reading in readings)]
    return {name: readings[0][name] for name in names if all(r[name] == readings[0][name] for r in readings)}


class Streamed(Arrival):
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
        if any(isinstance(source, Representations) for source in groups.sources):
            raise InputError("Models and representations cannot be mixed; extract the models' representations first.")
        self.groups = groups
        self.models, self.labels = opened_models(groups, names, task)
        examples = examples_of(task, split, limit)
        self.examples = examples.in_words() if reading.get("pool") == "words" else examples
        self.reading = reading
        self.layers = [[(layer, str(layer)) for layer in range(m.depth + 1)] for m in self.models]
        self.widths = [m.width for m in self.models for _ in range(m.depth + 1)]
        self.texts = self.examples.rows
        self.n = 0
        self.provenance = provenance_of(described_as(self.models, self.labels), self.examples, reading)
        self._kept: Stored | None = None
        super().__init__()

    def tile(self, pairs: Sequence[Pair], **options: Any) -> Tile:
        tile = Tile.empty(self.widths, pairs, device=self.models[0].device, **options)
        return self._stream([tile], lambda texts: np.zeros(len(texts), dtype=np.int64))[0]

    def by_group(self, groups: TextGroups, **options: Any) -> list[Tile]:
        options |= {"device": self.models[0].device, "block": _SMALL_BLOCK}
        parts = [Tile.empty(self.widths, self.pairs, **options) for _ in range(groups.count)]
        return self._stream(parts, groups.groups_of)

    def _stream(self, tiles: list[Tile], groups_of: Callable[[np.ndarray], np.ndarray]) -> list[Tile]:
        """Every batch goes to the tiles of its rows' groups; several processes share the texts and add up."""
        team = Team.current()
        examples = self.examples.take(slice(team.rank, None, team.size))
        streamer = Streamer(self.models, None, Reading(**self.reading))
        streamer.feed(examples, [_Feed(tiles, self.views, groups_of)], " + ".join(self.labels))
        summed = [replace(tile, moments=tile.moments.reduce(team)) for tile in tiles]
        self.n = sum(tile.moments.n for tile in summed)
        return summed

    def kept(self) -> Stored:
        """The models' rows, from the store, those that all of them have."""
        if self._kept is None:
            reps = Representations.common(*extract_all(self.models, self.examples, **self.reading))
            self._kept = Stored(self.groups.with_sources(reps), self.labels)
            self.n = self._kept.n
        return self._kept

    def rows(self, view: int) -> Tensor:
        return self.kept().rows(view)


class _Feed:
    """A consumer that turns batches of several models into rows of views."""

    def __init__(self, tiles: list[Tile], views: Sequence[tuple[int, int]], groups_of: Any) -> None:
        self.tiles, self.views, self.groups_of = tiles, views, groups_of

    def update(self, batch: Batch) -> None:
        rows = [batch.states[source][layer] for source, layer in self.views]
        groups = self.groups_of(batch.rows.row)
        for g in np.unique(groups):
            if len(self.tiles) == 1:
                self.tiles[0].update(rows)
            else:
                here = torch.from_numpy(np.flatnonzero(groups == g)).to(rows[0].device)
                self.tiles[g].update([r[here] for r in rows])


def opened_models(groups: Groups, names: Sequence[str] | None, task: Any) -> tuple[list[Model], list[str]]:
    """The sources as models, and their names in the result."""
    if task is None:
        raise InputError("Models are compared over texts: name a task, as in compare('model', task='sst2').")
    models = [load(source) for source in groups.sources]
    own = [str(s) if isinstance(s, (str, Path)) else m.name for m, s in zip(models, groups.sources, strict=True)]
    return models, source_names(own, names)


def described_as(models: Sequence[Model], labels: Sequence[str]) -> list[dict[str, Any]]:
    """What the models are, under the names that they have in the result."""
    return [{**model.described(), "name": label} for model, label in zip(models, labels, strict=True)]
