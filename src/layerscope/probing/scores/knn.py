"""Nearest neighbours: how well the labels of the ten nearest rows of other texts tell a row's own."""

from __future__ import annotations

import numpy as np
import torch

from layerscope.probing.layer_score import LayerRows, LayerScore, targets

NEIGHBOURS = 10
_CELLS = 1 << 24  # similarities at a time


class Knn(LayerScore):
    """R2 of the mean label of the 10 nearest rows of other texts, by the cosine of centred rows."""

    name = "knn"
    title = "Nearest neighbours: how well they tell the labels"
    shows = "R² of the mean label of the ten nearest rows of other texts, against the mean of all others,"
    reading = "Higher is better. Labels at random give about -0.1: ten neighbours tell less than the mean of all."
    within = (-np.inf, 1.0)
    zero = -1 / NEIGHBOURS
    unchanged_by = ("shift", "scale", "rotation")
    source = "Fix and Hodges 1951"

    def values(self, layer: LayerRows, labellings: np.ndarray) -> np.ndarray:
        near = neighbours(layer)
        found = []
        for labelling in labellings:
            y = targets(labelling[None])[:, 0]  # (n, C)
            guess = y[near].mean(dim=1)
            sums = torch.zeros(len(layer.sizes), y.shape[1], dtype=y.dtype).index_add_(0, layer.number, y)
            others = (y.sum(dim=0) - sums) / torch.from_numpy(len(layer) - layer.sizes)[:, None]
            found.append(1 - float((y - guess).pow(2).sum() / (y - others[layer.number]).pow(2).sum()))
        return np.asarray(found)


def neighbours(layer: LayerRows) -> torch.Tensor:
    """(n, k) the nearest rows of other texts; fewer than ten where there are not as many for some row."""
    x = layer.x.double()
    x = torch.nn.functional.normalize(x - x.mean(dim=0), dim=1).float()
    texts = torch.from_numpy(layer.texts)
    count = min(NEIGHBOURS, len(layer) - int(layer.sizes.max()))
    found = []
    for rows, here in zip(*(part.split(max(1, _CELLS // len(x))) for part in (x, texts)), strict=True):
        cosine = rows @ x.T
        cosine.masked_fill_(here[:, None] == texts, -torch.inf)
        found.append(cosine.topk(count, dim=1).indices)
    return torch.cat(found)
