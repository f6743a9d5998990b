"""The group of processes that work on one job together (`accelerate launch`), or the one that works alone."""

from __future__ import annotations

import atexit
import os
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


@dataclass(frozen=True)
class Team:
    """A group of `size` processes and this one's rank in it. With one process no method communicates."""

    rank: int = 0
    size: int = 1

    @staticmethod
    @cache
    def current() -> Team:
        """Return this process's team, from the environment that `accelerate launch` or `torchrun` sets."""
        if int(os.environ.get("WORLD_SIZE", "1")) < 2:
            return Team()

        import torch
        from accelerate import PartialState

        state = PartialState(cpu=not torch.cuda.is_available())  # without it, processes on CPUs take themselves for one
        atexit.register(state.destroy_process_group)  # or its threads may abort a process that ends
        return Team(state.process_index, state.num_processes)

    @staticmethod
    def is_helper() -> bool:
        """Return whether this process is one of several and not the main one, without importing torch."""
        return int(os.environ.get("WORLD_SIZE", "1")) > 1 and int(os.environ.get("RANK", "0")) > 0

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def barrier(self) -> None:
        """Wait until every process has come here."""
        if self.size > 1:
            from accelerate import PartialState

            PartialState().wait_for_everyone()

    def broadcast(self, value: T) -> T:
        """Return the main process's value in every process."""
        if self.size == 1:
            return value
        from accelerate.utils import broadcast_object_list

        box = [value if self.is_main else None]
        broadcast_object_list(box, from_process=0)
        return box[0]  # type: ignore[return-value]

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Return the sum of all processes' tensors in every process."""
        if self.size == 1:
            return tensor
        from accelerate.utils import reduce

        return reduce(tensor, reduction="sum")

    def gather(self, value: T) -> list[T]:
        """Return all processes' values in every process, in the order of their ranks."""
        if self.size == 1:
            return [value]
        from accelerate.utils import gather_object

        return list(gather_object([value]))

    def share(self, count: int) -> range:
        """Return the indices among 0..count-1 that are this process's part."""
        return range(self.rank, count, self.size)
