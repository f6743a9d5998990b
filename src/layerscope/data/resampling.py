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
