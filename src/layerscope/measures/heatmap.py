"""Heat maps of similarities, as the papers draw them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.errors import choose
from layerscope.store import whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from layerscope.measures.similarity import Axis, Similarity

FORMATS = (".png", ".svg", ".pdf")
_MOST_TICKS = 26


def draw(similarity: Similarity, path: str | Path | None, ax: Axes | None) -> Axes:
    """One heat map: layer 0 at the origin, undefined cells hatched, lines between models."""
    own = ax is None
    ax = blank(*_size(similarity)) if ax is None else ax
    image = paint(similarity, ax, *scale_of([similarity]))
    if own:
        ax.figure.colorbar(image, ax=ax, label=similarity.measure, shrink=0.9)
    if path is not None:
        write(ax.figure, path)
    return ax


def draw_heads(similarity: Similarity, row: int, column: int, path: str | Path | None, ax: Axes | None) -> Axes:
    """The attention heads of two layers: a matrix of values, a ring around each row's match."""
    matches = similarity.matches[row, column]
    assert similarity.heads is not None
    values = similarity.heads[row, column]
    own = ax is None
    sides = [min(max(0.25 * count + 2.0, 3.5), 12.0) for count in reversed(values.shape)]
    ax = blank(sides[0], sides[1] - 0.4) if ax is None else ax
    low, high = similarity.bounds if np.isfinite(similarity.bounds).all() else (None, 1.0)
    image = ax.imshow(np.ma.masked_invalid(values), origin="lower", vmin=low, vmax=high, interpolation="nearest")
    _hatch(ax, values)
    alive = np.flatnonzero(matches >= 0)
    ax.scatter(matches[alive], alive, s=28, facecolors="none", edgecolors="tab:red", linewidths=1.2)
    for side, axis, place, count in (
        (ax.yaxis, similarity.row_axis, row, values.shape[0]),
        (ax.xaxis, similarity.column_axis, column, values.shape[1]),
    ):
        step = -(-count // _MOST_TICKS)
        side.set_ticks(range(0, count, step))
        side.set_label_text(f"attention heads of layer {axis.layers[place]}, {axis.models[place]}", fontsize=8)
    ax.tick_params(labelsize=7)
    ax.set_title(f"{similarity.measure}: {similarity.values[row, column]:.3f}", fontsize=10)
    if own:
        ax.figure.colorbar(image, ax=ax, shrink=0.9)
    if path is not None:
        write(ax.figure, path)
    return ax


def blank(width: float, height: float) -> Axes:
    """Empty axes on a figure of their own, in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def draw_panels(similarities: Sequence[Similarity], path: str | Path, titles: Sequence[str] | None = None) -> None:
    """Several heat maps in a row, on one colour scale."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width = sum(_size(s)[0] for s in similarities)
    figure = Figure(figsize=(width, max(_size(s)[1] for s in similarities)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = [figure.add_subplot(1, len(similarities), k + 1) for k in range(len(similarities))]
    low, high = scale_of(similarities)
    images = [paint(s, ax, low, high) for s, ax in zip(similarities, axes, strict=True)]
    for ax, title in zip(axes, titles or (), strict=False):
        ax.set_title(f"{title}: {ax.get_title()}", fontsize=10)
    figure.colorbar(images[-1], ax=axes, shrink=0.9)
    write(figure, path)


def paint(similarity: Similarity, ax: Axes, low: float, high: float) -> Any:
    """The picture itself, into some axes."""
    values = np.ma.masked_invalid(similarity.values)
    image = ax.imshow(
        values, origin="lower", vmin=low, vmax=high, cmap="viridis", interpolation="nearest", aspect="equal"
    )
    _hatch(ax, similarity.values)
    for edge in similarity.row_axis.edges:
        ax.axhline(edge - 0.5, color="white", linewidth=1.5)
    for edge in similarity.column_axis.edges:
        ax.axvline(edge - 0.5, color="white", linewidth=1.5)
    _label(ax.xaxis, similarity.column_axis, rotate=True)
    _label(ax.yaxis, similarity.row_axis, rotate=False)
    ax.set_xlabel(_name(similarity.column_axis))
    ax.set_ylabel(_name(similarity.row_axis))
    ax.set_title(f"{similarity.measure}, n = {similarity.n:,}", fontsize=10)
    return image


def _hatch(ax: Axes, values: np.ndarray) -> None:
    """Undefined cells."""
    from matplotlib.patches import Rectangle

    for i, j in np.argwhere(np.isnan(values)):
        cell = Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor="white", edgecolor="0.6", hatch="////", linewidth=0)
        ax.add_patch(cell)


def scale_of(similarities: Sequence[Similarity]) -> tuple[float, float]:
    """0..1 for measures with that range, else the range of the values."""
    if all(s.bounds == (0.0, 1.0) for s in similarities):
        return 0.0, 1.0
    values = np.concatenate([s.values[np.isfinite(s.values)] for s in similarities])
    return (float(min(values.min(), 0.0)), float(max(values.max(), 1.0))) if len(values) else (0.0, 1.0)


def write(figure: Any, path: str | Path) -> None:
    """Save a figure under a temporary name first; the ending decides the format."""
    path = Path(path)
    choose("figure format", path.suffix.lower(), FORMATS)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as temporary:
        figure.savefig(temporary, dpi=200, format=path.suffix.lower()[1:], bbox_inches="tight")


def _size(similarity: Similarity) -> tuple[float, float]:
    """Inches: a cell is about a fifth of an inch, within reason."""
    side = [min(max(0.2 * len(axis) + 2.0, 4.0), 14.0) for axis in (similarity.column_axis, similarity.row_axis)]
    return side[0], side[1] - 0.4


def _name(axis: Axis) -> str:
    models = dict.fromkeys(axis.models)
    return f"layer of {next(iter(models))}" if len(models) == 1 else "model:layer"


def _label(side: Any, axis: Axis, rotate: bool) -> None:
    step = -(-len(axis) // _MOST_TICKS)
    ticks = range(0, len(axis), step)
    long = max(map(len, axis.labels)) > 3
    side.set_ticks(list(ticks), [axis.labels[k] for k in ticks], fontsize=7, rotation=90 if rotate and long else 0)
