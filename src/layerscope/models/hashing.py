"""The hash of a tensor's bytes. From a GPU they come through pinned memory, a piece while the one before is hashed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
import xxhash
from torch import Tensor

_PIECE = 1 << 24  # bytes that are copied at once: little enough to be hashed out of a cache
_THREADS = 8  # one hashes about 10 GB per second, and a GPU sends 50
_SMALL = 1 << 20  # bytes that are hashed before a thread has begun

Later = Callable[[], str]


class _Buffers(threading.local):
    """Two pieces of pinned memory for each thread: to get some takes longer than to fill it."""

    pair: tuple[Tensor, ...] = ()

    def of(self, size: int) -> tuple[Tensor, ...]:
        if not self.pair or len(self.pair[0]) < size:
            self.pair = tuple(torch.empty(size, dtype=torch.uint8, pin_memory=True) for _ in range(2))
        return self.pair


def bytes_hash(tensor: Tensor, buffers: _Buffers | None = None) -> str:
    """The same on every device."""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    whole = xxhash.xxh3_128()
    pinned = flat.is_cuda and len(flat) > _PIECE // 16
    for piece in _through_pinned(flat, buffers or _Buffers()) if pinned else (flat.cpu(),):
        whole.update(piece.numpy().data)
    return whole.hexdigest()


@contextmanager
def hashing_ahead() -> Iterator[Callable[[Tensor], Later]]:
    """`begin(tensor)` starts to hash it beside others, and what it gives waits for the hash."""
    buffers = _Buffers()
    with ThreadPoolExecutor(max(1, min(_THREADS, os.cpu_count() or 1))) as threads:

        def begin(tensor: Tensor) -> Later:
            if tensor.nbytes <= _SMALL:
                digest = bytes_hash(tensor)
                return lambda: digest
            future: Future[str] = threads.submit(_hash_in_order, tensor, _stream_of(tensor), buffers)
            return future.result

        yield begin


def _hash_in_order(tensor: Tensor, stream: AbstractContextManager[object], buffers: _Buffers) -> str:
    """The hash of what the tensor is once everything is done that was asked of it before."""
    with stream:
        return bytes_hash(tensor, buffers)


def _stream_of(tensor: Tensor) -> AbstractContextManager[object]:
    """The queue of a GPU's work that the caller writes to; another thread would have its own."""
    return torch.cuda.stream(torch.cuda.current_stream(tensor.device)) if tensor.is_cuda else nullcontext()


def _through_pinned(flat: Tensor, buffers: _Buffers) -> Iterator[Tensor]:
    """The bytes of a tensor on a GPU, piece by piece; the next one is on its way while one is looked at."""
    pair = buffers.of(_PIECE)
    ahead: tuple[Tensor, torch.cuda.Event] | None = None
    with torch.cuda.device(flat.device):
        for number, part in enumerate(flat.split(_PIECE)):
            target, arrived = pair[number % 2][: len(part)], torch.cuda.Event()
            target.copy_(part, non_blocking=True)
            arrived.record()
            if ahead is not None:
                ahead[1].synchronize()
                yield ahead[0]
            ahead = target, arrived
    if ahead is not None:
        ahead[1].synchronize()
        yield ahead[0]
