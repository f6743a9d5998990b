"""Figures of alignment and injection studies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.errors import InputError
from layerscope.measures.heatmap import blank, write

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


def plot_alignment(
    frame: pandas.DataFrame, path: str | Path | None = None, *, value: str = "relative", split: str = "test"
) -> Axes:
    """Boxes over pairs of models, with a dot a pair, a group a layer and a colour a method.

    Layer against layer is a grid of numbers.
    """
    if value not in frame:
        raise InputError(f"The study has no {value!r}; it has {', '.join(map(str, frame.columns))}.")
    part = frame[(frame["split"] == split) & frame[value].notna()]
    if not len(part):
        raise InputError(f"The study has no {value} on {split} rows that is defined; there is nothing to draw.")
    if (part["layer"] != part["target_layer"]).any():
        return _grid(part, path, value)
    methods, layers = list(part["method"].unique()), sorted(part["layer"].unique())
    ax = blank(max(4.4, 1.2 + max(0.5, 0.12 * len(methods)) * len(layers)), 3.6)
    width = 0.8 / len(methods)
    for k, method in enumerate(methods):
        chosen = part[part["method"] == method]
        boxes = [chosen[chosen["layer"] == layer][value].to_numpy() for layer in layers]
        places = [i + (k - (len(methods) - 1) / 2) * width for i in range(len(layers))]
        drawn = ax.boxplot(
            boxes, positions=places, widths=0.85 * width, patch_artist=True, manage_ticks=False, showfliers=False
        )
        for box in drawn["boxes"]:
            box.set(facecolor=f"C{k}", alpha=0.6)
        for line in drawn["medians"]:
            line.set_color("0.2")
        for place, values in zip(places, boxes, strict=True):
            ax.plot([place] * len(values), values, "o", color=f"C{k}", markersize=3, zorder=3)
        ax.plot([], [], color=f"C{k}", linewidth=6, alpha=0.6, label=method)
    ax.set_xticks(range(len(layers)), [str(layer) for layer in layers])
    ax.set_xlim(-0.5, len(layers) - 0.5)
    ax.set_ylim(0.0, 1.05 * float(part[value].max()) or 1.0)
    ax.set_xlabel("layer")
    ax.set_ylabel(_said(value))
    ax.legend(fontsize=7, frameon=False, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return _written(ax, path)


def _grid(part: pandas.DataFrame, path: str | Path | None, value: str) -> Axes:
    """The last method's errors, from layer (rows) to layer (columns), averaged over pairs."""
    method = part["method"].iloc[-1]
    table = part[part["method"] == method].pivot_table(index="layer", columns="target_layer", values=value)
    ax = blank(1.6 + 0.35 * len(table.columns), 1.2 + 0.35 * len(table))
    image = ax.imshow(table.to_numpy(), cmap="cividis", origin="lower", vmin=0)
    ax.set_xticks(range(len(table.columns)), [str(c) for c in table.columns])
    ax.set_yticks(range(len(table)), [str(c) for c in table.index])
    ax.set_xlabel("to layer")
    ax.set_ylabel("from layer")
    figure: Any = ax.figure
    figure.colorbar(image, label=f"{_said(value)}, {method}")
    return _written(ax, path)


def plot_injection(frame: pandas.DataFrame, path: str | Path | None = None) -> Axes:
    """A line a method over the layers, both models' own scores and the floors as flat ones."""
    ax = blank(5.6, 3.6)
    for name, part in frame.groupby("method", sort=False):
        floor = str(name).startswith("random")
        ax.plot(
            part["layer"], part["score"], marker="o", markersize=3, label=str(name), linestyle=":" if floor else "-"
        )
    for name, colour in (("source_score", "0.6"), ("target_score", "0.2")):
        ax.axhline(float(frame[name].iloc[0]), color=colour, linestyle="--", linewidth=0.9)
        ax.annotate(name.split("_")[0], (frame["layer"].max(), float(frame[name].iloc[0])), fontsize=7, va="bottom")
    ax.set_xlabel("layer of the target that is replaced")
    ax.set_ylabel(str(frame["metric"].iloc[0]))
    ax.legend(fontsize=7, frameon=False)
    return _written(ax, path)


def _said(value: str) -> str:
    return {"relative": "relative error", "mse": "mean squared error"}.get(value, value)


def _written(ax: Axes, path: str | Path | None) -> Axes:
    if path is not None:
        write(ax.figure, path)
    return ax
