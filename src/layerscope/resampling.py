"""Halves, folds, shuffles and resamples of rows that keep the rows of one text together.

Words of one text are alike for reasons of their own. Rows that are dealt out one by one put some words of a text on
each side of a split, so that a score is taken on words of texts that were learned from. Every function here takes
`texts`, the number of each row's text, and deals out whole texts; where each row is a text of its own, that is ordinary
resampling of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from layerscope.errors import InputError, first_line

Numbers = Sequence[int] | np.ndarray


def numbered(texts: Any, rows: int) -> np.ndarray:
    """Return the number of every row's text, from 0, where one name or number per row says which rows are of one text.

    Raises InputError where that is not so.
    """
    try:
        named = np.asarray(texts.cpu() if hasattr(texts, "cpu") else texts)
        numbers = np.unique(named, return_inverse=True)[1].reshape(-1)
    except (ValueError, TypeError, RuntimeError) as error:  # lists of unlike lengths, names of several kinds
        raise InputError(f"texts does not name the text of each row: {first_line(error).rstrip('.')}.") from error
    if named.shape != (rows,):
        raise InputError(
            f"texts has shape {named.shape}; it must name the text of each of the {rows} rows, by one name or number "
            "per row."
        )
    return numbers


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


def effective_count(sizes: Numbers) -> float:
    """Return how many texts of one size tell as much as texts of these sizes (Kish 1965)."""
    weights = np.asarray(sizes, dtype=float)
    return float(weights.sum() ** 2 / (weights**2).sum())


def shuffled(texts: Numbers, *, seed: int) -> np.ndarray:
    """Return an order of the rows in which the texts are permuted and the rows of each text follow one another."""
    return _rows_of(texts, np.random.default_rng(seed).permutation(len(np.unique(texts))))


def resampled(texts: Numbers, *, seed: int) -> np.ndarray:
    """Return the rows of a bootstrap sample: as many texts as there are, drawn with replacement."""
    count = len(np.unique(texts))
    return _rows_of(texts, np.random.default_rng(seed).integers(0, count, count))


_ROUNDS = 1000  # of the bootstrap


def mean_interval(values: np.ndarray, texts: Numbers) -> tuple[float, float]:
    """Return a 95% interval of the mean of one value per row, by the bootstrap over texts.

    It is NaN where all values are the same, or all rows are of one text: these say nothing of the spread.
    """
    if np.ptp(values) == 0 or len(np.unique(texts)) < 2:
        return float("nan"), float("nan")
    low, high = np.quantile([values[resampled(texts, seed=k)].mean() for k in range(_ROUNDS)], [0.025, 0.975])
    return float(low), float(high)


def _rows_of(texts: Numbers, chosen: np.ndarray) -> np.ndarray:
    """Return all rows of the chosen texts (numbers into the sorted texts), in the order of the choice."""
    _, text, sizes = np.unique(np.asarray(texts), return_inverse=True, return_counts=True)
    by_text, counts = np.argsort(text.reshape(-1), kind="stable"), sizes[chosen]
    # A text's first place in `by_text`, less its first place in the result: what the places of its rows differ by.
    first = (np.cumsum(sizes) - sizes)[chosen] - (np.cumsum(counts) - counts)
    return by_text[np.repeat(first, counts) + np.arange(counts.sum())]


def counterparts(texts: Numbers) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows (their numbers, in order) that have a counterpart in other texts, and the class of each.

    Row k of a text meets row k of the texts of its class, which are of about its length, and what is beyond the
    shortest of them is left out. Filling a shorter text up instead would let row k meet another row, which breaks what
    the rows at one place share (as the first tokens of a decoder do), or would mix the rows of several texts, which
    breaks what the rows of a text share. The last row of a text is at a place of its own, too (a full stop, say): where
    lengths differ it could only meet rows in the middle, and is left out.
    """
    _, text, sizes = np.unique(np.asarray(texts), return_inverse=True, return_counts=True)
    text = text.reshape(-1)
    common, class_of = np.empty(len(sizes), dtype=int), np.empty(len(sizes), dtype=int)
    for number, alike in enumerate(_classes_by_size(sizes)):
        shortest, longest = sizes[alike[:1]], sizes[alike[-1:]]
        common[alike] = np.where(shortest == longest, shortest, np.maximum(shortest - 1, 1))
        class_of[alike] = number
    order = np.argsort(text, kind="stable")
    place = np.empty(len(text), dtype=int)  # of every row within its text
    place[order] = np.arange(len(text)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    kept = np.flatnonzero(place < common[text])
    return kept, class_of[text[kept]]


def exchanged(texts: Numbers, *, seed: int, classes: Numbers | None = None) -> np.ndarray:
    """Return an order of the rows in which the texts have changed places, row k of one for row k of another.

    Texts change places with texts of as many rows and, with `classes` (one per row), of the same class; `counterparts`
    selects rows among which every text has such others.
    """
    _, first, text, sizes = np.unique(np.asarray(texts), return_index=True, return_inverse=True, return_counts=True)
    by_text = np.split(np.argsort(text.reshape(-1), kind="stable"), np.cumsum(sizes)[:-1])
    generator = np.random.default_rng(seed)
    order = np.empty(len(text), dtype=int)
    kinds = sizes if classes is None else np.asarray(classes)[first]
    for kind in np.unique(kinds):
        alike = np.flatnonzero(kinds == kind)
        for text_here, other in zip(alike, generator.permutation(alike), strict=True):
            order[by_text[text_here]] = by_text[other]
    return order


_FEWEST = 5  # texts in a class, whatever their lengths


def _classes_by_size(sizes: np.ndarray) -> list[np.ndarray]:
    """Return the texts in classes of one size, or of neighbouring sizes where fewer than five texts have one.

    The shortest of a class comes first; texts of one size are in one class. Fewer than ten texts are one class.
    """
    order = np.argsort(sizes, kind="stable")
    starts = [0]
    for place, text in enumerate(order):
        if place - starts[-1] >= _FEWEST and sizes[text] > sizes[order[place - 1]]:
            starts.append(place)
    if len(starts) > 1 and len(order) - starts[-1] < _FEWEST:
        starts.pop()
    return np.split(order, starts[1:])


def jackknifed(left_out: np.ndarray, ci: float = 0.95) -> np.ndarray:
    """Return the half-widths of intervals, from values (groups, ..) with one group of texts left out at a time."""
    from scipy.special import stdtrit

    count = len(left_out)
    squares = ((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0)
    return np.asarray(float(stdtrit(count - 1, (1 + ci) / 2)) * np.sqrt((count - 1) / count * squares))


_ROUNDING = 1e-9  # of a value: differences below it are none


def told_apart(
    values: np.ndarray,
    at: int,
    *,
    left_out: np.ndarray | None = None,
    draws: np.ndarray | None = None,
    level: float = 0.95,
) -> np.ndarray:
    """Return which of some values (n,) are shown to differ from the one at a place, which does not from itself.

    All are of the same texts, and it is their differences that have intervals, widened for so many (Bonferroni).

    Args:
        values: The values.
        at: The place of the one that the others are held against.
        left_out: (groups, n) the values without one group of texts at a time.
        draws: In its place, (resamples, n) the values of halves of the texts.
        level: The level of the intervals, all of them together.
    """
    from scipy.special import ndtri

    ci = 1 - (1 - level) / max(len(values) - 1, 1)
    if left_out is not None:
        half = jackknifed(left_out - left_out[:, [at]], ci)
    else:
        assert draws is not None
        half = float(ndtri((1 + ci) / 2)) * (draws - draws[:, [at]]).std(axis=0, ddof=1)
    return np.asarray(np.abs(values - values[at]) > half + _ROUNDING * abs(values[at]))
