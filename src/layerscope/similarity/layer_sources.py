"""Where the rows of the compared layers come from: stored representations, or models that run over a task.

`Stored` reads rows that exist. `Streamed` runs the models over the texts and gathers moments and sums on the way, or
first keeps their rows: in the store, or in memory on the device or the host, in the models' own float type.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from layerscope.distributed import Team
from layerscope.errors import InputError
from layerscope.extraction.extract import examples_of, extract_all
from layerscope.extraction.forward import PendingCopy
from layerscope.extraction.loop import note_unread
from layerscope.extraction.pooling import Reading
from layerscope.extraction.representations import Representations, check_part
from layerscope.extraction.row_store import Rows
from layerscope.extraction.stream import Batch, Streamer, units_of
from layerscope.models import Model, load
from layerscope.models.load import labels_of
from layerscope.models.sources import short_names
from layerscope.results import provenance_of
from layerscope.similarity.execution_plan import Groups, Place, Views, block_rows, source_names, views_of
from layerscope.similarity.moments import BLOCK, Moments, Pair
from layerscope.similarity.row_means import RowSums
from layerscope.similarity.unbiased_hsic import WithinTexts, alone, within_texts

Key = tuple[int, int]  # a model and a layer

_STAGED = 1 << 28  # bytes that wait on a device, so that a copy to the host is worth its wait


def row_dtype(model: Model, reading: Reading) -> torch.dtype:
    """The float type that holds a model's rows without loss.

    Rows that are states of single tokens are in the model's own type; means of tokens are computed in float32.
    """
    means = reading.pool == "mean" or (reading.pool == "words" and reading.subword == "mean")
    return torch.float32 if means or model.network.dtype.itemsize != 2 else model.network.dtype


@dataclass
class RowKeeper:
    """A consumer of batches that keeps the rows of several models in memory.

    A layer is kept in 16 bits only if its first rows are exactly in that type: some models carry their states, or some
    of them, in a wider type than their weights.
    """

    types: Sequence[torch.dtype]  # of each model
    device: torch.device
    _batches: list[Rows] = field(default_factory=list)
    _waiting: dict[Key, list[Tensor]] = field(default_factory=dict)
    _kept: dict[Key, list[Tensor]] = field(default_factory=dict)
    _exact: PendingCopy | None = None  # for each layer, whether 16 bits hold its first rows exactly
    _chosen: dict[Key, torch.dtype] = field(default_factory=dict)
    _staged: int = 0

    def update(self, batch: Batch) -> None:
        self._batches.append(batch.rows)
        states = {(model, layer): state for model, layers in enumerate(batch.states) for layer, state in layers.items()}
        # This reads a value of the first batch from the device, so it waits until the second one is under way.
        self._choose_types()
        if self._exact is None:
            exact = [(state.to(self.types[key[0]]) == state).all() for key, state in states.items()]
            self._exact = PendingCopy(torch.stack([flag.to(exact[0].device) for flag in exact]))
        for key, state in states.items():
            rows = state.to(self._chosen.get(key, state.dtype))
            self._waiting.setdefault(key, []).append(rows)
            self._staged += rows.nbytes
        if self._staged >= _STAGED:
            self._move()

    def _choose_types(self) -> None:
        """Choose the float type of every layer, once, by its first rows, and convert those."""
        if self._chosen or self._exact is None:
            return
        for (key, parts), exact in zip(self._waiting.items(), self._exact.numpy(), strict=True):
            self._chosen[key] = self.types[key[0]] if exact else parts[0].dtype
            parts[:] = [part.to(self._chosen[key]) for part in parts]

    def _move(self) -> None:
        """Move the rows that wait to the device where they stay."""
        self._choose_types()
        for key, parts in self._waiting.items():
            if parts:
                self._kept.setdefault(key, []).append(torch.cat(parts).to(self.device))
                parts.clear()
        self._staged = 0

    def finish(self, layers: Sequence[int], width: int, empty: Rows, model: int = 0) -> Representations:
        """The rows of one model in the order of the data; `empty` stands for their identity where no row came."""
        self._move()
        rows = Rows.join(self._batches) if self._batches else empty
        order = rows.order() if len(rows) else np.arange(0)
        at = torch.from_numpy(order).to(self.device)
        states: dict[int, Tensor] = {}
        for layer in layers:
            parts = self._kept.pop((model, layer), [])
            states[layer] = torch.cat(parts)[at] if parts else torch.empty(0, width, device=self.device)
        return Representations(states, rows.take(order))


_CPU = torch.device("cpu")
_SMALL_BLOCK = 1024  # rows read for sums


@dataclass(frozen=True)
class Tile:
    """The moments of some views; a view is addressed by its number among all views of the comparison."""

    moments: Moments
    pairs: Sequence[Pair]
    at: dict[int, int]  # view -> its place in the moments
    within: WithinTexts | None = None  # where unbiased HSIC does not follow from the moments alone

    @staticmethod
    def empty(widths: Sequence[int], pairs: Sequence[Pair], **options: Any) -> Tile:
        """A tile for some pairs of views that has no rows yet; `options` are those of `Moments`."""
        at = {view: place for place, view in enumerate(views_of(pairs))}
        local = [(at[i], at[j]) for i, j in pairs]
        return Tile(Moments([widths[view] for view in at], pairs=local, **options), pairs, at)

    def update(self, rows: dict[int, Tensor] | Sequence[Tensor]) -> None:
        """Add rows: (k, width) of every view, the same k rows in all of them."""
        self.moments.update([rows[view] for view in self.at])

    def hsic(self, i: int, j: int) -> float:
        """The unbiased HSIC of two views, times n (n - 3)."""
        if self.within is None:
            return self.moments.hsic(self.at[i], self.at[j])
        return self.within.hsic(self.moments, self.at[i], self.at[j])


def _sum(parts: Sequence[Tile]) -> Tile:
    """The moments of all groups of texts, from those of each."""
    total = replace(parts[0], moments=parts[0].moments.without(parts[0].moments))  # empty, and of the same views
    for part in parts:
        total.moments.merge(part.moments)
    return total


def _without_each(total: Tile, parts: Sequence[Tile]) -> Iterator[Tile]:
    """The moments of all groups of texts, then those without one group after the other."""
    yield total
    for part in parts:
        yield replace(total, moments=total.moments.without(part.moments))


class _Part(Protocol):
    """Anything that rows are added to: moments, or sums."""

    def update(self, rows: dict[int, Tensor]) -> None: ...


GroupsOf = Callable[[np.ndarray], np.ndarray]  # from the texts to the group of each


def one_group(texts: np.ndarray) -> np.ndarray:
    """The group of each text where all are in one."""
    return np.zeros(len(texts), dtype=np.int64)


class TextGroups(Protocol):
    """A division of the texts into `count` groups."""

    count: int

    def groups_of(self, texts: np.ndarray) -> np.ndarray: ...


class LayerSource(Views, ABC):
    """The views of a comparison, and the way to their moments or rows."""

    texts: np.ndarray  # the number of every row's text
    all_texts: np.ndarray  # of every text that there is, in every process, with rows or without
    stored = False  # whether all rows are there already
    device: torch.device = _CPU  # where products and sums are made

    @property
    @abstractmethod
    def several_rows(self) -> bool:
        """Whether texts have several rows: words, tokens, choices."""

    @abstractmethod
    def tile(self, pairs: Sequence[Pair], room: float, beside: Sequence[RowSums] = (), **options: Any) -> Tile:
        """The moments of some pairs of views, from one pass over the rows within `room` bytes.

        The same pass fills the sums in `beside`. With `debiased`, the tile has unbiased HSIC; where texts have several
        rows, only rows that are kept give it.
        """

    @abstractmethod
    def by_group(
        self, groups: TextGroups, pairs: Sequence[Pair], room: float, beside: Sequence[RowSums] = (), **options: Any
    ) -> Iterator[Tile]:
        """The moments of some pairs for all texts, then for all but one group of them after the other.

        They come from one pass over the rows, which fills the sums of the groups in `beside`.
        """

    @abstractmethod
    def gather(self, sums: Sequence[RowSums], groups: TextGroups | None = None) -> None:
        """Fill sums by one pass: one for all texts, or one for each group of them."""

    def _block(self, pairs: Sequence[Pair], rows: int, room: float) -> int:
        """How many rows go into one product of the views of these pairs."""
        return block_rows([self.widths[view] for view in views_of(pairs)], rows, room)

    @abstractmethod
    def rows(self, view: int) -> Tensor:
        """(n, width) the rows of a view."""

    @abstractmethod
    def unchecked_part(self, view: int, start: int, stop: int) -> Tensor:
        """Rows `start` to `stop` of a view; they may hold a NaN or an infinity."""

    @abstractmethod
    def with_rows(self, where: Place = "store") -> Stored:
        """The same layers with their rows kept in one place; models run over the texts for it, once."""


class Stored(LayerSource):
    """The layers of representations, whose rows exist already."""

    stored = True
    _team = Team()

    def __init__(self, groups: Groups, names: Sequence[str] | None, device: torch.device = _CPU) -> None:
        self.groups = groups
        self.device = device
        self.reps: list[Representations] = groups.sources
        for other in self.reps[1:]:
            self.reps[0].rows.require_same(other.rows)
        opened = [str(reps.info.get("model", f"set {k + 1}")) for k, reps in enumerate(self.reps)]
        self.labels = source_names(short_names(opened), names)
        self.layers = [list(zip(reps.layers, reps.names, strict=True)) for reps in self.reps]
        self.widths = [reps.part(layer, 0, 1).shape[1] for reps in self.reps for layer in reps.layers]
        self.n = len(self.reps[0])
        self.texts = self.all_texts = self.reps[0].rows.row
        self.provenance = self._provenance()
        super().__init__()

    def _provenance(self) -> dict[str, Any]:
        first = self.reps[0]
        models = [
            {"name": str(reps.info.get("model", label)), **reps.info.get("described", {}), "label": label}
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
        whole = self._fed(pairs, room, None, **options)
        if options.get("debiased") and self.several_rows:
            whole = replace(whole, within=self._within_texts(whole, [], one_group(self.all_texts))[0])
        return whole

    def gather(self, sums: Sequence[RowSums], groups: TextGroups | None = None) -> None:
        rows = len(self.texts)
        group = np.zeros(rows, dtype=np.int64) if groups is None else groups.groups_of(self.texts)
        for start in range(0, rows if sums else 0, _SMALL_BLOCK):
            block = {view: self._part(view, start, _SMALL_BLOCK) for view in sums[0].views}
            _deal(sums, block, group[start : start + _SMALL_BLOCK])

    def by_group(
        self, groups: TextGroups, pairs: Sequence[Pair], room: float, beside: Sequence[RowSums] = (), **options: Any
    ) -> Iterator[Tile]:
        self.gather(beside, groups)
        group = groups.groups_of(self.texts)
        chosen = [torch.from_numpy(np.flatnonzero(group == g)) for g in range(groups.count)]
        parts = [self._fed(pairs, room / groups.count, here, **options) for here in chosen]
        total = _sum(parts)
        within: Sequence[WithinTexts | None] = [None] * (len(parts) + 1)
        if options.get("debiased") and self.several_rows:
            within = self._within_texts(total, parts, groups.groups_of(self.all_texts))
        for tile, part in zip(_without_each(total, parts), within, strict=True):
            yield replace(tile, within=part)

    def with_rows(self, where: Place = "store") -> Stored:
        return self

    def _fed(self, pairs: Sequence[Pair], room: float, chosen: Tensor | None, **options: Any) -> Tile:
        """The moments of all rows, or of the chosen ones, read a block at a time."""
        rows = len(self.texts)
        options["block"] = self._block(pairs, rows if chosen is None else len(chosen), room)
        options["debiased"] = options.get("debiased", False) and not self.several_rows
        tile = Tile.empty(self.widths, pairs, device=self.device, **options)
        for start in range(0, rows, BLOCK):
            block = {view: self._part(view, start, BLOCK) for view in tile.at}
            if chosen is not None:
                here = chosen[(chosen >= start) & (chosen < start + BLOCK)] - start
                block = {view: part[here.to(part.device)] for view, part in block.items()}
            tile.update(block)
        tile.moments.settle()
        return tile

    @cached_property
    def several_rows(self) -> bool:
        return not alone(self.texts)

    def _within_texts(self, total: Tile, parts: Sequence[Tile], group: np.ndarray) -> list[WithinTexts]:
        """What unbiased HSIC takes off for all texts, then for all but each group; `all_texts` are of these groups."""
        known, first = np.unique(self.all_texts, return_index=True)
        number = np.searchsorted(known, self.texts)
        own = torch.from_numpy(np.bincount(number, minlength=len(known))).to(self.device)
        sizes = self._team.all_reduce(own).cpu().numpy()
        blocks = self._whole_texts(list(total.at), number)
        return within_texts(blocks, total.moments, [part.moments for part in parts], sizes, group[first], self._team)

    def _whole_texts(self, views: Sequence[int], number: np.ndarray) -> Iterator[tuple[list[Tensor], np.ndarray]]:
        """The rows of some views, text by text in blocks of whole texts, with the number of each row's text."""
        order = np.argsort(number, kind="stable")
        together = np.array_equal(order, np.arange(len(order)))
        ends = np.append(np.flatnonzero(np.diff(number[order])) + 1, len(order))  # where a text ends
        start = 0
        while start < len(order):
            stop = int(ends[np.searchsorted(ends, min(start + _SMALL_BLOCK, len(order)))])
            if together:
                rows = [self.unchecked_part(view, start, stop) for view in views]
            else:
                rows = [self.rows(view)[torch.from_numpy(order[start:stop])] for view in views]
            yield rows, number[order[start:stop]]
            start = stop

    def unchecked_part(self, view: int, start: int, stop: int) -> Tensor:
        source, layer = self.views[view]
        return self.reps[source].part(layer, start, stop)

    def _part(self, view: int, start: int, size: int) -> Tensor:
        """`size` rows of a view from `start` on, all of them finite."""
        source, layer = self.views[view]
        states = self.unchecked_part(view, start, start + size)
        check_part(self.reps[source], layer, start, states)
        return states


class RowsInMemory(Stored):
    """Rows that a pass over the texts left in memory; each process has those of its own texts."""

    def __init__(self, streamed: Streamed, reps: list[Representations], team: Team) -> None:
        super().__init__(streamed.groups.with_sources(reps), streamed.labels, streamed.device)
        self._team = team
        self.several_rows = streamed.several_rows
        self.stored = team.size == 1
        self.all_texts = streamed.all_texts
        self.n = int(team.all_reduce(torch.tensor(self.n, device=self.device)))
        self.provenance = streamed.provenance

    def _fed(self, pairs: Sequence[Pair], room: float, chosen: Tensor | None, **options: Any) -> Tile:
        tile = super()._fed(pairs, room, chosen, **options)
        return replace(tile, moments=tile.moments.reduce(self._team))

    def gather(self, sums: Sequence[RowSums], groups: TextGroups | None = None) -> None:
        super().gather(sums, groups)
        for each in sums:
            each.reduce(self._team)

    def _part(self, view: int, start: int, size: int) -> Tensor:
        # The pass that made the rows has checked that they are finite.
        return self.unchecked_part(view, start, start + size)

    def rows(self, view: int) -> Tensor:
        source, layer = self.views[view]
        return self.reps[source][layer]


def _shared_settings(reps: Sequence[Representations]) -> dict[str, Any]:
    """The settings with which the texts were read, as far as all representations name them and agree."""
    readings = [part.info.get("reading", {}) for part in reps]
    names = [name for name in ("pool", "max_length", "final_norm") if all(name in reading for reading in readings)]
    return {name: readings[0][name] for name in names if all(r[name] == readings[0][name] for r in readings)}


class Streamed(LayerSource):
    """The layers of models that run over a task, once for moments or rows and again where they do not fit."""

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
        self.models, self.labels = open_models(groups, names, task)
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

    @property
    def several_rows(self) -> bool:
        return self.reading.get("pool") in ("words", "tokens") or self.examples.choices is not None

    def tile(self, pairs: Sequence[Pair], room: float, beside: Sequence[RowSums] = (), **options: Any) -> Tile:
        options |= {"device": self.device, "block": self._block(pairs, BLOCK, room)}
        return self._stream([Tile.empty(self.widths, pairs, **options)], beside, one_group)[0]

    def by_group(
        self, groups: TextGroups, pairs: Sequence[Pair], room: float, beside: Sequence[RowSums] = (), **options: Any
    ) -> Iterator[Tile]:
        options |= {"device": self.device, "block": self._block(pairs, BLOCK, room / groups.count)}
        parts = [Tile.empty(self.widths, pairs, **options) for _ in range(groups.count)]
        parts = self._stream(parts, beside, groups.groups_of)
        yield from _without_each(_sum(parts), parts)

    def gather(self, sums: Sequence[RowSums], groups: TextGroups | None = None) -> None:
        self._stream([], sums, one_group if groups is None else groups.groups_of)

    def _stream(self, tiles: list[Tile], beside: Sequence[RowSums], groups_of: GroupsOf) -> list[Tile]:
        """Make one pass that adds every row to the tile and the sums of its group; processes share the texts."""
        assert not (self.several_rows and any(tile.moments.debiased for tile in tiles))  # the plan keeps rows for it
        self._pass_over(*(_Feed(parts, self.views, groups_of) for parts in (tiles, beside) if parts))
        team = Team.current()
        summed = [replace(tile, moments=tile.moments.reduce(team)) for tile in tiles]
        for sums in beside:
            sums.reduce(team)
        self.n = sum(tile.moments.n for tile in summed) if tiles else sum(sums.n for sums in beside)
        return summed

    def _pass_over(self, *consumers: Any) -> None:
        """Run all models once over this process's texts, and give every batch to the consumers."""
        team = Team.current()
        examples = self.examples.take(slice(team.rank, None, team.size))
        streamer = Streamer(self.models, None, Reading(**self.reading))
        tally = streamer.feed(examples, consumers, " + ".join(self.labels))
        if not self.passes:
            note_unread(tally, self.examples, self.models, streamer.reading.max_length)
        self.passes += 1

    def with_rows(self, where: Place = "store") -> Stored:
        """The layers with the rows that all models have, kept in one place by a pass over the texts."""
        if self._kept is None:
            self._kept = self._in_store() if where == "store" else self._in_memory(where)
            self.n = self._kept.n
        return self._kept

    def _in_store(self) -> Stored:
        """The rows in the store, extracted where they are missing."""
        reps = Representations.common(*extract_all(self.models, self.examples, **self.reading))
        self.passes += 1
        stored = Stored(self.groups.with_sources(reps), self.labels, self.device)
        stored.all_texts = self.all_texts  # with those that have no row, so that groups of texts are the same
        return stored

    def _in_memory(self, where: Place) -> Stored:
        """The rows in memory, on the models' device or on the host."""
        reading = Reading(**self.reading)
        keeper = RowKeeper([row_dtype(m, reading) for m in self.models], self.device if where == "device" else _CPU)
        self._pass_over(keeper)
        examples, none = self.examples, np.arange(0)
        units = units_of(reading, self.models[0], examples)
        empty = Rows(examples.task, examples.split, examples.fingerprint, none, units=units)
        reps = [
            keeper.finish([layer for layer, _ in layers], model.width, empty, k)
            for k, (model, layers) in enumerate(zip(self.models, self.layers, strict=True))
        ]
        kept = RowsInMemory(self, reps, Team.current())
        if not kept.n:
            raise InputError(f"No row came out of {examples.task} ({examples.split}).")
        return kept

    def rows(self, view: int) -> Tensor:
        return self.with_rows().rows(view)

    def unchecked_part(self, view: int, start: int, stop: int) -> Tensor:
        return self.with_rows().unchecked_part(view, start, stop)


class _Feed:
    """A consumer that adds the rows of every view of a batch to moments or sums."""

    def __init__(self, parts: Sequence[_Part], views: Sequence[tuple[int, int]], groups_of: GroupsOf) -> None:
        self.parts, self.views, self.groups_of = parts, views, groups_of

    def update(self, batch: Batch) -> None:
        rows = {view: batch.states[source][layer] for view, (source, layer) in enumerate(self.views)}
        _deal(self.parts, rows, self.groups_of(batch.rows.row))


def _deal(parts: Sequence[_Part], rows: dict[int, Tensor], groups: np.ndarray) -> None:
    """Add rows of some views to the parts of their groups; a single part takes all of them."""
    for g in np.unique(groups):
        if len(parts) == 1:
            parts[0].update(rows)
        else:
            here = torch.from_numpy(np.flatnonzero(groups == g))
            parts[g].update({view: states[here.to(states.device)] for view, states in rows.items()})


def open_models(groups: Groups, names: Sequence[str] | None, task: Any) -> tuple[list[Model], list[str]]:
    """The sources of a comparison, loaded as models, and their names in the result."""
    if task is None:
        raise InputError("Models are compared over texts: name a task, as in compare('model', task='sst2').")
    models = [load(source) for source in groups.sources]
    return models, source_names(labels_of(models), names)


def described_as(models: Sequence[Model], labels: Sequence[str]) -> list[dict[str, Any]]:
    """The descriptions of models for provenance, with the names that they have in the result as labels."""
    return [{**model.described(), "label": label} for model, label in zip(models, labels, strict=True)]
