"""Unbiased HSIC with linear kernels, over pairs of rows of different texts.

Song et al. 2012, equation 5, leaves out every row's pair with itself. It is an inner product of two Gram matrices that
are U-centred (Szekely & Rizzo 2014): freed of what each row adds to all its pairs, over the pairs that count. Rows of
one text are alike for reasons of their own, so where texts have several rows the pairs that count are those of rows of
different texts. With one row per text that is Song et al.'s.

What is subtracted of a pair (i, j) is a_i + a_j, chosen so that the pairs of every row that count sum to 0. With r_i
the sum of row i's pairs that count, R_t the sum of those of text t, m_t its rows and n all rows, a_i is
r_i / (n - m_t) + R_t / ((n - m_t) (n - 2 m_t)) - A / (n - 2 m_t), with A = sum_t R_t / (n - 2 m_t) over
1 + sum_t m_t / (n - 2 m_t).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from layerscope.distributed import Team
from layerscope.similarity.moments import Moments
from layerscope.similarity.registry import Undefined

LEAST = 4  # texts below which unbiased HSIC has no value
NOISE = "the unbiased variance of a side is not above 0: it is constant, or noise, at this many rows"


def require_texts(sizes: np.ndarray) -> None:
    """Raise Undefined where texts of so many rows do not give unbiased HSIC."""
    if len(sizes) < LEAST:
        noun = "rows" if sizes.sum() == len(sizes) else "texts"
        raise Undefined(f"unbiased HSIC needs at least {LEAST} {noun} and there are {len(sizes)}")
    if 2 * sizes.max() >= sizes.sum():
        raise Undefined(
            f"unbiased HSIC needs rows of different texts, and one text has {sizes.max():,} of the {sizes.sum():,} rows"
        )


def alone(texts: np.ndarray | None) -> bool:
    """Whether every row is a text of its own, as it is where no texts are given."""
    return texts is None or len(np.unique(texts)) == len(texts)


def unbiased_hsic(x: Tensor, y: Tensor, texts: np.ndarray | None = None) -> float:
    """The unbiased HSIC of two matrices (n, d) and (n, d'), times n (n - 3), from their U-centred Gram matrices."""
    n = len(x)
    a, b = (u_centred(m @ m.T, texts) for m in (x, y))
    return float(torch.dot(a.flatten(), b.flatten())) * n * (n - 3)


def u_centred(grams: Tensor, texts: np.ndarray | None = None) -> Tensor:
    """(..., n, n) U-centred and divided by the root of n (n - 3): inner products of two such are unbiased HSIC.

    `texts` has the text of every row; pairs of rows of one text are 0. Raises Undefined where the texts are too few.
    """
    n, single = grams.shape[-1], alone(texts)
    if single:  # the same offsets in closed form, for many small matrices at once
        grams.diagonal(dim1=-2, dim2=-1).zero_()
        sums = grams.sum(dim=-1)
        offsets = sums / (n - 2) - (sums.sum(dim=-1) / (2 * (n - 1) * (n - 2)))[..., None]
    else:
        _, text, sizes = np.unique(np.asarray(texts), return_inverse=True, return_counts=True)
        require_texts(sizes)
        number = torch.from_numpy(text.reshape(-1)).to(grams.device)
        same = number[:, None] == number[None]
        grams.masked_fill_(same, 0.0)
        offsets = _offsets(grams.sum(dim=-1), number, torch.from_numpy(sizes).to(grams))
    grams -= offsets[..., None, :]
    grams -= offsets[..., :, None]
    if single:
        grams.diagonal(dim1=-2, dim2=-1).zero_()
    else:
        grams.masked_fill_(same, 0.0)
    return grams.div_((n * (n - 3)) ** 0.5)


def _offsets(sums: Tensor, text: Tensor, sizes: Tensor) -> Tensor:
    """(..., n) what is subtracted of every row's pairs, from (..., n) their sums; `sizes` are the texts' rows."""
    n = sizes.sum()
    of_text = torch.zeros(*sums.shape[:-1], len(sizes), dtype=sums.dtype, device=sums.device)
    of_text.index_add_(-1, text, sums)
    rest = n - 2 * sizes
    level = (of_text / rest).sum(dim=-1, keepdim=True) / (1 + (sizes / rest).sum())
    by_text = of_text / ((n - sizes) * rest) - level / rest
    return sums / (n - sizes)[text] + by_text[..., text]


@dataclass(frozen=True)
class WithinTexts:
    """What unbiased HSIC takes off the squared cross products of some views, where texts have several rows.

    Cross products about an origin, squared, sum the products of two Gram matrices over all pairs of rows. `taken` is
    the part of pairs within a text, and of the offsets of all others.
    """

    origin: Sequence[Tensor]  # (width,) of each view: what was subtracted of its rows
    taken: Tensor | str  # (views, views), or the reason why unbiased HSIC has no value

    def hsic(self, moments: Moments, i: int, j: int) -> float:
        """The unbiased HSIC of views i and j, times n (n - 3); `moments` are of the same rows."""
        if isinstance(self.taken, str):
            raise Undefined(self.taken)
        left, right = (moments.mean(view) - self.origin[view] for view in (i, j))
        cross = moments.scatter(i, j) + moments.n * torch.outer(left, right)
        return float(cross.pow(2).sum()) - float(self.taken[i, j])


def within_texts(
    blocks: Iterable[tuple[list[Tensor], np.ndarray]],
    total: Moments,
    parts: Sequence[Moments],
    sizes: np.ndarray,
    group: np.ndarray,
    team: Team,
) -> list[WithinTexts]:
    """What unbiased HSIC takes off for all rows, then for those without each group of texts, from one look at the rows.

    Args:
        blocks: Whole texts of this process, block by block: (k, width) the rows of every view, and their texts.
        total: The moments of all rows, whose means are the origin.
        parts: The moments of group 0, 1, ...; none if no group is ever left out.
        sizes: (texts,) the rows of every text, of all processes.
        group: (texts,) the group of every text.
        team: The processes that share the texts.
    """
    sets, views = len(parts) + 1, len(total.widths)
    origin = [total.mean(view) for view in range(views)]
    device = origin[0].device
    # (width, sets): the sum of each set's rows about the origin, which is 0 for all rows.
    sums = [
        torch.stack([torch.zeros_like(o), *(-m.n * (m.mean(v) - o) if m.n else 0 * o for m in parts)], dim=1)
        for v, o in enumerate(origin)
    ]
    counted = torch.from_numpy(sizes).to(origin[0])
    present = torch.from_numpy(np.asarray([group != k for k in range(-1, len(parts))])).to(origin[0])  # (sets, texts)
    n = present @ counted
    others, rest = ((n[:, None] - times * counted).clamp_min(1.0) for times in (1, 2))  # (sets, texts)
    zeros = partial(torch.zeros, dtype=torch.float64, device=device)
    within = zeros(max(1, len(parts)), views, views)
    offsets, levels = zeros(sets, views, views), zeros(sets, views)
    for rows, texts in blocks:
        here, first = np.unique(texts, return_index=True)
        text = torch.from_numpy(np.searchsorted(here, texts)).to(device)
        there = torch.from_numpy(here).to(device)
        centred = [part.to(device).double() - middle for part, middle in zip(rows, origin, strict=True)]
        of_row = torch.stack([_pair_sums(x, text, len(here), s) for x, s in zip(centred, sums, strict=True)])
        of_row = of_row.permute(2, 0, 1) * present[:, None, there[text]]  # (sets, views, rows)
        of_text = zeros(sets, views, len(here)).index_add_(2, text, of_row)
        far, farther = others[:, None, there], rest[:, None, there]
        offsets += (of_row / far[..., text]) @ of_row.mT + (of_text / (far * farther)) @ of_text.mT
        levels += (of_text / farther).sum(dim=2)
        for number, start in enumerate(first.tolist()):
            stop = start + int(sizes[here[number]])
            within[group[here[number]]] += _products([x[start:stop] for x in centred])
    within, offsets, levels = (team.all_reduce(part) for part in (within, offsets, levels))
    pairs = torch.cat([within.sum(dim=0)[None], within.sum(dim=0) - within[: len(parts)]])
    weight = 1 + (present * counted / rest).sum(dim=1)
    taken = pairs + 2 * (offsets - levels[:, :, None] * levels[:, None] / weight[:, None, None])
    return [WithinTexts(origin, _reason(sizes[group != k - 1]) or taken[k].cpu()) for k in range(sets)]


def _reason(sizes: np.ndarray) -> str:
    """Why texts of so many rows give no unbiased HSIC; empty where they do."""
    try:
        require_texts(sizes[sizes > 0])
    except Undefined as reason:
        return str(reason)
    return ""


def _pair_sums(x: Tensor, text: Tensor, texts: int, sums: Tensor) -> Tensor:
    """(rows, sets) of each row, the sum of its pairs with rows of other texts."""
    of_text = torch.zeros(texts, x.shape[1], dtype=x.dtype, device=x.device).index_add_(0, text, x)
    return x @ sums - (x * of_text[text]).sum(dim=1, keepdim=True)


_AT_ONCE = 1 << 24  # numbers of Gram matrices of one text


def _products(rows: Sequence[Tensor]) -> Tensor:
    """(views, views) inner products of the Gram matrices of one text, made some rows at a time where it is long."""
    length = len(rows[0])
    step = max(1, _AT_ONCE // (len(rows) * length))
    total = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=rows[0].device)
    for start in range(0, length, step):
        flat = torch.stack([(x[start : start + step] @ x.mT).flatten() for x in rows])
        total += flat @ flat.T
    return total
