"""Rows of several models kept in memory, on the device or the host, in the float type in which the models gave them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from layerscope.extraction.reading import Reading
from layerscope.extraction.representations import Representations
from layerscope.extraction.rows import Rows
from layerscope.extraction.streaming import Batch
from layerscope.models import Model

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
    _waiting: dict[tuple[int, int], list[Tensor]] = field(default_factory=dict)  # by model and layer
    _kept: dict[tuple[int, int], list[Tensor]] = field(default_factory=dict)
    _chosen: dict[tuple[int, int], torch.dtype] = field(default_factory=dict)
    _staged: int = 0

    def update(self, batch: Batch) -> None:
        self._batches.append(batch.rows)
        for model, states in enumerate(batch.states):
            for layer, state in states.items():
                kept = state.to(self._type_of(model, layer, state))
                self._waiting.setdefault((model, layer), []).append(kept)
                self._staged += kept.nbytes
        if self._staged >= _STAGED:
            self._move()

    def _type_of(self, model: int, layer: int, state: Tensor) -> torch.dtype:
        if (model, layer) not in self._chosen:
            narrow = self.types[model]
            exact = torch.equal(state.to(narrow).to(state.dtype), state)
            self._chosen[model, layer] = narrow if exact else state.dtype
        return self._chosen[model, layer]

    def _move(self) -> None:
        """What waits, to where it stays."""
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
