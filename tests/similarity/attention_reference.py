"""The measures of attention as they are defined, sentence by sentence and row by row, in float64."""

from __future__ import annotations

import numpy as np
from scipy.stats import pearsonr

from tests.similarity import reference


def restricted(matrix, causal):
    """A head's matrix, or what it gives to the word itself and earlier ones, as shares."""
    if not causal:
        return matrix
    lower = np.tril(matrix)
    total = lower.sum(axis=-1, keepdims=True)
    return np.divide(lower, total, out=np.zeros_like(lower), where=total > 0)


def rows_of(sentence_a, sentence_b, causal):
    """The rows that count: those in which every head of both sides attends to something."""
    both = np.concatenate([restricted(np.asarray(s, dtype=np.float64), causal) for s in (sentence_a, sentence_b)])
    return [i for i in range(both.shape[1]) if (both[:, i].sum(axis=-1) > 0).all()]


def pairs(a, b, causal):
    """Per head pair the list of (A, B, rows that count), one per sentence."""
    for i in range(len(a[0])):
        for j in range(len(b[0])):
            yield (
                i,
                j,
                [
                    (
                        restricted(np.asarray(x[i], dtype=np.float64), causal),
                        restricted(np.asarray(y[j], dtype=np.float64), causal),
                        rows_of(x, y, causal),
                    )
                    for x, y in zip(a, b, strict=True)
                ],
            )


def matrix(one, a, b, causal):
    found = np.full((len(a[0]), len(b[0])), np.nan)
    for i, j, sentences in pairs(a, b, causal):
        values = one(sentences, causal)
        if len(values):
            found[i, j] = np.mean(values)
    return found


def norm(sentences, causal):
    return [1 - np.linalg.norm((x - y)[rows]) for x, y, rows in sentences if rows]


def pearson(sentences, causal):
    found = []
    for x, y, rows in sentences:
        for row in rows:
            end = row + 1 if causal else x.shape[1]
            p, q = x[row, :end], y[row, :end]
            if len(p) > 1 and np.ptp(p) > 1e-9 and np.ptp(q) > 1e-9:
                found.append(pearsonr(p, q)[0])
    return found


def js(sentences, causal):
    def divergence(p, m):
        return sum(a * np.log(a / b) for a, b in zip(p, m, strict=True) if a > 0)

    found = []
    for x, y, rows in sentences:
        for row in rows:
            middle = (x[row] + y[row]) / 2
            found.append(1 - (divergence(x[row], middle) + divergence(y[row], middle)) / 2)
    return found


BY_HEAD = {"attention_norm": norm, "attention_pearson": pearson, "attention_js": js}


def heads(name, a, b, causal=False):
    return matrix(BY_HEAD[name], a, b, causal)


def by_head(name, a, b, causal=False):
    """Max over the second's heads, mean over the first's; heads without a value left out."""
    best = [np.nanmax(row) for row in heads(name, a, b, causal) if not np.isnan(row).all()]
    return float(np.mean(best)) if best else float("nan")


def as_whole(name, a, b, causal=False, **options):
    """The measure of hidden states on a row for each pair of words."""
    x, y = [], []
    for s, t in zip(a, b, strict=True):
        left, right = (np.stack([restricted(np.asarray(h, dtype=np.float64), causal) for h in side]) for side in (s, t))
        for row in rows_of(s, t, causal):
            for column in range(row + 1 if causal else left.shape[2]):
                x.append(left[:, row, column])
                y.append(right[:, row, column])
    return getattr(reference, name.removeprefix("attention_"))(np.array(x), np.array(y), **options)


def value(name, a, b, causal=False):
    return (by_head if name in BY_HEAD else as_whole)(name, a, b, causal)
