"""The output of the frozen blocks, run once over the data and kept in the store, memory-mapped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from layerscope.data import Examples
from layerscope.errors import log
from layerscope.extraction.encode import encode, texts_of
from layerscope.extraction.forward import Runner
from layerscope.extraction.items import Items
from layerscope.extraction.loop import Encoder, Loop, Window
from layerscope.extraction.packing import Packed
from layerscope.extraction.reading import Reading
from layerscope.models import Model
from layerscope.progress import progress
from layerscope.store import Artifact, is_sealed, seal, whole_file

GIB = 1 << 30
MOST = 20.0  # GiB; above this the frozen blocks are run again in every epoch
_WORTH_SAYING = 0.1  # GiB
_SHARD_TOKENS = 1 << 18
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class PrefixCache:
    """States of one layer, token by token, for every item (a text or a choice) of a split."""

    def __init__(self, files: Sequence[Any], lengths: np.ndarray, shard: np.ndarray, offset: np.ndarray) -> None:
        self._files, self.lengths, self._shard, self._offset = files, lengths, shard, offset
        self._start = np.cumsum(lengths) - lengths
        self._open: dict[int, Tensor] = {}

    def item(self, place: int) -> Tensor:
        """(tokens, width) of one item; a view of the file."""
        shard, start = int(self._shard[place]), int(self._offset[place])
        if shard not in self._open:
            self._open[shard] = self._files[shard].get_tensor("states")  # memory-mapped: read when it is used
        return self._open[shard][start : start + int(self.lengths[place])]

    def batch(self, places: Sequence[int], left: bool) -> Tensor:
        """(items, longest, width) float32; padding positions are 0."""
        states = [self.item(place) for place in places]
        side = "left" if left else "right"
        return torch.nn.utils.rnn.pad_sequence(states, batch_first=True, padding_side=side).float()

    def table(self, device: torch.device) -> Tensor:
        """(tokens + 1, width) all states in the order of the items, on a device; the last row is 0, for padding."""
        shards = [file.get_tensor("states").to(device) for file in self._files]
        return torch.cat([*shards, torch.zeros(1, shards[0].shape[1], dtype=shards[0].dtype, device=device)])

    @property
    def tokens(self) -> int:
        return int(self.lengths.sum())

    def index(self, places: Sequence[int], left: bool) -> Tensor:
        """(items, longest) the row of each token in `table`."""
        lengths = self.lengths[list(places)]
        longest = int(lengths.max())
        index = np.full((len(places), longest), self.tokens)
        for row, place, length in zip(index, places, lengths, strict=True):
            start = longest - length if left else 0
            row[start : start + length] = self._start[place] + np.arange(length)
        return torch.from_numpy(index)


class PrefixStates(Artifact):
    """One layer of a model, token by token, over some examples: run once, kept in shards of whole texts."""

    kind = "prefix"
    version = 3

    def __init__(
        self,
        model: Model,
        examples: Examples,
        layer: int,
        max_length: int,
        dtype: str,
        encoder: Encoder = encode,
        asked: Mapping[str, Any] | None = None,
    ) -> None:
        self.model, self.examples, self.layer, self.dtype = model, examples, layer, dtype
        self.reading = Reading("tokens", special=True, max_length=max_length)
        self._asked = dict(asked or {})  # what decides the items besides, where another encoder makes them
        self._loop = Loop.over_tokens([model], self.reading, encoder=encoder)

    def spec(self) -> dict[str, Any]:
        model, examples = self.model.spec(), self.examples.spec()
        settings = {"layer": self.layer, "reading": self.reading.spec(), "dtype": self.dtype}
        return {"model": model, "examples": examples, **settings, **self._asked}

    @cached_property
    def items(self) -> Items:
        """The tokens of every text or choice."""
        return self._loop.items(self.examples)[0]

    @cached_property
    def lengths(self) -> np.ndarray:
        return self.items.lengths

    @property
    def size(self) -> float:
        """GiB on the disk."""
        return int(self.lengths.sum()) * self.model.width * _DTYPES[self.dtype].itemsize / GIB

    @cached_property
    def _shards(self) -> np.ndarray:
        """For every item the shard that it is in."""
        texts = texts_of(self.examples)
        ends = np.cumsum(np.bincount(texts, weights=self.lengths, minlength=len(self.examples)))
        return np.unique(ends // _SHARD_TOKENS, return_inverse=True)[1][texts]

    def build(self, folder: Path) -> None:
        """Shards that an earlier try left are kept."""
        runner = Runner(self.model, [self.layer], self.reading)

        def prepare(window: Window, places: np.ndarray) -> Packed:
            return runner.pack_rows(window.chosen(places)[0])

        def run(packed: Packed) -> Tensor:
            states = runner.run(packed)[self.layer]  # (tokens of all items, width)
            return states.to("cpu", _DTYPES[self.dtype])

        title = f"{self.model.name}, blocks 1..{self.layer}, once"
        with progress(title, len(self.examples)) as advance, runner.prepared():
            for k, window in enumerate(self._windows()):
                path = folder / _shard_name(k)
                if is_sealed(path):
                    advance(len(window.examples))
                    continue
                items = window.items[0]
                states: dict[int, Tensor] = {}
                for places, rows in self._loop.through(window, run, advance=advance, prepare=prepare):
                    states |= zip(places.tolist(), rows.split(items.lengths[places].tolist()), strict=True)
                with whole_file(path) as temporary:
                    save_file({"states": torch.cat([states[i] for i in range(len(items))])}, temporary)
                seal(path)

    def _windows(self) -> Iterator[Window]:
        texts = texts_of(self.examples)
        for k in range(self._count):
            at = np.flatnonzero(self._shards == k)
            yield Window(self.examples.take(np.unique(texts[at])), [self.items.at(at)])

    @property
    def _count(self) -> int:
        return int(self._shards[-1]) + 1

    def open(self) -> PrefixCache:
        """The states, from the store, where they are made if they are not there."""
        folder = self.produce()
        files = [safe_open(folder / _shard_name(k), framework="pt") for k in range(self._count)]
        offset = np.cumsum(self.lengths) - self.lengths
        first = np.asarray([offset[self._shards == k].min() for k in range(self._count)])
        return PrefixCache(files, self.lengths, self._shards, offset - first[self._shards])


def _shard_name(shard: int) -> str:
    return f"shard-{shard:05d}.safetensors"


def prefix_cache(
    model: Model,
    examples: Examples,
    layer: int,
    max_length: int,
    dtype: str = "float32",
    most: float = MOST,
    **options: Any,
) -> PrefixCache | None:
    """Layer `layer` of every item, run once and kept; None, with a note, where it would be larger than `most` GiB."""
    states = PrefixStates(model, examples, layer, max_length, dtype, **options)
    what = f"Layer {layer} of {len(states.items)} texts of {examples.task} ({examples.split})"
    if states.size > most:
        log.warning(
            "%s would take %.1f GiB, above the limit of %.1f: it is computed in every epoch.", what, states.size, most
        )
        return None
    say = log.warning if states.size > _WORTH_SAYING else log.info
    say("%s takes %.2f GiB; it is computed once and kept in the store.", what, states.size)
    return states.open()
