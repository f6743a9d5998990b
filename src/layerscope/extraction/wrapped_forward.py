"""States of wrapped networks, which are not of transformers: readers make their inputs, and taps give their layers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import torch
from torch import Tensor

from layerscope.errors import InputError
from layerscope.extraction.forward import Packed, Pooling, Runner, check_layers, padded, pooling_arrays
from layerscope.extraction.items import Item, Items
from layerscope.extraction.pooling import Reading
from layerscope.models import Model
from layerscope.models.text_reader import InputBatch, TextReader
from layerscope.models.wrap import WrappedModel, run, tokens_batch


def runner_of(model: Model, layers: Sequence[int] | None, reading: Reading) -> Runner:
    """Return what runs a model over batches, by hooks on the known blocks or by the taps of a wrapped network."""
    return WrappedRunner(model, layers, reading) if isinstance(model, WrappedModel) else Runner(model, layers, reading)


class WrappedPacked(Packed):
    """The inputs of a wrapped network, with the arrays by which its rows are pooled."""

    def __init__(self, batch: InputBatch, items: Items, device: torch.device) -> None:
        super().__init__(pooling_arrays(items), device)
        self.batch, self.time = batch, int(items.lengths.max())


class WrappedRunner(Runner):
    """A wrapped network, ready to give the pooled states of some of its layers."""

    def __init__(self, model: WrappedModel, layers: Sequence[int] | None, reading: Reading) -> None:
        if reading.final_norm:
            raise InputError(
                f"final_norm was asked for, and {model.name} is a network of its own, of which no final norm is known; "
                "name the norm as its last layer instead."
            )
        self.model, self._wrapped = model, model
        self.reading = reading
        self.layers = check_layers(layers, model)
        self._open, self._see, self._is_watched = None, None, False

    def pack_rows(self, items: Items | Sequence[Item]) -> WrappedPacked:
        """Return a batch on the host, with the arrays of pooling; other threads may make it ahead."""
        items = Items.from_list(items)
        return WrappedPacked(self._batch(items), items, self.model.device)

    def run(self, batch: Packed | Items | Sequence[Item]) -> dict[int, Tensor]:
        """Return layer -> (rows, width), float32 on the model's device, of items or of what `pack_rows` made."""
        packed = batch if isinstance(batch, WrappedPacked) else self.pack_rows(batch)  # type: ignore[arg-type]
        pooled: dict[int, Tensor] = {}

        def see(layer: int, state: Tensor) -> None:
            if layer in self.layers:
                pooled[layer] = pooling(state)
            if len(pooled) == len(self.layers):  # nothing above the last layer that is wanted needs to run
                raise _AllLayersSeen

        with self.ready(), suppress(_AllLayersSeen):
            pooling = Pooling(packed.on_device(), packed.time)
            run(self._wrapped, packed.batch.on(self.model.device), see)
        return pooled

    def _batch(self, items: Items) -> InputBatch:
        """Return the inputs of some items, on the host."""
        reader = self._wrapped.tokenizer
        if isinstance(reader, TextReader):
            return reader.batch(np.split(items.ids, np.cumsum(items.lengths)[:-1]))
        return tokens_batch(self._wrapped, padded(items, self._wrapped.pad_token))


class _AllLayersSeen(Exception):  # noqa: N818  (not an error)
    """Raised to end a forward when every layer that is wanted has been seen."""
