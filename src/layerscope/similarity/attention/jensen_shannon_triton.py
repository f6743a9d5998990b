"""The fused kernel for mixtures of attention heads: entries are read once a tile of pairs and never written."""

from __future__ import annotations

from typing import Any

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

from layerscope.similarity.attention.jensen_shannon import mirrored

_HEADS = 16  # heads of each side in a tile
_ENTRIES = 32  # entries of a head in a step
_SPAN = 4096  # entries of a head that one program sums


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _mixtures(  # type: ignore[no-untyped-def]
    a,
    b,
    out,
    count_a,
    count_b,
    entries,
    same: tl.constexpr,
    HEADS: tl.constexpr,  # noqa: N803
    ENTRIES: tl.constexpr,  # noqa: N803
    SPAN: tl.constexpr,  # noqa: N803
):
    """out[part, i, j] = sum of m log m, m = a_i + b_j, over one span of the entries."""
    tile_a, tile_b, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.minimum(SPAN, entries - part * SPAN)
    if same:
        length = tl.where(tile_b < tile_a, 0, length)  # below the diagonal: mirrored afterwards
    heads_a = tile_a * HEADS + tl.arange(0, HEADS)
    heads_b = tile_b * HEADS + tl.arange(0, HEADS)
    total = tl.zeros((HEADS, HEADS), dtype=tl.float64)
    for step in range(0, length, ENTRIES):
        places = part.to(tl.int64) * SPAN + step + tl.arange(0, ENTRIES)
        inside = places < entries
        # Beyond the edge both halves are a half: their mixture is 1, whose logarithm is 0.
        p = tl.load(
            a + heads_a[:, None].to(tl.int64) * entries + places[None, :],
            mask=(heads_a < count_a)[:, None] & inside[None, :],
            other=0.5,
        )
        q = tl.load(
            b + heads_b[:, None].to(tl.int64) * entries + places[None, :],
            mask=(heads_b < count_b)[:, None] & inside[None, :],
            other=0.5,
        )
        mixture = p[:, None, :] + q[None, :, :]
        total += tl.sum(mixture * tl.log(mixture), axis=2).to(tl.float64)
    place = part.to(tl.int64) * count_a * count_b + heads_a[:, None] * count_b + heads_b[None, :]
    tl.store(out + place, total, mask=(heads_a < count_a)[:, None] & (heads_b < count_b)[None, :])


def fused_mixture_sums(a: Tensor, b: Tensor) -> Tensor:
    """(N, M) float64: as `plain_mixture_sums`, of contiguous float32 halves on a GPU."""
    same = a is b
    a, b = a.contiguous(), b.contiguous()
    parts = max(1, triton.cdiv(a.shape[1], _SPAN))
    out = torch.zeros(parts, len(a), len(b), dtype=torch.float64, device=a.device)
    grid: Any = (triton.cdiv(len(a), _HEADS), triton.cdiv(len(b), _HEADS), parts)
    sizes = {"HEADS": _HEADS, "ENTRIES": _ENTRIES, "SPAN": _SPAN}
    with torch.cuda.device(a.device):  # which need not be the current one
        _mixtures[grid](a, b, out, len(a), len(b), a.shape[1], same=same, **sizes, num_warps=4)
    total = out.sum(dim=0)
    return mirrored(total) if same else total
