"""CKA from n x n Gram matrices: with fewer rows than features that side is the cheaper one, and they agree."""

from __future__ import annotations

import torch
from torch import Tensor

from layerscope.measures.registry import CONSTANT, SAME, Undefined
from layerscope.measures.work import Work

_MOST_BYTES = 2 << 30


def dual_is_cheaper(work: Work) -> bool:
    """Compare multiply-adds: n^2 d a view and n^2 a pair, against n d^2 a pair; and the Gram matrices must fit."""
    widths, pairs = work.widths, len(work.pairs)
    width = sum(widths) / len(widths)
    dual = work.n**2 * (sum(widths) + pairs)
    return work.n > 1 and dual < work.n * width**2 * pairs and 8 * len(widths) * work.n**2 <= _MOST_BYTES


def gram_products(work: Work) -> Tensor:
    """(views, views) <K_i, K_j> of centred Gram matrices; a view whose rows are all the same has NaN."""
    grams = torch.empty(len(work.views), work.n**2, dtype=torch.float64)
    for view in range(len(work.views)):
        rows = work.rows(view).double()
        mean = rows.mean(dim=0)
        centred = rows - mean
        constant = float(centred.pow(2).sum()) <= CONSTANT * work.n * float(mean @ mean)
        small = centred.float()
        grams[view] = torch.nan if constant else (small @ small.T).double().flatten()
    return grams @ grams.T


def gram_cka(products: Tensor, i: int, j: int) -> float:
    """CKA of views i and j from the products of their Gram matrices."""
    scale = float(products[i, i] * products[j, j])
    if not scale > 0:
        raise Undefined(SAME)
    return float(products[i, j]) / scale**0.5
