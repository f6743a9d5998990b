"""What representations hold, layer by layer, in a few plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.drawing.words import numbers
from layerscope.results import Result, provenance_of

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure
    from layerscope.extraction.representations import Representations

_SHOWN = {
    "mean_norm": ("Mean norm of a row", "Large jumps are usual in deep layers; a few features may carry them."),
    "spread": ("Mean spread of a feature", "0 says that every row is the same vector."),
    "top_direction": (
        "Share of the largest direction",
        "Near 1 nearly all variance lies along one direction, which then decides linear measures.",
    ),
}


class LayerSummary(Result):
    """One row per layer: rows, width, mean norm of a row, mean spread of a feature, share of the largest direction.

    `spread` is the mean standard deviation over features; 0 says that every row is the same vector (as the summary
    token of layer 0 is). `top_direction` is the share of the variance along the first principal direction.
    """

    name = "layers"

    def __init__(self, frame: pandas.DataFrame, model: str, layers: list[int], provenance: Mapping[str, Any]) -> None:
        self._frame, self.model, self.layers, self.provenance = frame, model, layers, provenance

    @property
    def frame(self) -> pandas.DataFrame:
        return self._frame

    def figures(self) -> list[Figure]:
        layers = tuple(map(float, self.layers))
        curves: list[Figure] = [
            CurveFigure(
                title="What each layer holds",
                shows=f"{title} in every layer of {self.model}.",
                reading=reading,
                group="What each layer holds",
                facets={"number": title},
                series=(Series(self.model, layers, tuple(map(float, self._frame[name]))),),
                x_name="layer",
                y_name=title.lower(),
                n=int(self._frame["rows"].iloc[0]),
            )
            for name, (title, reading) in _SHOWN.items()
        ]
        return [*curves, numbers("Every layer", "What each layer holds, in numbers.", self._frame)]

    def __repr__(self) -> str:
        return f"LayerSummary({self.model}, {len(self._frame)} layers)"


def summarise(reps: Representations) -> LayerSummary:
    """What each layer of some representations holds."""
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
    model = str(reps.info.get("model", "representations"))
    described = {"name": model, **reps.info.get("described", {})}
    data = {"task": reps.rows.task, "split": reps.rows.split, **reps.info.get("data", {}), "n": len(reps)}
    origin = provenance_of([described], data, reps.info.get("reading", {}))
    return LayerSummary(pandas.DataFrame(records), model, list(reps.layers), origin)


def _top_direction(centred: torch.Tensor) -> float:
    total = float(centred.pow(2).sum())
    scale = float(centred.abs().max())
    if len(centred) < 2 or scale == 0.0 or total <= 1e-20:
        return float("nan")
    smaller = centred.T @ centred if centred.shape[1] <= len(centred) else centred @ centred.T
    return float(torch.linalg.eigvalsh(smaller)[-1]) / total
