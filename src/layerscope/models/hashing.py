"""The hash of a tensor's bytes. From a GPU they come through pinned memory, a piece while the one before is hashed."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import xxhash
from torch import Tensor

_PIECE = 1 << 26  # bytes that are copied at once


def bytes_hash(tensor: Tensor) -> str:
    """The same on every device."""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    whole = xxhash.xxh3_128()
    for piece in _through_pinned(flat) if flat.is_cuda and len(flat) > _PIECE // 64 else (flat.cpu(),):
        whole.update(piece.numpy().data)
    return whole.hexdigest()


def _through_pinned(flat: Tensor) -> Iterator[Tensor]:
    """The bytes of a tensor on a GPU, piece by piece; the next one is on its way while one is looked at."""
    size = min(_PIECE, len(flat))
    buffers = [torch.empty(size, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    ahead: tuple[Tensor, torch.cuda.Event] | None = None
    with torch.cuda.device(flat.device):
        for number, part in enumerate(flat.split(size)):
            target, arrived = buffers[number % 2][: len(part)], torch.cuda.Event()
            target.copy_(part, non_blocking=True)
            arrived.record()
            if ahead is not None:
                ahead[1].synchronize()
                yield ahead[0]
            ahead = target, arrived
    if ahead is not None:
        ahead[1].synchronize()
        yield ahead[0]
