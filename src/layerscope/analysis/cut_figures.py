"""Figures of truncation curves, skip maps and advice, as the papers draw them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.measures.heatmap import blank, write

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


def plot_truncation(
    curves: pandas.DataFrame | Mapping[str, pandas.DataFrame], path: str | Path | None = None, ax: Axes | None = None
) -> Axes:
    """Score against the layer that the head reads, a line a curve, with the majority class dashed."""
    many = dict(curves) if isinstance(curves, Mapping) else {str(curves["task"].iloc[0]): curves}
    ax = blank(5.2, 3.6) if ax is None else ax
    for k, (name, curve) in enumerate(many.items()):
        ax.plot(curve["layer"], curve["score"], marker="o", markersize=3.5, linewidth=1.4, color=f"C{k}", label=name)
        ax.axhline(curve["majority"].iloc[0], color=f"C{k}", linestyle="--", linewidth=0.9)
    ax.set_xlabel("layer that the head reads")
    ax.set_ylabel(next(iter(many.values()))["metric"].iloc[0])
    ax.legend(fontsize=8, frameon=False)
    if path is not None:
        write(ax.figure, path)
    return ax


def plot_skip_map(frame: pandas.DataFrame, path: str | Path | None = None, ax: Axes | None = None) -> Axes:
    """The triangle of scores: first skipped block from left to right, last from bottom to top."""
    ax = blank(5.2, 4.4) if ax is None else ax
    depth = int(frame["last"].max())
    grid = np.full((depth, depth), np.nan)
    grid[frame["last"].to_numpy() - 1, frame["first"].to_numpy() - 1] = frame["score"]
    edges = (0.5, depth + 0.5, 0.5, depth + 0.5)
    image = ax.imshow(np.ma.masked_invalid(grid), origin="lower", extent=edges, cmap="viridis", interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, label=str(frame["metric"].iloc[0]), shrink=0.9)
    ax.set_xlabel("first skipped block")
    ax.set_ylabel("last skipped block")
    ax.set_title(f"{frame['task'].iloc[0]}, n = {frame['n'].iloc[0]:,}", fontsize=10)
    if path is not None:
        write(ax.figure, path)
    return ax


def plot_front(table: pandas.DataFrame, chosen: Any, path: str | Path | None = None) -> Axes:
    """Score against multiply-adds: every candidate, the front as a line, the choice as a star."""
    ax = blank(5.6, 3.8)
    size = table["macs"] / table["macs"].max()
    ax.scatter(size, table["score"], s=14, color="0.65", label="candidates")
    front = table[table["front"]].sort_values("macs")
    ax.plot(front["macs"] / table["macs"].max(), front["score"], color="C0", marker="o", markersize=4, label="front")
    best = table.loc[chosen]
    errors = [[best["score"] - best["low"]], [best["high"] - best["score"]]]
    ax.errorbar([best["macs"] / table["macs"].max()], [best["score"]], yerr=errors, fmt="*", markersize=12, color="C1")
    ax.set_xlabel("multiply-adds, share of the whole model")
    ax.set_ylabel(f"{table['metric'].iloc[0]} on rows not used to choose")
    ax.legend(fontsize=8, frameon=False)
    if path is not None:
        write(ax.figure, path)
    return ax
