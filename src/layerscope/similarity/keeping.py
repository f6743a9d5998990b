"""Rows of several models kept in memory, on the device or the host, in the float type in which the models gave them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from layerscope.extraction.packing import Coming
from layerscope.extraction.reading import Reading
from layerscope.extraction.representations import Representations
from layerscope.extraction.rows import Rows
from layerscope.extraction.streaming import Batch
from layerscope.models import Model

Key = tuple[int, int]  # a model and a layer

_STAGED = 1 << 28  # bytes that wait on a device, so that a copy to the host is worth its wait


def own_type(model: Model, reading: Reading) -> torch.dtype:
    """The float type that holds a model's rows without loss.

    Rows that are states of single tokens are in the model's own type; means of tokens are computed in float32.
    """
    means = reading.pool == "mean" or (reading.pool == "words" and reading.subword == "mean")
    return torch.float32 if means or model.network.dtype.itemsize != 2 else model.network.dtype


@dataclass
class RowKeeper:
    """A consumer that keeps the rows of several models.

    A layer is kept in 16 bits only if its first rows are exactly in that type: some models carry their states, or some
    of them, in a wider type than their weights.
    """

    types: Sequence[torch.dtype]  # of each model
    device: torch.device
    _batches: list[Rows] = field(default_factory=list)
    _waiting: dict[Key, list[Tensor]] = field(default_factory=dict)
    _kept: dict[Key, list[Tensor]] = field(default_factory=dict)
    _asked: Coming | None = None  # of the first rows of each layer: whether they are exactly in 16 bits
    _chosen: dict[Key, torch.dtype] = field(default_factory=dict)
    _staged: int = 0

    def update(self, batch: Batch) -> None:
        self._batches.append(batch.rows)
        states = {(model, layer): state for model, own in enumerate(batch.states) for layer, state in own.items()}
        self._choose()  # when this batch is under way, so that the device does not wait while the first is looked at
        if self._asked is None:
            exact = [(state.to(self.types[key[0]]) == state).all() for key, state in states.items()]
            self._asked = Coming(torch.stack([flag.to(exact[0].device) for flag in exact]))
        for key, state in states.items():
            kept = state.to(self._chosen.get(key, state.dtype))
            self._waiting.setdefault(key, []).append(kept)
            self._staged += kept.nbytes
        if self._staged >= _STAGED:
            self._move()

    def _choose(self) -> None:
        """The type of every layer, once, as its first rows are; these are brought to it."""
        if self._chosen or self._asked is None:
            return
        for (key, parts), exact in zip(self._waiting.items(), self._asked.numpy(), strict=True):
            self._chosen[key] = self.types[key[0]] if exact else parts[0].dtype
            parts[:] = [part.to(self._chosen[key]) for part in parts]

    def _move(self) -> None:
        """What waits, to where it stays."""
        self._choose()
        for key, parts in self._waiting.items():
            if parts:
                self._kept.setdefault(key, []).append(torch.cat(parts).to(self.device))
                parts.clear()
        self._staged = 0

    def finish(self, layers: Sequence[int], width: int, empty: Rows, model: int = 0) -> Representations:
        """The rows of one model in the data's order; `empty` are its rows where there are none."""
        self._move()
        rows = Rows.join(self._batches) if self._batches else empty
        order = rows.order() if len(rows) else np.arange(0)
        at = torch.from_numpy(order).to(self.device)
        states: Mapping[int, Tensor] = {layer: self._layer(model, layer, width, at) for layer in layers}
        return Representations(states, rows.take(order))

    def _layer(self, model: int, layer: int, width: int, at: Tensor) -> Tensor:
        parts = self._kept.pop((model, layer), [])
        return torch.cat(parts)[at] if parts else torch.empty(0, width, device=self.device)
