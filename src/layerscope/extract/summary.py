"""What representations hold, layer by layer, in a few plain numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    import pandas

    from layerscope.extract.representations import Representations


def summarise(reps: Representations) -> pandas.DataFrame:
    """A row a layer: rows, width, mean norm of a row, mean spread of a feature, share of the largest direction.

    `spread` is the mean standard deviation over features; 0 says that every row is the same vector (as the
    summary token of layer 0 is). `top_direction` is the share of the variance along the first principal direction.
    """
    import pandas

    records = []
    for layer, name in zip(reps.layers, reps.names, strict=True):
        x = reps[layer].double()
        centred = x - x.mean(dim=0)
        spread = float(centred.pow(2).mean(dim=0).sqrt().mean())
        records.append(
            {
                "layer": name,
                "rows": len(x),
                "width": x.shape[1],
                "mean_norm": float(x.norm(dim=1).mean()),
                "spread": spread,
                "top_direction": _top_direction(centred),
            }
        )
    return pandas.DataFrame(records)


def _top_direction(centred: torch.Tensor) -> float:
    total = float(centred.pow(2).sum())
    scale = float(centred.abs().max())
    if len(centred) < 2 or scale == 0.0 or total <= 1e-20:
        return float("nan")
    smaller = centred.T @ centred if centred.shape[1] <= len(centred) else centred @ centred.T
    return float(torch.linalg.eigvalsh(smaller)[-1]) / total
