"""Batches of texts of like length under a budget of tokens, and the work that is prepared while a batch runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch

from layerscope.errors import InputError, log

_BUDGET = {"cpu": 1024, "cuda": 16384}  # tokens a batch, padding included; on a CPU small batches stay in its caches

S = TypeVar("S")
T = TypeVar("T")


def default_tokens(device: torch.device) -> int:
    """Tokens of an ordinary batch on a device."""
    return _BUDGET.get(device.type, 16384)


class Batches:
    """Cuts texts into batches; where memory runs out, this and all later batches are smaller."""

    def __init__(self, tokens: int, most: int | None = None) -> None:
        if tokens < 1:
            raise InputError(f"batch_tokens is {tokens}; it must be at least 1.")
        self.tokens = tokens
        self._most = most  # texts a batch

    def over(self, lengths: np.ndarray, run: Callable[[np.ndarray], T]) -> Iterator[tuple[np.ndarray, T]]:
        """Positions of a batch and what `run(positions)` gave, the longest first: memory runs out at once or never."""
        waiting = np.argsort(-lengths, kind="stable")
        while len(waiting):
            longest = max(1, int(lengths[waiting[0]]))
            count = max(1, self.tokens // longest)
            chosen = waiting[: min(count, self._most or count)]
            try:
                result = run(chosen)
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if not _is_out_of_memory(error):
                    raise
                self._halve(len(chosen), longest, error)
                continue
            yield chosen, result
            waiting = waiting[len(chosen) :]

    def _halve(self, texts: int, longest: int, error: Exception) -> None:
        if texts == 1:
            raise InputError(
                f"A single text of {longest} tokens does not fit into memory; lower max_length or use another device."
            ) from error
        self.tokens = max(1, texts // 2) * longest
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        log.warning("Out of memory; going on with %d tokens a batch.", self.tokens)


def ahead(parts: Iterable[S], prepare: Callable[[S], T]) -> Iterator[T]:
    """`prepare` of every part in order; while one is used, the next is prepared in another thread."""
    with ThreadPoolExecutor(1) as thread:
        coming = None
        for part in parts:
            ready, coming = coming, thread.submit(prepare, part)
            if ready is not None:
                yield ready.result()
        if coming is not None:
            yield coming.result()


def _is_out_of_memory(error: Exception) -> bool:
    text = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in text or "can't allocate memory" in text
