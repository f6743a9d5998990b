"""Permuted labels: p-values from the values that a measure has after the texts have exchanged their labels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from layerscope.errors import InputError, whole
from layerscope.resampling import shuffled
from layerscope.results import Curve

LEVEL = 0.05
_TINY = 1e-300


def permuted_labels(labels: np.ndarray, texts: np.ndarray, count: int, seed: int) -> np.ndarray:
    """(count, n) labels after the texts have exchanged theirs.

    Where every text has one label, another text's stands at all of its rows. Where the rows of a text have labels of
    their own, such as tags, the labels of whole texts change places and still follow one another.
    """
    seeds = np.random.default_rng([seed, 1]).integers(1 << 32, size=count).tolist()
    names, first, text = np.unique(texts, return_index=True, return_inverse=True)
    first_labels, text = labels[first], text.reshape(-1)
    exchanged = np.empty((count, len(labels)), dtype=labels.dtype)
    if (first_labels[text] == labels).all():
        for k, each in enumerate(seeds):
            exchanged[k] = first_labels[shuffled(np.arange(len(names)), seed=each)][text]
        return exchanged
    in_order = np.argsort(text, kind="stable")
    for k, each in enumerate(seeds):
        exchanged[k, in_order] = labels[shuffled(texts, seed=each)]
    return exchanged


def add_null(curve: Curve, draws: np.ndarray, least: bool = True) -> None:
    """Put the values (permutations, layers) under permuted labels into a curve whose best value is the least.

    `null` is their median at every layer, `ratio` the value over it, `p` the share of labellings, the true one counted
    in, whose value is as low, and `p_best` the same for the curve's best layer after allowing for the choice among
    layers. Where the best value is the greatest (`least=False`), p-values are of values as high, and there is no
    ratio, since values may be 0 or below.
    """
    defined = ~np.isnan(draws).all(axis=0) & ~np.isnan(curve.values)
    curve.permuted = draws
    curve.null = np.full(len(curve.values), math.nan)
    curve.null[defined] = np.nanmedian(draws[:, defined], axis=0)
    rounding = 1e-12 * np.abs(curve.values)
    if least:
        curve.ratio = curve.values / curve.null
        as_good = draws <= curve.values + rounding
    else:
        as_good = draws >= curve.values - rounding
    curve.p = np.where(defined, (1 + as_good.sum(axis=0)) / (1 + len(draws)), math.nan)
    if curve.best is not None:
        chosen = p_after_choice(curve.layers, curve.values, draws, least)
        curve.p_best = float(chosen[curve.layers.index(curve.best)])


def p_after_choice(layers: Sequence[int], values: np.ndarray, draws: np.ndarray, least: bool = True) -> np.ndarray:
    """The p-value of every layer's low value after allowing for the choice among the layers above 0; NaN for layer 0.

    Every layer's logarithms, of the true and the permuted labellings together, are brought to mean 0 and spread 1, and
    the least of a labelling over all layers is what each layer's own value is compared with (Westfall and Young 1993).
    Where the greatest value is the best (`least=False`), it is the values themselves, with their sign turned.
    """
    at = [k for k, layer in enumerate(layers) if layer >= 1 and np.isfinite([values[k], *draws[:, k]]).all()]
    p = np.full(len(layers), math.nan)
    if not at:
        return p
    together = np.vstack([values[at], draws[:, at]])
    if least:
        together = np.log(np.maximum(together, _TINY))
    spread = together.std(axis=0)
    scaled = (together - together.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    if not least:
        scaled = -scaled
    extremes = scaled[1:].min(axis=1)[:, None]
    p[at] = (1 + (extremes <= scaled[0] + 1e-12).sum(axis=0)) / (1 + len(draws))
    return p


def check_null(null: int, least: int = 0) -> int:
    """The number of permutations; raises InputError where it is none, or below the `least` that is needed."""
    if not whole(null) or null < 0:
        raise InputError(f"null is {null}; it is how many permutations of the labels to look at: 0, 20, 100, ..")
    if null < least:
        raise InputError(f"null is {null}; at least {least} permutations are needed for p-values below {LEVEL:g}.")
    return int(null)
