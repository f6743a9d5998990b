"""A consumer that keeps the rows of one model, in the data's order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from layerscope.extraction.rows import Rows
from layerscope.extraction.streaming import Batch

_PIECE = 1 << 27  # bytes that wait on a GPU before they are copied to the host

States = dict[int, Tensor]


class Keeper:
    """Rows in the host's memory.

    What lies on a GPU goes there a piece at a time, by copies that are not waited for before the next piece is sent.
    """

    def __init__(self) -> None:
        self._rows: list[Rows] = []
        self._labels: list[np.ndarray | None] = []
        self._waiting: list[States] = []
        self._size = 0  # bytes of what waits
        self._sent: tuple[States, torch.cuda.Event] | None = None
        self._pieces: list[States] = []

    def update(self, batch: Batch) -> None:
        self._rows.append(batch.rows)
        self._labels.append(batch.labels)
        states = batch.states[0]
        if all(state.device.type == "cpu" for state in states.values()):
            self._pieces.append(dict(states))
            return
        self._waiting.append(states)
        self._size += sum(state.nbytes for state in states.values())
        if self._size >= _PIECE:
            self._send()

    def _send(self) -> None:
        """Start to copy what waits."""
        if self._waiting:
            piece = {layer: _to_host([part[layer] for part in self._waiting]) for layer in self._waiting[0]}
            sent = torch.cuda.Event()
            sent.record()
            self._waiting, self._size = [], 0
            self._receive()
            self._sent = piece, sent

    def _receive(self) -> None:
        """Take what was sent before out of page-locked memory, of which there is little."""
        if self._sent is not None:
            piece, sent = self._sent
            sent.synchronize()
            self._pieces.append({layer: part.clone() for layer, part in piece.items()})
            self._sent = None

    def finish(self) -> tuple[States, Rows, np.ndarray | None]:
        """The states, the rows and the labels."""
        self._send()
        self._receive()
        rows = Rows.join(self._rows)
        order = rows.order()
        labels = [part for part in self._labels if part is not None]
        states, at = {}, torch.from_numpy(order)
        for layer in list(self._pieces[0]):
            states[layer] = torch.cat([piece.pop(layer) for piece in self._pieces])[at]
        return states, rows.take(order), np.concatenate(labels)[order] if labels else None

    def __len__(self) -> int:
        return sum(map(len, self._rows))


def _to_host(parts: Sequence[Tensor]) -> Tensor:
    whole = torch.cat(list(parts))
    return torch.empty(whole.shape, dtype=whole.dtype, pin_memory=True).copy_(whole, non_blocking=True)
