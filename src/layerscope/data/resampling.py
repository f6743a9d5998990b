"""Halves, folds, shuffles and resamples of rows that keep the rows of one text together.

Words of one text are alike for reasons of their own. Rows that are dealt out one by one put some words of a text on
each side of a split, and what is scored was then learned from. Everything here takes `texts`, the text of every row,
and deals out whole texts; where every row is a text of its own that is the ordinary way.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Numbers = Sequence[int] | np.ndarray


def folds(texts: Numbers, count: int, *, seed: int, labels: Numbers | None = None) -> np.ndarray:
    """The fold (0..count - 1) of every row: texts at random, as many in each fold as in any other.

    With `labels`, one per row, each fold has its share of every label. A text with several labels counts as one of the
    label that it has first.
    """
    names, first, text = np.unique(np.asarray(texts), return_index=True, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(names))
    if labels is not None:
        order = order[np.argsort(np.asarray(labels)[first[order]], kind="stable")]
    fold = np.empty(len(names), dtype=int)
    fold[order] = np.arange(len(names)) % count
    return fold[text.reshape(-1)]


def halves(texts: Numbers, *, seed: int, labels: Numbers | None = None) -> np.ndarray:
    """True for the rows of one half of the texts, False for those of the other."""
    return folds(texts, 2, seed=seed, labels=labels) == 0


def ending(sizes: Numbers, share: float) -> int:
    """How many texts come before an end that holds at least this share of all (by size), one text or more on each side.

    Running text is parted so: texts that follow one another stay together.
    """
    total = np.cumsum(np.asarray(sizes, dtype=float))
    before = int(np.searchsorted(total, (1 - share) * total[-1] + 1e-9, side="right"))
    return min(max(before, 1), len(total) - 1)


def shuffled(texts: Numbers, *, seed: int) -> np.ndarray:
    """An order of the rows in which the texts have changed places and the rows of each still follow one another.

    Rows of a text that lie apart are brought together first, so that texts of different lengths may change places.
    """
    return _rows_of(texts, np.random.default_rng(seed).permutation(len(np.unique(texts))))


def resampled(texts: Numbers, *, seed: int) -> np.ndarray:
    """The rows of as many texts as there are, drawn with replacement: a bootstrap sample."""
    count = len(np.unique(texts))
    return _rows_of(texts, np.random.default_rng(seed).integers(0, count, count))


def _rows_of(texts: Numbers, chosen: np.ndarray) -> np.ndarray:
    """All rows of the chosen texts (numbers into the sorted texts), in their order."""
    _, text, sizes = np.unique(np.asarray(texts), return_inverse=True, return_counts=True)
    by_text, counts = np.argsort(text.reshape(-1), kind="stable"), sizes[chosen]
    first = (np.cumsum(sizes) - sizes)[chosen] - (np.cumsum(counts) - counts)  # of a text among all, less that here
    return by_text[np.repeat(first, counts) + np.arange(counts.sum())]


def exchanged(texts: Numbers, *, seed: int) -> np.ndarray:
    """For every row the row that stands in its place when the texts change places.

    Row k of a text gives way to row k of another, so that what is one text on one side is one text on the other. (In
    `shuffled` texts of unlike lengths come to lie across one another, and what their rows share counts for less.) Texts
    change places among those of about their length; a shorter one starts again, of a longer one some rows are left out.
    """
    _, text, sizes = np.unique(np.asarray(texts), return_inverse=True, return_counts=True)
    by_text = np.split(np.argsort(text.reshape(-1), kind="stable"), np.cumsum(sizes)[:-1])
    generator = np.random.default_rng(seed)
    taken = np.empty(len(text), dtype=int)
    for alike in _of_like_size(sizes):
        for place, other in zip(alike, generator.permutation(alike), strict=True):
            taken[by_text[place]] = np.resize(by_text[other], sizes[place])
    return taken


_LIKE = 1.25  # texts up to this many times as long as the shortest of their class count as of one length
_FEWEST = 10  # texts in a class, whatever their lengths


def _of_like_size(sizes: np.ndarray) -> list[np.ndarray]:
    """The texts in classes of about one size each, none with fewer than ten texts unless there are no more."""
    order = np.argsort(sizes, kind="stable")
    starts = [0]
    for place, text in enumerate(order):
        if place - starts[-1] >= _FEWEST and sizes[text] > _LIKE * sizes[order[starts[-1]]]:
            starts.append(place)
    if len(starts) > 1 and len(order) - starts[-1] < _FEWEST:
        starts.pop()
    return np.split(order, starts[1:])


def jackknifed(left_out: np.ndarray, ci: float = 0.95) -> np.ndarray:
    """The half-widths of intervals, from (groups, ..) values with one group of texts left out at a time."""
    from scipy.stats import t

    count = len(left_out)
    squares = ((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0)
    return np.asarray(float(t.ppf((1 + ci) / 2, count - 1)) * np.sqrt((count - 1) / count * squares))
