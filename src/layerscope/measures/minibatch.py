"""Unbiased HSIC: debiased CKA over all rows, and its minibatch estimate."""

from __future__ import annotations

import torch
from torch import Tensor

from layerscope.errors import InputError
from layerscope.measures.registry import Undefined, register

_LEAST = 4  # rows below which unbiased HSIC has no value


def unbiased_hsic(k: Tensor, l: Tensor) -> Tensor:  # noqa: E741  (the letters of the paper)
    """Song et al. 2012, equation 5, of two Gram matrices (n, n) whose diagonals are not looked at."""
    n = len(k)
    k, l = (m - torch.diag(m.diagonal()) for m in (k, l))  # noqa: E741
    total = (k * l).sum() + k.sum() * l.sum() / ((n - 1) * (n - 2)) - 2 * (k.sum(dim=0) @ l.sum(dim=0)) / (n - 2)
    return total / (n * (n - 3))


def _ratio(xy: float, xx: float, yy: float) -> float:
    if xx <= 0 or yy <= 0:
        raise Undefined("the unbiased variance of a side is not above 0: it is constant, or noise, at this many rows")
    return xy / (xx * yy) ** 0.5


def _centred_gram(x: Tensor) -> Tensor:
    x = x - x.mean(dim=0)
    return x @ x.T


@register(
    "cka_debiased",
    family="representation",
    symmetric=True,
    bounds=(-1.0, 1.0),
    invariances=("orthogonal", "scaling", "translation"),
    needs="moments",
    source="Song et al. 2012; Kornblith et al. 2019",
    by_rows=True,
)
def cka_debiased(x: Tensor, y: Tensor) -> float:
    """Linear CKA with unbiased HSIC: 0 on average for independent data at any n; may be below 0."""
    if len(x) < _LEAST:
        raise Undefined(f"unbiased HSIC needs at least {_LEAST} rows and there are {len(x)}")
    k, l = _centred_gram(x), _centred_gram(y)  # noqa: E741
    return _ratio(*(float(unbiased_hsic(a, b)) for a, b in ((k, l), (k, k), (l, l))))


@register(
    "cka_minibatch",
    family="representation",
    symmetric=True,
    bounds=(-1.0, 1.0),
    invariances=("orthogonal", "scaling", "translation"),
    needs="rows",
    source="Nguyen et al. 2021",
    estimate=True,
)
def cka_minibatch(x: Tensor, y: Tensor, *, batch: int = 250) -> float:
    """Mean of unbiased HSIC over batches of rows, then the ratio: an estimate, for previews.

    A last batch of fewer than four rows has no unbiased HSIC and is left out.
    """
    if batch < _LEAST:
        raise InputError(f"batch is {batch}; unbiased HSIC needs at least {_LEAST} rows a batch.")
    parts = [(a, b) for a, b in zip(x.split(batch), y.split(batch), strict=True) if len(a) >= _LEAST]
    if not parts:
        raise Undefined(f"unbiased HSIC needs at least {_LEAST} rows and there are {len(x)}")
    sums = [0.0, 0.0, 0.0]
    for a, b in parts:
        k, l = _centred_gram(a), _centred_gram(b)  # noqa: E741
        for place, pair in enumerate(((k, l), (k, k), (l, l))):
            sums[place] += float(unbiased_hsic(*pair))
    return _ratio(*sums)
