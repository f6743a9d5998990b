"""The output of frozen blocks, kept in memory when a row first goes through them, for every later time.

Where rows are of one length, as windows of running text are, this needs no pass of its own and no disk: the first epoch
runs the frozen blocks as it must, and the later ones do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from layerscope.extraction.encode import Item
from layerscope.models.replay import state_of

_EVEN = 0.75  # the least mean length, as a share of the longest, for which a table of one length is not wasteful
_MOST_ON_CPU = 2 << 30  # bytes


class KeptStates:
    """(rows, longest, width) the states of one layer, filled row by row; rows on the right of a text are padding."""

    def __init__(self, rows: int, longest: int, width: int, like: Tensor) -> None:
        self.table = torch.empty(rows, longest, width, dtype=like.dtype, device=like.device)
        self._seen = np.zeros(rows, dtype=bool)

    @staticmethod
    def fitting(items: Sequence[Item], width: int, like: Tensor) -> KeptStates | None:
        """A table for these items; None where it would be wasteful, or too large for half of the free memory."""
        lengths = np.asarray([len(item) for item in items])
        longest = int(lengths.max())
        size = len(items) * longest * width * like.element_size()
        room = torch.cuda.mem_get_info(like.device)[0] / 2 if like.device.type == "cuda" else _MOST_ON_CPU
        if lengths.mean() < _EVEN * longest or size > room:
            return None
        return KeptStates(len(items), longest, width, like)

    def states(self, rows: Sequence[int], time: int) -> Tensor | None:
        """(rows, time, width) where all of the rows have been seen."""
        if not self._seen[list(rows)].all():
            return None
        return self.table.index_select(0, self._index(rows))[:, :time]

    @contextmanager
    def watching(self, block: nn.Module, rows: Sequence[int]) -> Iterator[None]:
        """Keep what a block gives for these rows in the forward that follows."""

        def keep(_: nn.Module, __: Any, output: Any) -> None:
            state = state_of(output).detach()
            self.table[:, : state.shape[1]].index_copy_(0, self._index(rows), state.to(self.table.dtype))
            self._seen[list(rows)] = True

        hook = block.register_forward_hook(keep)
        try:
            yield
        finally:
            hook.remove()

    def _index(self, rows: Sequence[int]) -> Tensor:
        index = torch.tensor(list(rows))
        if self.table.device.type == "cuda":
            index = index.pin_memory()  # else the copy would wait for all work of the GPU
        return index.to(self.table.device, non_blocking=True)
