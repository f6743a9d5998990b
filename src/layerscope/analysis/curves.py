"""A curve: one number a layer."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.measures.heatmap import blank, write

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


@dataclass
class Curve:
    """`values[i]` belongs to `layers[i]` of `models[i]`; NaN where undefined."""

    name: str
    models: list[str]
    layers: list[Any]
    values: np.ndarray
    provenance: dict[str, Any] = field(default_factory=dict)
    best: int | None = None  # the layer that the curve points to, where it points to one
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    wins: np.ndarray | None = None  # how often each layer came out best over subsamples

    def to_frame(self) -> pandas.DataFrame:
        """A tidy table: a row a layer."""
        import pandas

        frame = pandas.DataFrame({"model": self.models, "layer": self.layers, self.name: self.values})
        for name in ("low", "high", "wins"):
            if (extra := getattr(self, name)) is not None:
                frame[name] = extra
        return frame

    def plot(self, path: str | Path | None = None, ax: Axes | None = None) -> Axes:
        """One line a model over its layers; written to `path` (PNG, SVG or PDF) if one is given."""
        ax = blank(5.0, 3.2) if ax is None else ax
        for model in dict.fromkeys(self.models):
            chosen = [i for i, name in enumerate(self.models) if name == model]
            ax.plot([self.layers[i] for i in chosen], self.values[chosen], marker="o", markersize=3, label=model)
        ax.set_xlabel("layer")
        ax.set_ylabel(self.name)
        ax.grid(alpha=0.3)
        if len(set(self.models)) > 1:
            ax.legend(fontsize=7)
        if path is not None:
            write(ax.figure, path)
        return ax
