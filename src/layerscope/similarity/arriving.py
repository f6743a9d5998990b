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
from layerscope.extraction.rows import Rows
from layerscope.extraction.streaming import Batch, Streamer, units_of
from layerscope.extraction.tally import note_unread
from layerscope.models import Model, load
from layerscope.results import provenance_of
from layerscope.similarity.keeping import RowKeeper, own_type
from layerscope.similarity.moments import BLOCK, Moments, Pair
from layerscope.similarity.planning import Groups, Views, source_names
from layerscope.similarity.routes import Place, block_rows, views_of
from layerscope.similarity.row_sums import RowSums
from layerscope.team import Team

_CPU = torch.device("cpu")
_SMALL_BLOCK = 1024  # rows read for sums


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


class _Part(Protocol):
    """What rows go into: moments or sums."""

    def update(self, rows: dict[int, Tensor]) -> None: ...


GroupsOf = Callable[[np.ndarray], np.ndarray]  # of each text: its group


def _one_group(texts: np.ndarray) -> np.ndarray:
    return np.zeros(len(texts), dtype=np.int64)


class TextGroups(Protocol):
    """Which group a text belongs to."""

    count: int

    def groups_of(self, texts: np.ndarray) -> np.ndarray: ...


class Arrival(Views, ABC):
    """Views, and how to get their moments or their rows."""

    texts: np.ndarray  # the number of every row's text
    all_texts: np.ndarray  # of every text that there is, in every process, with rows or without
    stored = False  # whether all rows are there already
    device: torch.device = _CPU  # where products and sums are made

    @abstractmethod
    def tile(self, pairs: Sequence[Pair], room: float, beside: Sequence[RowSums] = (), **options: Any) -> Tile:
        """The moments of some pairs of views, by a pass over the rows, in which the sums `beside` them are filled.

        `room` is what there is in bytes.
        """

    @abstractmethod
    def by_group(
        self, groups: TextGroups, pairs: Sequence[Pair], room: float, beside: Sequence[RowSums] = (), **options: Any
    ) -> list[Tile]:
        """The moments of some pairs, of each group of texts by itself, by one pass; `beside`: sums for each group."""

    @abstractmethod
    def gather(self, sums: Sequence[RowSums], groups: TextGroups | None = None) -> None:
        """Fill sums, for all texts or for each group of them, by one pass."""

    def _block(self, pairs: Sequence[Pair], rows: int, room: float) -> int:
        """How many rows go into one product."""
        return block_rows([self.widths[view] for view in views_of(pairs)], rows, room)

    @abstractmethod
    def rows(self, view: int) -> Tensor:
        """(n, width) the rows of a view."""

    @abstractmethod
    def part_as_it_is(self, view: int, start: int, stop: int) -> Tensor:
        """Some rows of a view, finite or not."""

    @abstractmethod
    def kept(self, where: Place = "store") -> Stored:
        """The same with its rows in the store, or in memory on the device or the host."""


class Stored(Arrival):
    """Representations that are already there."""

    stored = True

    def __init__(self, groups: Groups, names: Sequence[str] | None, device: torch.device = _CPU) -> None:
        self.groups = groups
        self.device = device
        self.reps: list[Representations] = groups.sources
        for other in self.reps[1:]:
            self.reps[0].rows.require_same(other.rows)
        own = [str(reps.info.get("model", f"set {k + 1}")) for k, reps in enumerate(self.reps)]
        self.labels = source_names(own, names)
        self.layers = [list(zip(reps.layers, reps.names, strict=True)) for reps in self.reps]
        self.widths = [reps.part(layer, 0, 1).shape[1] for reps in self.reps for layer in reps.layers]
        self.n = len(self.reps[0])
        self.texts = self.all_texts = self.reps[0].rows.row
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

    def tile(self, pairs: Sequence[Pair], room: float, beside: Sequence[RowSums] = (), **options: Any) -> Tile:
        self.gather(beside)
        return self._fed(pairs, room, None, **options)

    def gather(self, sums: Sequence[RowSums], groups: TextGroups | None = None) -> None:
        rows = len(self.texts)
        group = np.zeros(rows, dtype=np.int64) if groups is None else groups.groups_of(self.texts)
        for start in range(0, rows if sums else 0, _SMALL_BLOCK):
            block = {view: self._part(view, start, _SMALL_BLOCK) for view in sums[0].views}
            _deal(sums, block, group[start : start + _SMALL_BLOCK])

    def by_group(
        self, groups: TextGroups, pairs: Sequence[Pair], room: float, beside: Sequence[RowSums] = (), **options: Any
    ) -> list[Tile]:
        self.gather(beside, groups)
        group = groups.groups_of(self.texts)
        chosen = [torch.from_numpy(np.flatnonzero(group == g)) for g in range(groups.count)]
        return [self._fed(pairs, room / groups.count, here, **options) for here in chosen]

    def kept(self, where: Place = "store") -> Stored:
        return self

    def _fed(self, pairs: Sequence[Pair], room: float, chosen: Tensor | None, **options: Any) -> Tile:
        """The moments of all rows, or of the chosen ones, a block at a time."""
        rows = len(self.texts)
        options["block"] = self._block(pairs, rows if chosen is None else len(chosen), room)
        tile = Tile.empty(self.widths, pairs, device=self.device, **options)
        for start in range(0, rows, BLOCK):
            block = {view: self._part(view, start, BLOCK) for view in tile.at}
            if chosen is not None:
                here = chosen[(chosen >= start) & (chosen < start + BLOCK)] - start
                block = {view: part[here.to(part.device)] for view, part in block.items()}
            tile.update(block)
        tile.moments.settle()
        return tile

    def part_as_it_is(self, view: int, start: int, stop: int) -> Tensor:
        source, layer = self.views[view]
        return self.reps[source].part(layer, start, stop)

    def _part(self, view: int, start: int, size: int) -> Tensor:
        source, layer = self.views[view]
        states = self.part_as_it_is(view, start, start + size)
        check_part(self.reps[source], layer, start, states)
        return states


class Kept(Stored):
    """Rows that a pass over the texts left in memory, each process those of its own texts."""

    def __init__(self, streamed: Streamed, reps: list[Representations], team: Team) -> None:
        super().__init__(streamed.groups.with_sources(reps), streamed.labels, streamed.device)
        self._team = team
        self.stored = team.size == 1
        self.all_texts = streamed.all_texts
        self.n = int(team.add(torch.tensor(self.n, device=self.device)))
        self.provenance = streamed.provenance

    def _fed(self, pairs: Sequence[Pair], room: float, chosen: Tensor | None, **options: Any) -> Tile:
        tile = super()._fed(pairs, room, chosen, **options)
        return replace(tile, moments=tile.moments.reduce(self._team))

    def gather(self, sums: Sequence[RowSums], groups: TextGroups | None = None) -> None:
        super().gather(sums, groups)
        for each in sums:
            each.reduce(self._team)

    def _part(self, view: int, start: int, size: int) -> Tensor:  # looked at as they came
        return self.part_as_it_is(view, start, start + size)

    def rows(self, view: int) -> Tensor:
        source, layer = self.views[view]
        return self.reps[source][layer]


def _shared_settings(reps: Sequence[Representations]) -> dict[str, Any]:
    """How the texts were read, as far as all representations know it and agree."""
    readings = [part.info.get("reading", {}) for part in reps]
    names = [name for name in ("pool", "max_length", "final_norm") if all(name in reading for reading in readings)]
    return {name: readings[0][name] for name in names if all(r[name] == readings[0][name] for r in readings)}


class Streamed(Arrival):
    """Models over a task: statistics by a pass over the texts, or rows by one."""

    passes = 0  # over the texts, so far

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
        self.device = self.models[0].device
        examples = examples_of(task, split, limit)
        self.examples = examples.in_words() if reading.get("pool") == "words" else examples
        self.reading = reading
        self.layers = [[(layer, str(layer)) for layer in range(m.depth + 1)] for m in self.models]
        self.widths = [width for m in self.models for width in m.widths]
        self.texts = self.all_texts = self.examples.rows
        self.n = 0
        self.provenance = provenance_of(described_as(self.models, self.labels), self.examples, reading)
        self._kept: Stored | None = None
        super().__init__()

    def tile(self, pairs: Sequence[Pair], room: float, beside: Sequence[RowSums] = (), **options: Any) -> Tile:
        options |= {"device": self.device, "block": self._block(pairs, BLOCK, room)}
        return self._stream([Tile.empty(self.widths, pairs, **options)], beside, _one_group)[0]

    def by_group(
        self, groups: TextGroups, pairs: Sequence[Pair], room: float, beside: Sequence[RowSums] = (), **options: Any
    ) -> list[Tile]:
        options |= {"device": self.device, "block": self._block(pairs, BLOCK, room / groups.count)}
        parts = [Tile.empty(self.widths, pairs, **options) for _ in range(groups.count)]
        return self._stream(parts, beside, groups.groups_of)

    def gather(self, sums: Sequence[RowSums], groups: TextGroups | None = None) -> None:
        self._stream([], sums, _one_group if groups is None else groups.groups_of)

    def _stream(self, tiles: list[Tile], beside: Sequence[RowSums], groups_of: GroupsOf) -> list[Tile]:
        """Every batch goes to the tiles and sums of its rows' groups; several processes share the texts and add up."""
        self._pass_over(*(_Feed(parts, self.views, groups_of) for parts in (tiles, beside) if parts))
        team = Team.current()
        summed = [replace(tile, moments=tile.moments.reduce(team)) for tile in tiles]
        for sums in beside:
            sums.reduce(team)
        self.n = sum(tile.moments.n for tile in summed) if tiles else sum(sums.n for sums in beside)
        return summed

    def _pass_over(self, *consumers: Any) -> None:
        """One pass of all models over this process's texts."""
        team = Team.current()
        examples = self.examples.take(slice(team.rank, None, team.size))
        streamer = Streamer(self.models, None, Reading(**self.reading))
        tally = streamer.feed(examples, consumers, " + ".join(self.labels))
        if not self.passes:
            note_unread(tally, self.examples, self.models, streamer.reading.max_length)
        self.passes += 1

    def kept(self, where: Place = "store") -> Stored:
        """The models' rows, those that all of them have."""
        if self._kept is None:
            self._kept = self._in_store() if where == "store" else self._in_memory(where)
            self.n = self._kept.n
        return self._kept

    def _in_store(self) -> Stored:
        reps = Representations.common(*extract_all(self.models, self.examples, **self.reading))
        self.passes += 1
        stored = Stored(self.groups.with_sources(reps), self.labels, self.device)
        stored.all_texts = self.all_texts  # with those that have no row, so that groups of texts are the same
        return stored

    def _in_memory(self, where: Place) -> Stored:
        reading = Reading(**self.reading)
        keeper = RowKeeper([own_type(m, reading) for m in self.models], self.device if where == "device" else _CPU)
        self._pass_over(keeper)
        examples, none = self.examples, np.arange(0)
        units = units_of(reading, self.models[0], examples)
        empty = Rows(examples.task, examples.split, examples.fingerprint, none, units=units)
        reps = [
            keeper.finish([layer for layer, _ in layers], model.width, empty, k)
            for k, (model, layers) in enumerate(zip(self.models, self.layers, strict=True))
        ]
        kept = Kept(self, reps, Team.current())
        if not kept.n:
            raise InputError(f"No row came out of {examples.task} ({examples.split}).")
        return kept

    def rows(self, view: int) -> Tensor:
        return self.kept().rows(view)

    def part_as_it_is(self, view: int, start: int, stop: int) -> Tensor:
        return self.kept().part_as_it_is(view, start, stop)


class _Feed:
    """A consumer that turns batches of several models into rows of views."""

    def __init__(self, parts: Sequence[_Part], views: Sequence[tuple[int, int]], groups_of: GroupsOf) -> None:
        self.parts, self.views, self.groups_of = parts, views, groups_of

    def update(self, batch: Batch) -> None:
        rows = {view: batch.states[source][layer] for view, (source, layer) in enumerate(self.views)}
        _deal(self.parts, rows, self.groups_of(batch.rows.row))


def _deal(parts: Sequence[_Part], rows: dict[int, Tensor], groups: np.ndarray) -> None:
    """Rows of some views to the parts of their groups."""
    for g in np.unique(groups):
        if len(parts) == 1:
            parts[0].update(rows)
        else:
            here = torch.from_numpy(np.flatnonzero(groups == g))
            parts[g].update({view: states[here.to(states.device)] for view, states in rows.items()})


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
