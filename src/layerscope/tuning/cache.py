"""The output of the frozen blocks, run once over the data and kept in the store, memory-mapped."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from layerscope.data import Examples
from layerscope.errors import log
from layerscope.extract.batches import Batches, default_tokens
from layerscope.extract.encode import Item, encode
from layerscope.extract.forward import Runner, watching
from layerscope.extract.reading import Reading
from layerscope.models import Model
from layerscope.models.identity import fingerprint, tokenizer_fingerprint
from layerscope.progress import progress
from layerscope.store import Store, digest, sync

VERSION = 1
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
        found = np.full((len(places), longest), self.tokens)
        for row, place, length in zip(found, places, lengths, strict=True):
            start = longest - length if left else 0
            row[start : start + length] = self._start[place] + np.arange(length)
        return torch.from_numpy(found)


def prefix_cache(
    model: Model, examples: Examples, layer: int, max_length: int, dtype: str = "float32", most: float = MOST
) -> PrefixCache | None:
    """Layer `layer` of every item, run once and kept; None, with a note, where it would be larger than `most` GiB."""
    items = encode(model, examples, Reading("cls", max_length=max_length))
    lengths = np.asarray([len(item) for item in items])
    size = int(lengths.sum()) * model.width * _DTYPES[dtype].itemsize / GIB
    what = f"Layer {layer} of {len(items)} texts of {examples.task} ({examples.split})"
    if size > most:
        log.warning("%s would take %.1f GiB, above the limit of %.1f: it is computed in every epoch.", what, size, most)
        return None
    say = log.warning if size > _WORTH_SAYING else log.info
    say("%s takes %.2f GiB; it is computed once and kept in the store.", what, size)
    spec = {
        "version": VERSION,
        "model": fingerprint(model),
        "tokenizer": tokenizer_fingerprint(model.require_tokenizer()),
        "data": examples.fingerprint,
        "task": examples.task,
        "split": examples.split,
        "rows": digest(examples.rows.tobytes()),
        "layer": layer,
        "max_length": max_length,
        "dtype": dtype,
    }
    shard = np.cumsum(lengths) // _SHARD_TOKENS
    folder = Store().produce("prefix", spec, partial(_write, model, items, shard, layer, _DTYPES[dtype]))
    files = [safe_open(folder / f"shard-{k:05d}.safetensors", framework="pt") for k in range(int(shard[-1]) + 1)]
    offset = np.cumsum(lengths) - lengths
    first = {int(k): int(offset[shard == k].min()) for k in np.unique(shard)}
    return PrefixCache(files, lengths, shard, offset - np.asarray([first[int(k)] for k in shard]))


def _write(model: Model, items: list[Item], shard: np.ndarray, layer: int, dtype: torch.dtype, folder: Path) -> None:
    runner = Runner(model, [0], Reading("cls"))
    batches = Batches(default_tokens(model.device))
    with progress(f"{model.name}, blocks 1..{layer}, once", len(items)) as advance:
        for k in range(int(shard[-1]) + 1):
            path = folder / f"shard-{k:05d}.safetensors"
            own = [items[i] for i in np.flatnonzero(shard == k)]
            if path.is_file() or not own:
                if not own:
                    save_file({"states": torch.empty(0, model.width, dtype=dtype)}, path)
                advance(len(own))
                continue
            states: list[Tensor | None] = [None] * len(own)

            def run(chosen: np.ndarray, own: list[Item] = own) -> Tensor:
                return _layer(runner, [own[i] for i in chosen], layer)

            for chosen, got in batches.over(np.asarray([len(i) for i in own]), run):
                for i, state in zip(chosen, got, strict=True):
                    states[i] = state[: len(own[i])].to("cpu", dtype)
                advance(len(chosen))
            temporary = path.with_name(f".{path.name}")
            save_file({"states": torch.cat([s for s in states if s is not None])}, temporary)
            sync(temporary)
            temporary.replace(path)


def _layer(runner: Runner, items: list[Item], layer: int) -> Tensor:
    """(texts, time, width) of one layer; nothing above it runs."""
    model, found = runner.model, []

    class Enough(Exception):  # noqa: N818
        pass

    def see(number: int, state: Tensor) -> None:
        if number == layer:
            found.append(state.transpose(0, 1) if model.anatomy.time_first else state)
            raise Enough

    with runner.ready(), watching(model, see), suppress(Enough):
        model.network.base_model(**runner.inputs(items))
    return found[0]
