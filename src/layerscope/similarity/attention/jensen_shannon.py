"""Sums of m log m over mixtures m = p + q of all pairs of attention heads: the costly part of Jensen-Shannon.

A logarithm for every pair of heads and every entry cannot be turned into a matrix product. So nothing else is done for
them: halves of the weights are prepared once, an entry costs one addition, one logarithm and one multiply-add, and all
of it happens in blocks that stay in a CPU's caches, or in a GPU's registers. On a CPU the logarithms are numpy's log2,
which is four times as fast as torch's, and torch's number of threads share the entries.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor

from layerscope.extraction.pooling import has_triton

TINY = 1e-30  # added to every half, so that no entry is 0 and 0 log 0 needs no case of its own
_COLUMNS = 1024  # entries of a head that are worked on together
_BLOCK = 1 << 20  # mixtures at a time: they stay in a shared cache, and threads seldom wait for Python's lock
_GPU_BLOCK = 1 << 24
_THREAD = threading.local()


def halved(weights: Tensor) -> Tensor:
    """Half of the weights, for `mixture_sums`: the mixture of a head with itself is then the head, to the bit."""
    return (weights * 0.5).add_(TINY).contiguous()


def mixture_sums(a: Tensor, b: Tensor) -> Tensor:
    """(N, M) float64: sum over entries of m log m, m = a_i + b_j, of halves (N, entries) and (M, entries).

    Where `a is b` each pair of heads is worked on once.
    """
    if not a.shape[1]:
        return torch.zeros(len(a), len(b), dtype=torch.float64, device=a.device)
    if a.device.type == "cpu":
        return cached_mixture_sums(a, b)
    if a.device.type == "cuda" and a.dtype == torch.float32 and has_triton():
        from layerscope.similarity.attention.jensen_shannon_triton import fused_mixture_sums

        return fused_mixture_sums(a, b)
    return plain_mixture_sums(a, b)


def plain_mixture_sums(a: Tensor, b: Tensor) -> Tensor:
    """`mixture_sums` by torch alone, some entries at a time: the reference for the fast forms."""
    total = torch.zeros(len(a), len(b), dtype=torch.float64, device=a.device)
    columns = max(1, _GPU_BLOCK // (len(a) * len(b)))
    for left, right in zip(a.split(columns, dim=1), b.split(columns, dim=1), strict=True):
        mixture = left[:, None] + right[None]
        total += mixture.log().mul_(mixture).sum(dim=-1)
    return total


def cached_mixture_sums(a: Tensor, b: Tensor) -> Tensor:
    """`mixture_sums` on a CPU, in blocks that stay in its caches."""
    left = a.numpy()
    right = left if a is b else b.numpy()
    starts = range(0, left.shape[1], _COLUMNS)
    threads = min(torch.get_num_threads(), len(starts))
    if threads == 1:
        total = _sums_over(left, right, starts)
    else:
        shares = [starts[k::threads] for k in range(threads)]
        total = np.sum(list(_pool(threads).map(partial(_sums_over, left, right), shares)), axis=0)
    sums = torch.from_numpy(total * math.log(2))
    return mirrored(sums) if a is b else sums


def _sums_over(a: np.ndarray, b: np.ndarray, starts: range) -> np.ndarray:
    """Sums of m log2 m over some spans of the entries; where `a is b`, of the upper triangle and a little more."""
    total = np.zeros((len(a), len(b)))
    mixtures, logarithms = _buffers(max(_BLOCK, _COLUMNS), a.dtype)
    for start in starts:
        left, right = (np.ascontiguousarray(side[:, start : start + _COLUMNS]) for side in (a, b))
        for rows, columns in _blocks(len(a), len(b), left.shape[1], a is b):
            left_heads, right_heads = left[rows, None], right[None, columns]
            shape = (left_heads.shape[0], right_heads.shape[1], left.shape[1])
            mixture, logarithm = (buffer[: math.prod(shape)].reshape(shape) for buffer in (mixtures, logarithms))
            np.add(left_heads, right_heads, out=mixture)
            np.log2(mixture, out=logarithm)
            total[rows, columns] += np.vecdot(mixture, logarithm)
    return total


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """A pool of threads, kept for the next call."""
    return ThreadPoolExecutor(threads)


def _buffers(size: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Two buffers of this thread, kept for the next call."""
    # To map fresh memory, page by page, would cost as much as the arithmetic.
    buffers = vars(_THREAD).setdefault("buffers", {})
    if (size, dtype) not in buffers:
        buffers[size, dtype] = np.empty(size, dtype), np.empty(size, dtype)
    return buffers[size, dtype]


def _blocks(rows: int, columns: int, entries: int, same: bool) -> Iterator[tuple[slice, slice]]:
    """Blocks of pairs of heads that fill the buffers; where both sides are the same, none below the diagonal."""
    wide = max(1, min(columns, _BLOCK // entries))
    high = max(1, _BLOCK // (wide * entries))
    for column in range(0, columns, wide):
        for row in range(0, min(rows, column + wide) if same else rows, high):
            first = max(column, row) if same else column
            yield slice(row, min(row + high, rows)), slice(first, min(column + wide, columns))


def entropies(a: Tensor) -> Tensor:
    """(N,) float64: sum of p log p over each head's entries, of halves; summed just as a mixture with itself is."""
    if a.device.type != "cpu":
        whole = a + a
        return whole.log().mul_(whole).sum(dim=-1, dtype=torch.float64)
    total = np.zeros(len(a))
    for start in range(0, a.shape[1], _COLUMNS):
        half = a.numpy()[:, start : start + _COLUMNS]
        whole = half + half
        total += np.vecdot(whole, np.log2(whole))
    return torch.from_numpy(total * math.log(2))


def mirrored(upper: Tensor) -> Tensor:
    """A symmetric matrix from its upper triangle."""
    upper = upper.triu()
    return upper + upper.triu(1).T
