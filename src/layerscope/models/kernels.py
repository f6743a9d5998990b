"""Which of torch's attention kernels a forward over batches of many shapes takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def kernels_for_any_shape() -> Iterator[None]:
    """Until the block ends attention is not cuDNN's, unless nothing else is allowed.

    On some GPUs torch prefers cuDNN's kernel in 16 bits. That one is planned anew for every shape of a batch, for
    longer than the whole forward takes, and texts of different lengths are batches of hundreds of shapes.
    """
    flags = torch.backends.cuda
    others = flags.flash_sdp_enabled() or flags.mem_efficient_sdp_enabled() or flags.math_sdp_enabled()
    if not (flags.cudnn_sdp_enabled() and others):
        yield
        return
    flags.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        flags.enable_cudnn_sdp(True)
