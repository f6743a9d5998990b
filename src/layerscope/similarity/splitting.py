"""Contiguous splits of a list of layers: the strongest into k blocks, and the strength of any."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def strength_of(values: np.ndarray, cuts: Sequence[int]) -> np.ndarray:
    """Mean similarity within blocks minus that between them, of each matrix (.., n, n); cuts are blocks' first places.

    Pairs of different layers count, and of those the ones that have a value in every matrix.
    """
    n = values.shape[-1]
    block = np.searchsorted(cuts, np.arange(n), side="right")
    known = np.triu(~np.isnan(values).any(axis=tuple(range(values.ndim - 2))), 1)
    same = np.equal.outer(block, block)
    return values[..., known & same].mean(axis=-1) - values[..., known & ~same].mean(axis=-1)


def best_splits(values: np.ndarray, most: int) -> dict[int, list[int]]:
    """For k = 2..most the cuts of the strongest split of a symmetric matrix into k blocks of two layers or more.

    Dynamic programming over (blocks, layers, pairs within blocks): for a given number of pairs within, the largest sum
    within is also the largest mean within minus mean between.
    """
    n = len(values)
    known = ~np.isnan(values)
    filled = np.where(known, values, 0.0)
    sums, pairs = np.zeros((n + 1, n + 1)), np.zeros((n + 1, n + 1), dtype=int)
    for a in range(n):
        for b in range(a + 2, n + 1):  # pairs i < j of layers a..b-1
            sums[a, b] = sums[a, b - 1] + filled[a : b - 1, b - 1].sum()
            pairs[a, b] = pairs[a, b - 1] + known[a : b - 1, b - 1].sum()
    total, cells = sums[0, n], pairs[0, n]
    # best[b][c]: the largest sum over c pairs within blocks that end before layer b
    best = {b: _at(sums[0, b], pairs[0, b], cells) for b in range(2, n + 1)}
    came: list[dict[int, np.ndarray]] = []
    splits = {}
    for k in range(2, most + 1):
        longer, origin = {}, {}
        for b in range(2 * k, n + 1):
            longer[b], origin[b] = np.full(cells + 1, -np.inf), np.zeros(cells + 1, dtype=int)
            for a in range(2 * (k - 1), b - 1):
                inside = pairs[a, b]
                candidate = np.full(cells + 1, -np.inf)
                candidate[inside:] = best[a][: cells + 1 - inside] + sums[a, b]
                better = candidate > longer[b]
                longer[b][better] = candidate[better]
                origin[b][better] = a
        best = longer
        came.append(origin)
        within = np.arange(cells + 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            strength = best[n] / within - (total - best[n]) / (cells - within)
        strength[[0, cells]] = -np.inf
        splits[k] = _trace(came, pairs, int(np.argmax(strength)), n)
    return splits


def _at(value: float, place: int, cells: int) -> np.ndarray:
    table = np.full(cells + 1, -np.inf)
    table[place] = value
    return table


def _trace(came: list[dict[int, np.ndarray]], pairs: np.ndarray, within: int, end: int) -> list[int]:
    """The cuts that led to the best entry."""
    cuts = []
    for origin in reversed(came):
        start = int(origin[end][within])
        within -= int(pairs[start, end])
        end = start
        cuts.append(start)
    return cuts[::-1]
