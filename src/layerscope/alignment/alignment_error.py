"""The error of a map: how far mapped rows are from those of the target, with intervals over texts."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from layerscope import resampling
from layerscope.errors import InputError


def error_of(mapped: Tensor, y: Tensor, ci: float = 0.95, texts: np.ndarray | None = None) -> dict[str, float]:
    """Mean squared error per entry and relative to the spread of `y`, with intervals.

    The intervals are Student's for the logarithm (errors are skewed, and never negative), from a jackknife that leaves
    out one text after the other: rows of one text are no more independent in their errors than in what they say.
    Without `texts` every row is a text of its own.
    """
    if not 0 < ci < 1:
        raise InputError(f"ci is {ci}; it must be between 0 and 1, such as 0.95.")
    n, width = y.shape
    target = y.double()
    centred = target - target.mean(dim=0)
    misses = (mapped.double() - target).pow(2).sum(dim=1)
    mse, scale = float(misses.mean()) / width, float(centred.pow(2).sum()) / n
    relative = float(misses.mean()) / scale if n > 1 and _spread_out(target, centred) else math.nan
    names = np.arange(n) if texts is None else texts
    others = _without_groups(misses, centred, resampling.folds(names, len(np.unique(names)), seed=0))  # a text each
    values: dict[str, float] = {}
    for name, value, rest in (("mse", mse, others[0] / width), ("relative", relative, others[1])):
        low, high = _interval(value, rest, ci)
        values |= {name: value, f"{name}_low": low, f"{name}_high": high}
    return values


def _spread_out(target: Tensor, centred: Tensor) -> bool:
    """Whether rows differ by more than the rounding of float32, or of float64 where they have more digits."""
    rounding = 1e-12 if bool((target == target.float()).all()) else 1e-24
    return bool((centred.pow(2).mean(dim=0) > rounding * target.mean(dim=0).pow(2)).any())


def relative_without(mapped: Tensor, y: Tensor, group: np.ndarray) -> np.ndarray:
    """(groups,) The error relative to the spread of `y` without each group of rows in turn."""
    target = y.double()
    misses = (mapped.double() - target).pow(2).sum(dim=1)
    return _without_groups(misses, target - target.mean(dim=0), group)[1]


def _without_groups(misses: Tensor, centred: Tensor, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(groups,) the mean miss of a row, and that over the mean spread, without each group of rows in turn."""
    count, group = int(groups.max()) + 1, torch.from_numpy(groups).to(misses.device)

    def without(rows: Tensor) -> Tensor:
        sums = torch.zeros(count, *rows.shape[1:], dtype=rows.dtype, device=rows.device).index_add_(0, group, rows)
        return sums.sum(dim=0) - sums

    n = without(torch.ones_like(misses))
    missed, squares = without(misses), without(centred.pow(2).sum(dim=1))
    spread = squares - without(centred).pow(2).sum(dim=1) / n
    spread[spread <= 1e-12 * squares] = torch.nan  # one row is left, or rows that are all the same
    return (missed / n).cpu().numpy(), (missed / spread).cpu().numpy()


def _interval(value: float, others: np.ndarray, ci: float) -> tuple[float, float]:
    """The interval of a value, from the values without each text; NaN for a single text, or where one is undefined."""
    if len(others) < 2 or math.isnan(value) or not np.isfinite(others).all():
        return math.nan, math.nan
    if value <= 0 or others.min() <= 0:  # at most one text is missed at all
        return 0.0, math.inf if others.max() > 0 else 0.0
    side = float(resampling.jackknifed(np.log(others), ci))
    return value * math.exp(-side), value * math.exp(min(side, 700.0))
