"""Halves, folds, shuffles and resamples of rows that keep the rows of one text together.

Words of one text are alike for reasons of their own. Rows that are dealt out one by one put some words of a text on
each side of a split, so that a score is taken on words of texts that were learned from. Every function here takes
`texts`, the number of each row's text, and deals out whole texts; where each row is a text of its own, that is ordinary
resampling of rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Numbers = Sequence[int] | np.ndarray


def folds(texts: Numbers, count: int, *, seed: int, labels: Numbers | None = None) -> np.ndarray:
    """Return the fold (0..count - 1) of every row, with texts dealt out at random and in equal numbers.

    With `labels`, one per row, the folds are stratified: each has its share of every label. A text with several labels
    counts as one with the label of its first row.
    """
    names, first, text = np.unique(np.asarray(texts), return_index=True, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(names))
    if labels is not None:
        order = order[np.argsort(np.asarray(labels)[first[order]], kind="stable")]
    fold = np.empty(len(names), dtype=int)
    fold[order] = np.arange(len(names)) % count
    return fold[text.reshape(-1)]


def halves(texts: Numbers, *, seed: int, labels: Numbers | None = None) -> np.ndarray:
    """Return a mask that is True for the rows of one half of the texts and False for those of the other."""
    return folds(texts, 2, seed=seed, labels=labels) == 0


def ending(sizes: Numbers, share: float) -> int:
    """Return how many texts come before the last ones that hold at least this share of the total size.

    At least one text is on each side. Running text is split in this way, so that texts that follow one another stay
    together.
    """
    total = np.cumsum(np.asarray(sizes, dtype=float))
    before = int(np.searchsorted(total, (1 - share) * total[-1] + 1e-9, side="right"))
    return min(max(before, 1), len(total) - 1)


def shuffled(texts: Numbers, *, seed: int) -> np.ndarray:
    """Return an order of the rows in which the texts are permuted and the rows of each text follow one another."""
    return _rows_of(texts, np.random.default_rng(seed).permutation(len(np.unique(texts))))


def resampled(texts: Numbers, *, seed: int) -> np.ndarray:
    """Return the rows of a bootstrap sample: as many texts as there are, drawn with replacement."""
    count = len(np.unique(texts))
    return _rows_of(texts, np.random.default_rng(seed).integers(0, count, count))


def _rows_of(texts: Numbers, chosen: np.ndarray) -> np.ndarray:
    """Return all rows of the chosen texts (numbers into the sorted texts), in the order of the choice."""
    _, text, sizes = np.unique(np.asarray(texts), return_inverse=True, return_counts=True)
    by_text, counts = np.argsort(text.reshape(-1), kind="stable"), sizes[chosen]
    # A text's first place in `by_text`, less its first place in the result: what the places of its rows differ by.
    first = (np.cumsum(sizes) - sizes)[chosen] - (np.cumsum(counts) - counts)
    return by_text[np.repeat(first, counts) + np.arange(counts.sum())]


def exchanged(texts: Numbers, *, seed: int) -> np.ndarray:
    """Return, for every row, the row that takes its place when the texts are permuted.

    Row k of a text is replaced by row k of another, so that the rows of one text are replaced by rows of one text. (In
    `shuffled`, texts of different lengths come to overlap, and what the rows of one text share counts for less.) Texts
    are permuted among those of about their length; a text that is too short is repeated, one that is too long is cut.
    """
    _, text, sizes = np.unique(np.asarray(texts), return_inverse=True, return_counts=True)
    by_text = np.split(np.argsort(text.reshape(-1), kind="stable"), np.cumsum(sizes)[:-1])
    generator = np.random.default_rng(seed)
    replacement = np.empty(len(text), dtype=int)
    for alike in _classes_by_size(sizes):
        for place, other in zip(alike, generator.permutation(alike), strict=True):
            replacement[by_text[place]] = np.resize(by_text[other], sizes[place])
    return replacement


_LIKE = 1.25  # texts up to this many times as long as the shortest of their class count as of one length
_FEWEST = 10  # texts in a class, whatever their lengths


def _classes_by_size(sizes: np.ndarray) -> list[np.ndarray]:
    """Return the texts in classes of about one size, each with at least ten texts unless there are fewer in all."""
    order = np.argsort(sizes, kind="stable")
    starts = [0]
    for place, text in enumerate(order):
        if place - starts[-1] >= _FEWEST and sizes[text] > _LIKE * sizes[order[starts[-1]]]:
            starts.append(place)
    if len(starts) > 1 and len(order) - starts[-1] < _FEWEST:
        starts.pop()
    return np.split(order, starts[1:])


def jackknifed(left_out: np.ndarray, ci: float = 0.95) -> np.ndarray:
    """Return the half-widths of intervals, from values (groups, ..) with one group of texts left out at a time."""
    from scipy.stats import t

    count = len(left_out)
    squares = ((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0)
    return np.asarray(float(t.ppf((1 + ci) / 2, count - 1)) * np.sqrt((count - 1) / count * squares))
