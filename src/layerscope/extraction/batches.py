"""Batches of like cost, and work that is done ahead in another thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import torch

from layerscope.errors import InputError, log

_WAITING = 4  # batches that are made and not yet run

S = TypeVar("S")
T = TypeVar("T")


class Batches:
    """Puts portions of like cost into batches under a budget; where memory runs out, later batches are smaller."""

    def __init__(self, budget: int, most: int | None = None, unit: str = "attention weights") -> None:
        if budget < 1:
            raise InputError(f"batch_tokens is {budget}; it must be at least 1.")
        self.budget = budget
        self._most = most  # portions per batch
        self._unit = unit  # what costs are counted in

    def over(
        self,
        costs: np.ndarray,
        run: Callable[[Any], T],
        kinds: np.ndarray | None = None,
        prepare: Callable[[np.ndarray], Any] | None = None,
    ) -> Iterator[tuple[np.ndarray, T]]:
        """Places of a batch and what `run(places)` gave, the costliest first: memory runs out at once or never.

        Only portions of one kind go together, and those of kind 0 are left out. With `prepare`, what it makes of the
        places is what is run; it works ahead, in another thread.
        """
        for kind in [None] if kinds is None else np.unique(kinds[kinds > 0])[::-1]:
            waiting = np.arange(len(costs)) if kind is None or kinds is None else np.flatnonzero(kinds == kind)
            waiting = waiting[np.argsort(-costs[waiting], kind="stable")]
            while len(waiting):
                for places, result in self._until_memory_runs_out(waiting, costs, run, prepare):
                    yield places, result
                    waiting = waiting[len(places) :]

    def _until_memory_runs_out(
        self,
        waiting: np.ndarray,
        costs: np.ndarray,
        run: Callable[[Any], T],
        prepare: Callable[[np.ndarray], Any] | None,
    ) -> Iterator[tuple[np.ndarray, T]]:
        """The batches that the present budget makes, up to the first that does not fit; the budget is then smaller."""
        planned = self._planned(waiting, costs)
        made = ((p, p) for p in planned) if prepare is None else ahead(planned, lambda p: (p, prepare(p)), _WAITING)
        for places, ready in made:
            try:
                result = run(ready)
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if not _is_out_of_memory(error):
                    raise
                self._halve(len(places), int(costs[places[0]]), error)
                return
            yield places, result

    def _planned(self, waiting: np.ndarray, costs: np.ndarray) -> list[np.ndarray]:
        batches, start = [], 0
        while start < len(waiting):
            count = max(1, self.budget // max(1, int(costs[waiting[start]])))
            batches.append(waiting[start : start + min(count, self._most or count)])
            start += len(batches[-1])
        return batches

    def _halve(self, portions: int, cost: int, error: Exception) -> None:
        if portions == 1:
            raise InputError(
                f"A single text of {cost} {self._unit} does not fit into memory; lower max_length or use another "
                "device."
            ) from error
        self.budget = max(1, portions // 2) * max(1, cost)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        log.warning("Out of memory; going on with %d texts of this length per batch.", max(1, portions // 2))


def ahead(parts: Iterable[S], prepare: Callable[[S], T], depth: int = 1) -> Iterator[T]:
    """`prepare` of every part in order; while one is used, up to `depth` further ones are made in another thread.

    The parts themselves are asked for in that thread too.
    """
    coming = iter(parts)
    thread = ThreadPoolExecutor(1)
    waiting: deque[Future[tuple[T, ...]]] = deque()

    def make() -> tuple[T, ...]:
        return tuple(prepare(part) for part in (*_first(coming),))

    try:
        waiting.extend(thread.submit(make) for _ in range(depth + 1))
        while ready := waiting.popleft().result():
            yield ready[0]
            del ready  # it may be large, and is no longer wanted while the next one is waited for
            waiting.append(thread.submit(make))
    finally:
        thread.shutdown(wait=True, cancel_futures=True)


def _first(parts: Iterator[S]) -> list[S]:
    """The next part, if there is one."""
    for part in parts:
        return [part]
    return []


def _is_out_of_memory(error: Exception) -> bool:
    text = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in text or "can't allocate memory" in text
