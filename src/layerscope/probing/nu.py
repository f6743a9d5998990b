"""nu, 1/C trace(S_w S_b^+), as numbers: from moments, or from rows under many labellings at once.

The between-class scatter has a rank below the number of classes, so all is done in the small space of class means: no
matrix of width x width is inverted, and from rows none is made.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.errors import InputError, LayerscopeWarning
from layerscope.probing.labelled import classes_of
from layerscope.similarity.moments import Moments

WEIGHTINGS = ("class", "rows")
_CELLS = 1 << 22  # numbers that one product of a block with all labellings makes
_BLOCK = 8192

Blocks = Callable[[int], Iterable[Tensor]]  # of a number of rows: the rows of a layer in order, so many at a time


def class_numbers(labels: Any) -> np.ndarray:
    """Labels as numbers 0.. without gaps, of two classes at least."""
    present, values = np.unique(classes_of(labels, "nu"), return_inverse=True)
    if len(present) < 2:
        raise InputError(f"nu compares classes, and the rows are of {len(present)} class only.")
    if len(present) == len(values):
        raise InputError(
            f"nu looks at how rows vary within classes, and each of the {len(present)} rows has a class of its own."
        )
    return values


def warn_of_single_rows(labels: np.ndarray) -> None:
    """Say where classes (numbers 0.. without gaps) have one row only."""
    single = int((np.bincount(labels) == 1).sum())
    if single:
        classes = "1 class has" if single == 1 else f"{single} classes have"
        warnings.warn(
            f"{classes} one row only, within which nothing varies, so that nu comes out too low; leave such classes "
            "out, or give more rows of them.",
            LayerscopeWarning,
            stacklevel=4,
        )


def class_weights(labels: np.ndarray, weighting: str) -> np.ndarray:
    """One weight per row, summing to 1: classes count equally, or rows do."""
    if weighting == "rows":
        return np.full(len(labels), 1 / len(labels))
    counts = np.bincount(labels)
    return 1 / (len(counts) * counts[labels])


def nu_of_rows(blocks: Blocks, labellings: np.ndarray, weighting: str = "class") -> np.ndarray:
    """nu of one layer under each of several labellings, in two passes over its rows.

    Args:
        blocks: Gives the layer's rows, so many at a time.
        labellings: (P, n), numbers 0..C-1; each has rows of every class.
        weighting: `class`, or `rows`.

    Returns:
        (P,) values, each with class weights of its own; NaN where all class means are the same.
    """
    count, classes = len(labellings), int(labellings.max()) + 1
    size = max(64, min(_BLOCK, _CELLS // (count * classes)))
    labels = torch.from_numpy(np.ascontiguousarray(labellings))
    shift, sums, squares = _class_sums(blocks, labels, classes, size)
    sizes = torch.stack([torch.bincount(each, minlength=classes) for each in labels]).double()  # (P, C)
    means = sums / sizes[..., None]  # (P, C, d), about the shift
    share = torch.full_like(sizes, 1 / classes) if weighting == "class" else sizes / sizes.sum(dim=1, keepdim=True)
    offset = means - (share[..., None] * means).sum(dim=1, keepdim=True)
    directions, lengths, _ = torch.linalg.svd(offset.transpose(1, 2) / classes**0.5, full_matrices=False)
    real = _real(lengths, shift, sums[0].sum(dim=0) / labels.shape[1], float(squares) / labels.shape[1])
    within = _within(blocks, labels, means, directions, share / sizes, shift, size)
    each = torch.where(real, within / lengths.clamp_min(1e-300).pow(2), torch.zeros_like(within)).sum(dim=1) / classes
    return torch.where(real.any(dim=1), each, torch.full_like(each, math.nan)).numpy()


def _class_sums(blocks: Blocks, labels: Tensor, classes: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """A shift near the mean, the sums (P, C, d) of every class of every labelling about it, and the sum of squares."""
    shift, sums, squares, start = None, None, torch.zeros((), dtype=torch.float64), 0
    for block in blocks(size):
        rows = block.double()
        if shift is None or sums is None:
            shift = rows.mean(dim=0)
            sums = torch.zeros(len(labels) * classes, rows.shape[1], dtype=torch.float64)
        rows = rows - shift
        member = torch.nn.functional.one_hot(labels[:, start : start + len(rows)], classes)  # (P, k, C)
        sums += member.transpose(1, 2).reshape(-1, len(rows)).double() @ rows
        squares += rows.pow(2).sum()
        start += len(rows)
    assert shift is not None
    assert sums is not None
    return shift, sums.view(len(labels), classes, -1), squares


def _real(lengths: Tensor, shift: Tensor, mean: Tensor, square: float) -> Tensor:
    """(P, C) which directions lie between classes: class means that differ by rounding alone are the same."""
    scale = max(float((shift + mean).pow(2).sum()), square - float(mean @ mean))
    first = lengths[:, :1]
    return (lengths > 1e-7 * first) & (first.pow(2) > 1e-12 * scale)


def _within(
    blocks: Blocks, labels: Tensor, means: Tensor, directions: Tensor, weights: Tensor, shift: Tensor, size: int
) -> Tensor:
    """(P, directions) the weighted variance of rows about their own class's mean along every direction."""
    count = len(weights)
    joined = directions.permute(1, 0, 2).reshape(len(shift), -1)  # (d, P x directions)
    own = means @ directions  # (P, C, directions)
    within, start = torch.zeros(count, directions.shape[2], dtype=torch.float64), 0
    each = torch.arange(count)[:, None]
    for block in blocks(size):
        rows = block.double() - shift
        here = labels[:, start : start + len(rows)]
        along = (rows @ joined).view(len(rows), count, -1).transpose(0, 1)  # (P, k, directions)
        within += (weights[each, here][..., None] * (along - own[each, here]).pow(2)).sum(dim=1)
        start += len(rows)
    return within


def nu_of_moments(moments: Moments, view: int, weighting: str = "class") -> float:
    """nu from class-weighted moments whose last view is the one-hot labels.

    NaN where all class means are the same (the summary token at layer 0).
    """
    labels = len(moments.widths) - 1
    mass = moments.mean(labels) * moments.weight  # (C,) each class's summed weight
    seen = mass > 1e-12 * moments.weight
    mean = moments.mean(view)
    # scatter(x, y) = sum w (h - mean) y', so a class mean less the weighted mean is its column over the class's weight.
    offset = (moments.scatter(view, labels) / mass.clamp_min(1e-300))[:, seen]  # (d, C)
    share = mass[seen] / moments.weight
    count = int(seen.sum())
    between = offset - offset.mean(dim=1, keepdim=True) if weighting == "class" else offset
    u, s, _ = torch.linalg.svd(between / count**0.5, full_matrices=False)
    # Compare with the layer's own scale: class means that differ by rounding alone are the same.
    scale = max(float(mean @ mean), float(moments.cov(view, view).diagonal().sum()))
    rank = int((s > 1e-7 * s[0]).sum()) if float(s[0]) ** 2 > 1e-12 * scale else 0
    if rank == 0:
        return math.nan
    u, s = u[:, :rank], s[:rank]
    total = (u * (moments.cov(view, view) @ u)).sum(dim=0)  # u' S_total u
    explained = ((u.T @ offset).pow(2) * share).sum(dim=1)  # the part of it between classes
    return float(((total - explained).clamp_min(0.0) / s**2).sum()) / count
