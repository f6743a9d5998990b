"""Sums of m log m over mixtures m = p + q of all pairs of attention heads: the costly part of Jensen-Shannon.

A logarithm for every pair of heads and every entry cannot be turned into a matrix product. So nothing else is done for
them: halves of the weights are prepared once, an entry costs one addition, one logarithm and one multiply-add, and all
of it happens in blocks that stay in a CPU's second-level cache, or in a GPU's registers.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

TINY = 1e-30  # added to every half, so that no entry is 0 and 0 log 0 needs no case of its own
_COLUMNS = 2048  # entries of a head that are worked on together
_BLOCK = {"cpu": 1 << 17, "cuda": 1 << 24}  # mixtures at a time: with their logarithms 1 MB on a CPU


def halved(weights: Tensor) -> Tensor:
    """What `mixture_sums` takes: halves, so that the mixture of a head with itself is the head, to the bit."""
    return (weights * 0.5).add_(TINY).contiguous()


def mixture_sums(a: Tensor, b: Tensor) -> Tensor:
    """(N, M) float64: sum over entries of m log m, m = a_i + b_j, of halves (N, entries) and (M, entries).

    Where `a is b` each pair of heads is worked on once.
    """
    if not a.shape[1]:
        return torch.zeros(len(a), len(b), dtype=torch.float64, device=a.device)
    if a.device.type == "cuda" and a.dtype == torch.float32 and has_triton():
        from layerscope.measures.jensen_shannon_triton import fused_mixture_sums

        return fused_mixture_sums(a, b)
    return plain_mixture_sums(a, b)


def plain_mixture_sums(a: Tensor, b: Tensor) -> Tensor:
    """The same by torch alone, block by block."""
    total = torch.zeros(len(a), len(b), dtype=torch.float64, device=a.device)
    block = max(_BLOCK.get(a.device.type, 1 << 17), len(b))
    columns = max(1, min(_COLUMNS, block // len(b), a.shape[1]))
    mixtures, logarithms = (torch.empty(block, dtype=a.dtype, device=a.device) for _ in range(2))
    for left, right in zip(a.split(columns, dim=1), b.split(columns, dim=1), strict=True):
        first = 0
        while first < len(a):
            start = first if a is b else 0  # the pairs before are those of earlier heads
            others = len(b) - start
            count = min(len(a) - first, max(1, block // (others * left.shape[1])))
            shape = (count, others, left.shape[1])
            size = count * others * left.shape[1]
            mixture, logarithm = mixtures[:size].view(shape), logarithms[:size].view(shape)
            torch.add(left[first : first + count, None], right[None, start:], out=mixture)
            torch.log(mixture, out=logarithm)
            total[first : first + count, start:] += logarithm.mul_(mixture).sum(dim=-1)
            first += count
    return mirrored(total) if a is b else total


def entropies(a: Tensor) -> Tensor:
    """(N,) float64: sum of p log p over each head's entries, of halves; summed just as a mixture with itself is."""
    total = torch.zeros(len(a), dtype=torch.float64, device=a.device)
    for part in a.split(_COLUMNS, dim=1):
        whole = part + part
        total += whole.log().mul_(whole).sum(dim=-1)
    return total


def mirrored(upper: Tensor) -> Tensor:
    """A symmetric matrix from its upper triangle."""
    upper = upper.triu()
    return upper + upper.triu(1).T


@cache
def has_triton() -> bool:
    """Whether the fused kernel can be compiled here."""
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True
