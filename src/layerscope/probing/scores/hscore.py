"""H-score with a shrunk covariance (Bao et al. 2019; Ibrahim et al. 2022).

The plain H-score is its maximum whatever the labels are once there are as many columns as rows. Shrinking the
covariance as Ledoit and Wolf (2004) do puts that right, so only this form is here.
"""

from __future__ import annotations

import numpy as np
import torch

from layerscope.probing.layer_score import LayerRows, LayerScore, targets


class HScore(LayerScore):
    """tr(A^-1 (1 - a) B): A is the covariance of rows, shrunk by a (Ledoit and Wolf), and B that of class means."""

    name = "hscore"
    title = "Shrunk H-score: variance between classes beside that of all rows"
    shows = "The shrunk H-score"
    numbers = False
    within = (0.0, np.inf)
    unchanged_by = ("shift", "scale", "rotation")
    source = "Bao et al. 2019; Ibrahim et al. 2022"

    def values(self, layer: LayerRows, labellings: np.ndarray) -> np.ndarray:
        n = len(layer)
        x = layer.x.double()
        x = x - x.mean(dim=0)
        covariance = x.T @ x / n
        shrinkage = ledoit_wolf(x.pow(2).sum(dim=1), covariance)
        covariance *= 1 - shrinkage
        covariance.diagonal().add_(shrinkage * float(x.pow(2).mean()))
        variances, axes = torch.linalg.eigh(covariance)
        real = variances > 1e-12 * variances[-1]  # without shrinkage some columns may be sums of others
        along = x @ (axes[:, real] * variances[real].rsqrt())
        found = []
        for labelling in labellings:
            y = targets(labelling[None])[:, 0]  # (n, C)
            sizes = y.sum(dim=0)
            between = (along.T @ y).pow(2).sum(dim=0) / sizes.clamp_min(1)
            found.append((1 - shrinkage) * float(between.sum()) / n)
        return np.asarray(found)


def ledoit_wolf(lengths: torch.Tensor, covariance: torch.Tensor) -> float:
    """The shrinkage towards a multiple of the identity: lengths (n,) are the squared norms of the centred rows."""
    n, level = len(lengths), float(covariance.diagonal().mean())
    square = float(covariance.pow(2).sum())
    distance = square - len(covariance) * level**2
    error = (float(lengths.pow(2).sum()) / n - square) / n
    return min(max(error, 0.0) / distance, 1.0) if distance > 0 else 1.0
