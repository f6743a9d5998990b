"""Pooling of token states into rows: the options (`Reading`), and means over the tokens of a text or a word."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from layerscope.errors import InputError, choose, whole


def segment_means(rows: Tensor, places: Tensor, offsets: Tensor) -> Tensor:
    """Return (segments, width) float32: the mean of `rows[places[start:stop]]` for every start and stop in `offsets`.

    The host never waits for the device, and two runs give the same numbers.
    """
    if rows.is_cuda and has_triton():
        from layerscope.extraction.means_triton import fused_segment_means

        return fused_segment_means(rows, places, offsets)
    return plain_segment_means(rows, places, offsets)


def plain_segment_means(rows: Tensor, places: Tensor, offsets: Tensor) -> Tensor:
    """Return the same as `segment_means` by torch alone, which needs all rows in float32."""
    return torch.nn.functional.embedding_bag(places, rows.float(), offsets, mode="mean", include_last_offset=True)


@cache
def has_triton() -> bool:
    """Return whether triton kernels can be compiled here."""
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


POOLS = ("cls", "mean", "last", "words", "tokens")
SUBWORDS = ("last", "first", "mean")
AUTOCAST = ("bfloat16", "float16")


@dataclass(frozen=True)
class Reading:
    """The options of an extraction: everything that decides which rows come out of a text, and their values."""

    pool: str = "cls"
    subword: str = "last"  # pool "words": which sub-words stand for a word
    special: bool = False  # pools "mean" and "tokens": keep separators and other special tokens
    max_length: int = 128
    final_norm: bool = False  # the last layer after the final norm, as Hugging Face's hidden_states[-1]
    autocast: str | None = None

    def __post_init__(self) -> None:
        choose("pool", self.pool, POOLS)
        choose("sub-word choice", self.subword, SUBWORDS)
        if self.autocast is not None:
            choose("autocast type", self.autocast, AUTOCAST)
        if self.special and self.pool not in ("mean", "tokens"):
            raise InputError(
                f"special=True is for the pools mean and tokens; the pool {self.pool!r} has no use for it."
            )
        if self.subword != "last" and self.pool != "words":
            raise InputError(
                f"subword={self.subword!r} is for the pool words; the pool {self.pool!r} has no use for it."
            )
        if not whole(self.max_length) or self.max_length < 3:
            raise InputError(f"max_length is {self.max_length}; a whole number of at least 3 tokens is needed.")

    def spec(self) -> dict[str, Any]:
        return asdict(self)
