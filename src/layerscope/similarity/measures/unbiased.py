"""Unbiased HSIC: debiased CKA over all rows, and its minibatch estimate.

Song et al. 2012, equation 5, is an inner product of two Gram matrices that are U-centred (Szekely & Rizzo 2014): off
the diagonal K less its row and column means, on it 0. So a layer is centred once, and each pair is one dot product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from layerscope.errors import InputError
from layerscope.similarity.layer_statistics import LayerStatistics
from layerscope.similarity.moments import power_of_two
from layerscope.similarity.registry import SAME, Undefined, register, varies
from layerscope.similarity.unbiased_hsic import LEAST, NOISE, u_centred

_STRIPES = 3  # of a Gram matrix: more are fewer products, and smaller ones


def gram_cka_debiased(products: Tensor, i: int, j: int) -> float:
    """Debiased CKA of views i and j from the inner products of their U-centred Gram matrices."""
    squares = float(products[i, i]), float(products[j, j])
    if math.isnan(sum(squares)):
        raise Undefined(SAME)
    if not min(squares) > 0:
        raise Undefined(NOISE)
    return float(products[i, j]) / (squares[0] ** 0.5 * squares[1] ** 0.5)


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
def cka_debiased(x: LayerStatistics, y: LayerStatistics, cross: float) -> float:
    """Linear CKA with unbiased HSIC: 0 on average for independent data at any n; may be below 0.

    Where texts have several rows, only pairs of rows of different texts count.
    """
    return cross / (x.hsic**0.5 * y.hsic**0.5)


def _of_batches(batches: Tensor, texts: np.ndarray | None = None) -> Tensor:
    """The U-centred Gram matrices of batches (batches, rows, d) in float32, flattened into one vector.

    `texts` has the text of every row of a single batch, where texts have several rows.
    """
    batches = (batches - batches.mean(dim=1, keepdim=True)).float()
    return u_centred(batches @ batches.mT, texts).flatten()


def _check(rows: int, batch: int) -> None:
    """Raise InputError where a batch, or Undefined where all rows, are too few for unbiased HSIC."""
    if batch < LEAST:
        raise InputError(f"batch is {batch}; unbiased HSIC needs at least {LEAST} rows per batch.")
    if rows < LEAST:
        raise Undefined(f"unbiased HSIC needs at least {LEAST} rows and there are {rows}")


def _batched(x: Tensor, texts: np.ndarray | None = None, *, batch: int = 250, shuffle: int | None = None) -> Tensor:
    """The factor of a layer: the U-centred Gram matrices of all batches of its rows in float32, as one vector.

    Batches with rows of too few texts are left out, as a last batch of too few rows is.
    """
    _check(len(x), batch)
    x = x if x.dtype == torch.float64 else x.float()  # rows that are kept in 16 bits are exact, their means are not
    size = power_of_two(x)
    rows = x if 1e-9 < size < 1e9 else x / size  # float32 must hold the products
    if shuffle is not None:
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(shuffle))
        rows = rows[order.to(rows.device)]
        texts = None if texts is None else texts[order.numpy()]
    if texts is not None:
        return _batched_by_text(rows, texts, batch)
    whole = len(rows) // batch * batch
    parts = [_of_batches(rows[:whole].reshape(-1, batch, rows.shape[1]))] if whole else []
    if len(rows) - whole >= LEAST:
        parts.append(_of_batches(rows[whole:][None]))
    return torch.cat(parts)


def _batched_by_text(rows: Tensor, texts: np.ndarray, batch: int) -> Tensor:
    """The same where texts have several rows; raises Undefined where every batch has rows of too few texts."""
    parts, reason = [], Undefined("")
    for start in range(0, len(rows) - LEAST + 1, batch):
        try:
            parts.append(_of_batches(rows[start : start + batch][None], texts[start : start + batch]))
        except Undefined as few:
            reason = few
    if not parts:
        raise Undefined(f"{reason} in a batch of {min(batch, len(rows))}; give a larger batch=, or shuffle= a seed")
    return torch.cat(parts)


Part = Callable[[int, int, int], Tensor]  # of a layer: its rows from start to stop


def _together(
    part: Part, layers: int, rows: int, texts: np.ndarray | None = None, *, batch: int = 250, shuffle: int | None = None
) -> Callable[[int, int], float] | None:
    """A function that gives the value of two layers, computed for all layers at once while a batch is in the caches.

    None if rows are shuffled, too few or not finite, of texts with several rows, or not on a CPU: then each layer is
    factored by itself, which gives the reasons.
    """
    if shuffle is not None or texts is not None or part(0, 0, 1).device.type != "cpu":
        return None
    try:
        _check(rows, batch)
    except Undefined:
        return None
    widths = [part(layer, 0, 1).shape[1] for layer in range(layers)]
    products = torch.zeros(layers, layers, dtype=torch.float64)
    memory = _Memory(widths, min(batch, rows))
    for start in range(0, rows - LEAST + 1, batch):
        stop = min(start + batch, rows)
        if stop - start < memory.rows:
            memory = _Memory(widths, stop - start)
        of_batch = memory.hsic(part(layer, start, stop) for layer in range(layers))
        if of_batch is None:
            return None
        products += of_batch
    for layer in range(layers):
        if not (varies(part(layer, 0, 64)) or varies(part(layer, 0, rows))):
            products[layer, layer] = torch.nan
    return partial(gram_cka_debiased, products)


class _Memory:
    """The memory in which all layers of a batch are computed, used again for every batch, since new memory takes time.

    All products are torch's: a BLAS with threads of its own between torch's operations makes both wait for the cores.
    """

    def __init__(self, widths: Sequence[int], rows: int) -> None:
        self.rows = rows
        self._layers = torch.zeros(len(widths), rows, max(widths))  # 0 beyond the width of a narrower layer
        self._centred = [layer[:, :width] for layer, width in zip(self._layers, widths, strict=True)]
        height = -(-rows // _STRIPES)
        ends = [(start, min(start + height, rows)) for start in range(0, rows, height)]
        self._stripes = [(start, stop, torch.empty(len(widths), stop - start, stop)) for start, stop in ends]

    def hsic(self, layers: Iterable[Tensor]) -> Tensor | None:
        """(layers, layers) unbiased HSIC of the rows of one batch, in float32; None where a number is not finite."""
        n, count = self.rows, len(self._layers)
        sizes = torch.ones(count, dtype=torch.float64)
        sums = torch.empty(count, n)  # of the rows of the Gram matrices
        for k, (rows, centred) in enumerate(zip(layers, self._centred, strict=True)):
            values = rows if rows.dtype == torch.float64 else rows.float()
            torch.sub(values, values.mean(dim=0), out=centred)
            most = float(torch.stack(torch.aminmax(centred)).abs().max())
            if not 1e-9 < most < 1e9:  # float32 must hold the products
                if not bool(values.isfinite().all()):
                    return None
                values = values.double() - values.double().mean(dim=0)
                sizes[k] = power_of_two(values)
                centred.copy_(values / sizes[k])
            torch.mv(centred, centred.sum(dim=0), out=sums[k])
        products = self._inner_products(sums)
        return products * torch.outer(sizes**2, sizes**2) / (n * (n - 3))

    def _inner_products(self, sums: Tensor) -> Tensor:
        """(layers, layers) inner products of the U-centred Gram matrices, given (layers, n) the sums of their rows.

        Only stripes on and below the diagonals are made: a square on it, and what is left of that, which counts twice.
        """
        layers, n = self._layers, self.rows
        diagonals = []
        for start, stop, stripe in self._stripes:
            torch.bmm(layers[:, start:stop], layers[:, :stop].mT, out=stripe)
            diagonals.append(stripe[:, :, start:].diagonal(dim1=1, dim2=2))
        means = (sums - torch.cat(diagonals, dim=1)) / (n - 2)
        beside = means - means.sum(dim=1, keepdim=True) / (n - 1)
        products = torch.zeros(len(layers), len(layers), dtype=torch.float64)
        for (start, stop, stripe), diagonal in zip(self._stripes, diagonals, strict=True):
            stripe.sub_(means[:, start:stop, None]).sub_(beside[:, None, :stop])
            stripe[:, :, :start] *= math.sqrt(2)
            diagonal.zero_()
            flat = stripe.flatten(1)
            products += (flat @ flat.T).double()
        return products


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
    together=_together,
    by_text=True,
    caveat="An estimate from batches of rows.",
)
def cka_minibatch(a: Tensor, b: Tensor) -> float:
    """Mean of unbiased HSIC over batches of rows, then the ratio: an estimate, for previews.

    Batches are `batch` rows in their order, so rows sorted by class need `shuffle=SEED`. A last batch of fewer than
    four rows has no unbiased HSIC and is left out. Where texts have several rows, only pairs of rows of different texts
    count, and a batch with rows of fewer than four texts is left out.
    """
    xx, yy = float(torch.dot(a, a)), float(torch.dot(b, b))
    if xx <= 0 or yy <= 0:
        raise Undefined(NOISE)
    return float(torch.dot(a, b)) / (xx**0.5 * yy**0.5)
