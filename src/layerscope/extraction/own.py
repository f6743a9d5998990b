"""States of networks that are not of transformers: their own readers make inputs, their taps give layers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import torch
from torch import Tensor

from layerscope.errors import InputError
from layerscope.extraction.forward import Runner, check_layers
from layerscope.extraction.items import Item, Items
from layerscope.extraction.packing import Packed, Pooling, padded, pooling_arrays
from layerscope.extraction.reading import Reading
from layerscope.models import Model
from layerscope.models.own import OwnModel
from layerscope.models.readers import InputBatch, TextReader
from layerscope.models.wrapping import run, tokens_batch


def runner_of(model: Model, layers: Sequence[int] | None, reading: Reading) -> Runner:
    """What runs a model over batches: hooks on known blocks, or the taps of a network of one's own."""
    return OwnRunner(model, layers, reading) if isinstance(model, OwnModel) else Runner(model, layers, reading)


class OwnPacked(Packed):
    """The inputs of a network of one's own, with what the rows are pooled by."""

    def __init__(self, batch: InputBatch, items: Items, device: torch.device) -> None:
        super().__init__(pooling_arrays(items), device)
        self.batch, self.time = batch, int(items.lengths.max())


class OwnRunner(Runner):
    """A network of one's own, ready to give the pooled states of some of its layers."""

    def __init__(self, model: OwnModel, layers: Sequence[int] | None, reading: Reading) -> None:
        if reading.final_norm:
            raise InputError(
                f"final_norm was asked for, and {model.name} is a network of its own, of which no final norm is known; "
                "name the norm as its last layer instead."
            )
        self.model, self._own = model, model
        self.reading = reading
        self.layers = check_layers(layers, model)
        self._open, self._see, self._is_watched = None, None, False

    def pack_rows(self, items: Items | Sequence[Item]) -> OwnPacked:
        """A batch on the host, with what the rows are pooled by; other threads may make it ahead."""
        items = Items.of(items)
        return OwnPacked(self._batch(items), items, self.model.device)

    def run(self, batch: Packed | Items | Sequence[Item]) -> dict[int, Tensor]:
        """Layer -> (rows, width), float32, on the model's device; of items, or of what `pack_rows` made of them."""
        packed = batch if isinstance(batch, OwnPacked) else self.pack_rows(batch)  # type: ignore[arg-type]
        pooled: dict[int, Tensor] = {}

        def see(layer: int, state: Tensor) -> None:
            if layer in self.layers:
                pooled[layer] = pooling(state)
            if len(pooled) == len(self.layers):
                raise _Enough

        with self.ready(), suppress(_Enough):
            pooling = Pooling(packed.on_device(), packed.time)
            run(self._own, packed.batch.on(self.model.device), see)
        return pooled

    def _batch(self, items: Items) -> InputBatch:
        """The inputs of some items, on the host."""
        reader = self._own.tokenizer
        if isinstance(reader, TextReader):
            return reader.batch(np.split(items.ids, np.cumsum(items.lengths)[:-1]))
        return tokens_batch(self._own, padded(items, self._own.pad_token))


class _Enough(Exception):  # noqa: N818  (not an error)
    """Every layer that is wanted has been seen."""
