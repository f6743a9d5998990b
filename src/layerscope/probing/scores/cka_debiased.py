"""Debiased CKA of a layer with the labels: similarity of two Gram matrices, 0 on average where they are independent."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from torch import Tensor

from layerscope.distributed import Team
from layerscope.probing.layer_score import LayerRows, LayerScore, targets
from layerscope.similarity.moments import Moments
from layerscope.similarity.registry import Undefined
from layerscope.similarity.unbiased_hsic import alone, within_texts

_BLOCK = 4096  # rows at a time, and all rows of a text


class CkaDebiased(LayerScore):
    """Linear CKA with unbiased HSIC of the rows and the labels' indicators, or numbers."""

    name = "cka_debiased"
    title = "Debiased CKA with the labels"
    shows = "Linear CKA of the rows and the labels, with unbiased HSIC,"
    reading = "Higher is better; labels at random give 0 on average."
    within = (-1.0, 1.0)
    zero = 0.0
    unchanged_by = ("shift", "scale", "rotation")
    source = "Song et al. 2012; Kornblith et al. 2019"

    def values(self, layer: LayerRows, labellings: np.ndarray) -> np.ndarray:
        classes, count = len(targets(labellings, 0, 1)[0, 0]), len(labellings)
        pairs = [(0, k) for k in range(count + 1)]
        single = alone(layer.texts)
        widths = [layer.x.shape[1], *[classes] * count]
        moments = Moments(widths, pairs=pairs, exact=True, debiased=single, block=_BLOCK)
        for start in range(0, len(layer), _BLOCK):
            stop = min(start + _BLOCK, len(layer))
            moments.update([layer.x[start:stop].double(), *targets(labellings, start, stop).unbind(dim=1)])
        try:
            if single:
                hsic = moments.hsic
            else:
                within = within_texts(
                    _texts(layer, labellings), moments, [], layer.sizes, np.zeros(len(layer.sizes), int), Team()
                )[0]

                def hsic(i: int, j: int) -> float:
                    return within.hsic(moments, i, j)

            own = hsic(0, 0)
            return np.asarray([_ratio(hsic(0, k), own, hsic(k, k)) for k in range(1, count + 1)])
        except Undefined:
            return np.full(count, math.nan)


def _ratio(cross: float, one: float, other: float) -> float:
    return cross / math.sqrt(one * other) if min(one, other) > 0 else math.nan


def _texts(layer: LayerRows, labellings: np.ndarray) -> Iterator[tuple[list[Tensor], np.ndarray]]:
    """Pieces of whole texts: the rows of every view, and the number of each row's text."""
    for _, rows in layer.whole_texts(_BLOCK):
        views = targets(labellings, rows.start, rows.stop).unbind(dim=1)
        yield [layer.x[rows], *views], layer.number[rows].numpy()
