"""States of networks that are not of transformers: their own readers make inputs, their taps give layers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from layerscope.errors import InputError
from layerscope.extraction.encode import Item
from layerscope.extraction.forward import Pooling, Runner, check_layers, padded
from layerscope.extraction.reading import Reading
from layerscope.models import Model
from layerscope.models.anatomy import evaluating
from layerscope.models.own import OwnModel
from layerscope.models.readers import InputBatch, TextReader
from layerscope.models.wrapping import run, tokens_batch

if TYPE_CHECKING:
    from collections.abc import Iterator


def runner_of(model: Model, layers: Sequence[int] | None, reading: Reading) -> Runner:
    """What runs a model over batches: hooks on known blocks, or the taps of a network of one's own."""
    return OwnRunner(model, layers, reading) if isinstance(model, OwnModel) else Runner(model, layers, reading)


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

    def run(self, items: Sequence[Item]) -> dict[int, Tensor]:
        """Layer -> (rows of all items, width), float32, on the model's device."""
        batch, pooling = self.batch(items).on(self.model.device), Pooling(items, self.model.device)
        pooled: dict[int, Tensor] = {}

        def see(layer: int, state: Tensor) -> None:
            if layer in self.layers:
                pooled[layer] = pooling(state)
            if len(pooled) == len(self.layers):
                raise _Enough

        with self.ready(), suppress(_Enough):
            run(self._own, batch, see)
        return pooled

    def batch(self, items: Sequence[Item]) -> InputBatch:
        """The inputs of some items, on the host."""
        reader = self._own.tokenizer
        if isinstance(reader, TextReader):
            return reader.batch([item.ids for item in items])
        return tokens_batch(self._own, padded(items, self._own.pad_token))

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Inference mode, no dropout, autocast if asked for; the network is left as it was."""
        dtype = self.reading.autocast and getattr(torch, self.reading.autocast)
        cast = torch.autocast(self.model.device.type, dtype) if dtype else nullcontext()
        with torch.inference_mode(), evaluating(self.model.network), cast:
            yield


class _Enough(Exception):  # noqa: N818  (not an error)
    """Every layer that is wanted has been seen."""
