"""LogME: the logarithm of the greatest evidence of Bayesian linear regression on the labels (You et al. 2021).

Columns are standardised and targets centred, since the published form has no intercept and depends on both. Centred
targets have m = n - 1 dimensions; with n of them in the formula the evidence would be unbounded where there are as many
columns as rows. From second moments alone: with s the eigenvalues of the scatter, p the sums of the labels along its
axes and t the strength of the prior over that of the noise, the evidence of a column of labels y is greatest over the
noise at -m/2 (log(2 pi Q(t) / m) + 1) + 1/2 sum_j log(t / (s_j + t)), with Q(t) = y'y - sum_j p_j^2 / (s_j + t).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from layerscope.probing.layer_score import LayerRows, LayerScore, column_scales, joined, targets
from layerscope.similarity.moments import Moments

_LOW, _HIGH = -10.0, 12.0  # where t over n is looked for: powers of ten
_BLOCK = 8192
_COLUMNS = 4096  # of labels at a time


class LogME(LayerScore):
    """Greatest log evidence of Bayesian linear regression per row, the mean over classes."""

    name = "logme"
    title = "LogME: evidence of a linear map to the labels"
    shows = "The greatest log evidence of Bayesian linear regression, per row, in the mean over classes,"
    unchanged_by = ("shift", "scale", "columns")
    source = "You et al. 2021"
    moments = "groups"

    def values(self, layer: LayerRows, labellings: np.ndarray) -> np.ndarray:
        some = max(1, _COLUMNS // len(targets(labellings, 0, 1)[0, 0]))
        parts = (labellings[start : start + some] for start in range(0, len(labellings), some))
        return np.concatenate([self._of_some(layer, part) for part in parts])

    def _of_some(self, layer: LayerRows, labellings: np.ndarray) -> np.ndarray:
        n, (eigenvalues, _) = len(layer), layer.spectrum
        classes = targets(labellings, 0, 1).shape[1:]
        cross = torch.zeros(len(eigenvalues), classes.numel(), dtype=torch.float64)
        sums, squares = (torch.zeros(classes.numel(), dtype=torch.float64) for _ in range(2))
        for start in range(0, n, _BLOCK):
            stop = min(start + _BLOCK, n)
            y = targets(labellings, start, stop).reshape(stop - start, -1)
            cross += layer.along_axes(start, stop).T @ y
            sums += y.sum(dim=0)
            squares += y.pow(2).sum(dim=0)
        evidence = greatest_evidence(eigenvalues, cross, squares - sums**2 / n, n)
        return evidence.view(classes).mean(dim=1).numpy()

    def of_moments(
        self, parts: Sequence[Moments], labels: int, columns: int, *, intervals: bool
    ) -> tuple[np.ndarray, np.ndarray | None]:
        total = joined(parts)
        each = [_of_moments(total, layer, labels, columns) for layer in range(labels)]
        values = torch.stack(each, dim=1).numpy()
        if not intervals:
            return values, None
        rest = (total.without(part) for part in parts)
        without = [[float(_of_moments(some, layer, labels, columns)[0]) for layer in range(labels)] for some in rest]
        return values, np.asarray(without)


def _of_moments(moments: Moments, layer: int, labels: int, columns: int) -> Tensor:
    """(labellings,) the value of one layer; NaN where it is constant."""
    scale = column_scales(moments, layer)
    if not bool(scale.any()):
        return torch.full((moments.widths[labels] // columns,), math.nan, dtype=torch.float64)
    values, vectors = torch.linalg.eigh(scale[:, None] * moments.scatter(layer, layer) * scale)
    cross = (scale[:, None] * vectors).T @ moments.scatter(layer, labels)
    squares = moments.scatter(labels, labels).diagonal()
    evidence = greatest_evidence(values.clamp_min(0), cross, squares, moments.n)
    return evidence.view(-1, columns).mean(dim=1)


def greatest_evidence(eigenvalues: Tensor, cross: Tensor, squares: Tensor, n: int) -> Tensor:
    """(columns,) the log evidence per row (of n - 1) of every column of labels, greatest over both strengths.

    Args:
        eigenvalues: (r,) those of the scatter of the columns, which have mean 0.
        cross: (r, columns) the sums of the centred labels along its axes.
        squares: (columns,) the sums of their squares.
        n: How many rows there are.
    """
    explained = cross.pow(2)

    def evidence(power: Tensor) -> Tensor:
        """Of every column at its own strength, from (columns,) powers of ten."""
        strength = n * 10.0**power
        below = eigenvalues[:, None] + strength
        rest = (squares - (explained / below).sum(dim=0)).clamp_min(1e-300)
        free = n - 1
        fit = -0.5 * free * ((2 * math.pi * rest / free).log() + 1)
        return (fit - 0.5 * (below / strength).log().sum(dim=0)) / free

    grid = torch.linspace(_LOW, _HIGH, 89, dtype=torch.float64)
    tried = torch.stack([evidence(power.expand(cross.shape[1])) for power in grid])
    best = tried.argmax(dim=0)
    low, high = grid[(best - 1).clamp_min(0)], grid[(best + 1).clamp_max(len(grid) - 1)]
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(48):  # of a quarter of a power of ten to a ten-billionth: the evidence is flat at its greatest
        inner = high - golden * (high - low), low + golden * (high - low)
        rises = evidence(inner[0]) < evidence(inner[1])
        low, high = torch.where(rises, inner[0], low), torch.where(rises, high, inner[1])
    return torch.maximum(evidence((low + high) / 2), tried.max(dim=0).values)
