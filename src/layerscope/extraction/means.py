"""Means of some rows of a matrix: of the tokens of a text or a word."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor


def segment_means(rows: Tensor, places: Tensor, offsets: Tensor) -> Tensor:
    """(segments, width) float32: the mean of `rows[places[start:stop]]` for every start and stop among `offsets`.

    The host never waits for the device, and two runs give the same numbers.
    """
    if rows.is_cuda and has_triton():
        from layerscope.extraction.means_triton import fused_segment_means

        return fused_segment_means(rows, places, offsets)
    return plain_segment_means(rows, places, offsets)


def plain_segment_means(rows: Tensor, places: Tensor, offsets: Tensor) -> Tensor:
    """The same by torch alone, which needs all rows in float32."""
    return torch.nn.functional.embedding_bag(places, rows.float(), offsets, mode="mean", include_last_offset=True)


@cache
def has_triton() -> bool:
    """Whether kernels of our own can be compiled here."""
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True
