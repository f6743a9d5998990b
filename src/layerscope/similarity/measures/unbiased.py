"""Unbiased HSIC: debiased CKA over all rows, and its minibatch estimate.

Song et al. 2012, equation 5, is an inner product of two Gram matrices that are U-centred (Szekely & Rizzo 2014): off
the diagonal K less its row and column means, on it 0. So a layer is centred once, and each pair is one dot product.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from layerscope.errors import InputError
from layerscope.similarity.moments import power_of_two
from layerscope.similarity.registry import SAME, Undefined, register
from layerscope.similarity.sides import LEAST, NOISE, Side, u_centred


def gram_cka_debiased(products: Tensor, i: int, j: int) -> float:
    """Debiased CKA of views i and j from the inner products of their U-centred Gram matrices."""
    own = float(products[i, i]), float(products[j, j])
    if math.isnan(sum(own)):
        raise Undefined(SAME)
    if not min(own) > 0:
        raise Undefined(NOISE)
    return float(products[i, j]) / (own[0] ** 0.5 * own[1] ** 0.5)


@register(
    "cka_debiased",
    family="representation",
    symmetric=True,
    bounds=(-1.0, 1.0),
    invariances=("orthogonal", "scaling", "translation"),
    needs="moments",
    source="Song et al. 2012; Kornblith et al. 2019",
    cross="hsic",
    exact=True,
    dual=gram_cka_debiased,
    gram=u_centred,
)
def cka_debiased(x: Side, y: Side, cross: float) -> float:
    """Linear CKA with unbiased HSIC: 0 on average for independent data at any n; may be below 0."""
    return cross / (x.hsic**0.5 * y.hsic**0.5)


def _of_batches(batches: Tensor) -> Tensor:
    """(batches, rows, d) -> the U-centred Gram matrices in float32, flat."""
    batches = (batches - batches.mean(dim=1, keepdim=True)).float()
    return u_centred(batches @ batches.mT).flatten()


def _batched(x: Tensor, *, batch: int = 250, shuffle: int | None = None) -> Tensor:
    """Every batch's U-centred Gram matrix in float32, of rows that were centred before."""
    if batch < LEAST:
        raise InputError(f"batch is {batch}; unbiased HSIC needs at least {LEAST} rows per batch.")
    if len(x) < LEAST:
        raise Undefined(f"unbiased HSIC needs at least {LEAST} rows and there are {len(x)}")
    size = power_of_two(x)
    rows = x if 1e-9 < size < 1e9 else x / size  # float32 must hold the products
    if shuffle is not None:
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(shuffle))
        rows = rows[order.to(rows.device)]
    whole = len(rows) // batch * batch
    parts = [_of_batches(rows[:whole].reshape(-1, batch, rows.shape[1]))] if whole else []
    if len(rows) - whole >= LEAST:
        parts.append(_of_batches(rows[whole:][None]))
    return torch.cat(parts)


@register(
    "cka_minibatch",
    family="representation",
    symmetric=True,
    bounds=(-1.0, 1.0),
    invariances=("orthogonal", "scaling", "translation"),
    needs="rows",
    source="Nguyen et al. 2021",
    estimate=True,
    factor=_batched,
    caveat="An estimate from batches of rows.",
)
def cka_minibatch(a: Tensor, b: Tensor) -> float:
    """Mean of unbiased HSIC over batches of rows, then the ratio: an estimate, for previews.

    Batches are `batch` rows in their order, so rows sorted by class need `shuffle=SEED`. A last batch of fewer than
    four rows has no unbiased HSIC and is left out.
    """
    xx, yy = float(torch.dot(a, a)), float(torch.dot(b, b))
    if xx <= 0 or yy <= 0:
        raise Undefined(NOISE)
    return float(torch.dot(a, b)) / (xx**0.5 * yy**0.5)
