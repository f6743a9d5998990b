"""Painting figures with matplotlib, in one style: into a file, into somebody's axes, or several side by side."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.drawing.placing import Box, apart, place
from layerscope.errors import InputError, choose
from layerscope.store import whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from layerscope.drawing.figure import Figure, Side

FORMATS = ("pdf", "svg", "png")
MARKERS = "osD^vP"
NAMES = 6.5  # points: the letters of names in a picture
MOST_NAMED = 8  # lines that can have their names beside them; of more there is a legend
_DASHES = ("--", "-.", ":")
_UNDATED = {"pdf": {"CreationDate": None, "ModDate": None}, "svg": {"Date": None}, "png": {}}
_TALLEST = 9.0  # inches: no figure is taller than a page
_LONGEST = 28  # letters of a name beside a picture


@contextmanager
def style() -> Iterator[None]:
    """Small sans-serif letters, thin lines, colours that colour-blind readers tell apart; and back."""
    import matplotlib
    from matplotlib.style import context

    with matplotlib.rc_context(), context(str(resources.files("layerscope.drawing").joinpath("paper.mplstyle"))):
        yield


def draw(
    figure: Figure,
    path: str | Path | None = None,
    ax: Axes | None = None,
    *,
    width: float | None = None,
    title: bool = True,
) -> Axes:
    """Paint a figure into `ax`, or into axes of its own; written to `path` (PNG, SVG or PDF) if one is given."""
    with style():
        ax = _axes(1, *figure.size(width))[0] if ax is None else ax
        figure.draw(ax)
        if title:
            ax.set_title(plain(figure.title))
        if path is not None:
            write(ax.figure, path, tight=width is None)  # a figure of a given width keeps it
    return ax


def draw_panels(figures: Sequence[Figure], path: str | Path | None = None) -> list[Axes]:
    """Several figures side by side; heat maps among them are on one colour scale, with one bar."""
    from layerscope.drawing.figures.heatmap import HeatmapFigure

    if not figures:
        raise InputError("There is nothing to draw: no figure was given.")
    maps = [figure for figure in figures if isinstance(figure, HeatmapFigure)]
    scale = (min(m.scale[0] for m in maps), max(m.scale[1] for m in maps)) if maps else (0.0, 1.0)
    sizes = [figure.size() for figure in figures]
    with style():
        panels = _axes(len(figures), sum(size[0] for size in sizes), max(size[1] for size in sizes))
        image = None
        for figure, ax in zip(figures, panels, strict=True):
            if isinstance(figure, HeatmapFigure):
                image = replace(figure, scale=scale).draw(ax, bar=False)
            else:
                figure.draw(ax)
            ax.set_title(plain(figure.title))
        if image is not None:
            holder: Any = panels[0].figure
            holder.colorbar(image, ax=panels, shrink=0.9)
        if path is not None:
            write(panels[0].figure, path)
    return panels


def write(canvas: Any, path: str | Path, tight: bool = True) -> None:
    """Save matplotlib's figure under a temporary name first; the ending decides the format."""
    path = Path(path)
    format = choose("figure format", path.suffix.lower().lstrip("."), FORMATS)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as temporary:
            canvas.savefig(temporary, format=format, metadata=_UNDATED[format], bbox_inches="tight" if tight else None)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}; give another path.") from error


def markup(figure: Figure) -> str:
    """The figure as SVG, for pages and notebooks; letters are drawn as shapes, so that no name becomes markup."""
    import io

    import matplotlib

    with style(), matplotlib.rc_context({"svg.fonttype": "path"}):
        ax = _axes(1, *figure.size())[0]
        figure.draw(ax)
        buffer = io.StringIO()
        canvas: Any = ax.figure
        canvas.savefig(buffer, format="svg", metadata=_UNDATED["svg"], bbox_inches="tight")
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _axes(count: int, width: float, height: float) -> list[Axes]:
    """Empty axes side by side on a figure of their own, in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(width, min(height, _TALLEST)), layout="constrained")
    FigureCanvasAgg(canvas)
    return [canvas.add_subplot(1, count, k + 1) for k in range(count)]


# What several kinds of figures are painted with.


def plain(text: str) -> str:
    """A name as text: matplotlib would read dollar signs as formulas."""
    return text.replace("$", r"\$")


def wrapped(text: str, width: int) -> str:
    """A name on several lines, so that it fits into so many letters."""
    return plain("\n".join(textwrap.wrap(text, max(width, 8)) or [text]))


def size_of(ax: Axes) -> tuple[float, float]:
    """The figure around some axes, in inches."""
    width, height = ax.get_figure(root=True).get_size_inches()  # type: ignore[union-attr]
    return float(width), float(height)


def axis_names(ax: Axes, x: str, y: str) -> None:
    """The names of both axes, wrapped to the figure's size."""
    width, height = size_of(ax)
    ax.set_xlabel(wrapped(x, int(width * 14)))
    ax.set_ylabel(wrapped(y, int(height * 12)))


def reference_lines(figure: Any, line: Callable[..., Any]) -> None:
    """Lines to compare with, each with its own dashes."""
    for k, (name, value) in enumerate(figure.references):
        line(value, color="0.4", linestyle=_DASHES[k % len(_DASHES)], linewidth=0.8, label=plain(name))


def settle(ax: Axes) -> None:
    """Lay the figure out, so that places in pixels are where they will be; names are placed after it."""
    canvas: Any = ax.get_figure(root=True)
    if canvas.get_layout_engine() is not None:
        canvas.draw_without_rendering()


def dots_of(ax: Axes, points: Sequence[tuple[float, float]]) -> list[Box]:
    """The boxes of some points in pixels, for names to stay clear of."""
    import numpy as np

    known = [point for point in points if all(map(math.isfinite, point))]
    if not known:
        return []
    half = 0.05 * ax.get_figure(root=True).dpi  # type: ignore[union-attr]
    places = ax.transData.transform(np.asarray(known))
    return [(float(x) - half, float(y) - half, float(x) + half, float(y) + half) for x, y in places]


def text_size(ax: Axes, text: str, points: float) -> tuple[float, float]:
    """About how wide and high a text is, in pixels."""
    pixel = ax.get_figure(root=True).dpi / 72  # type: ignore[union-attr]
    lines = text.split("\n")
    return max(map(len, lines)) * points * 0.56 * pixel, len(lines) * points * 1.2 * pixel


def inside_of(ax: Axes) -> Box:
    """The axes in pixels."""
    box = ax.bbox
    return float(box.x0), float(box.y0), float(box.x1), float(box.y1)


def write_at(ax: Axes, text: str, box: Box, **style: Any) -> None:
    """A name in a box of pixels."""
    x, y = ax.transAxes.inverted().transform(((box[0] + box[2]) / 2, (box[1] + box[3]) / 2))
    ax.text(float(x), float(y), text, transform=ax.transAxes, ha="center", va="center", **style)


def name_lines(ax: Axes, ends: Sequence[tuple[str, float, str]]) -> None:
    """Names of lines beside the picture, each at the height at which its line ends and in its colour."""
    low, high = 0.02, 0.98
    places = [float(ax.transAxes.inverted().transform(ax.transData.transform((0.0, y)))[1]) for _, y, _ in ends]
    room = max(size_of(ax)[1] * 72 * 0.72, 1.0)  # points: about the height of the axes in the figure
    for (name, _, colour), at in zip(ends, apart(places, NAMES * 1.25 / room, low, high), strict=True):
        text = wrapped(name, _LONGEST).split("\n")
        short = text[0] if len(text) == 1 else f"{text[0]} .."
        ax.annotate(
            *(short, (1.0, at)),
            xycoords="axes fraction",
            xytext=(5, 0),
            textcoords="offset points",
            color=colour,
            fontsize=NAMES,
            va="center",
            annotation_clip=False,
        )


def name_levels(ax: Axes, levels: Sequence[tuple[str, float]], taken: list[Box]) -> None:
    """Names of level lines inside the picture, above or below their line where they cover no point."""
    left, bottom, right, top = inside_of(ax)
    for name, value in levels:
        if not math.isfinite(value):
            continue
        wide, high = text_size(ax, name, NAMES)
        y = float(ax.transData.transform((0.0, value))[1])
        places = [
            (x, edge, x + wide, edge + high)
            for edge in (y + 2, y - high - 2)
            for x in (right - wide - 4, left + 4, (left + right - wide) / 2, left + 0.25 * (right - left))
        ]
        box = place(places, taken, (left, bottom, right, top))
        taken.append(box)
        write_at(ax, plain(name), box, fontsize=NAMES, color="0.35")


def name_uprights(ax: Axes, marks: Sequence[tuple[str, float]], taken: list[Box]) -> None:
    """Names of upright lines, beside them."""
    left, bottom, right, top = inside_of(ax)
    for name, value in marks:
        wide, high = text_size(ax, name, NAMES)
        x = float(ax.transData.transform((value, 0.0))[0])
        places = [
            (start, edge, start + wide, edge + high)
            for edge in (top - high - 3, bottom + 3, (top + bottom - high) / 2)
            for start in (x + 3, x - wide - 3)
        ]
        box = place(places, taken, (left, bottom, right, top))
        taken.append(box)
        write_at(ax, plain(name), box, fontsize=NAMES, color="0.35")


def named_rows(figure: Any, ax: Axes, names: Sequence[str]) -> None:
    """Names down the side, the first on top."""
    ax.set_yticks(range(len(names)), [plain(name) for name in names])
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(False, axis="y")
    reference_lines(figure, ax.axvline)
    axis_names(ax, figure.y_name, "")
    if figure.references:
        ax.legend(loc="lower right", bbox_to_anchor=(1, 1), borderpad=0)


def side_ticks(axis: Any, side: Side, most: float, upright: bool) -> None:
    """Layers along a side, as many as fit; with several models, each one's name in the middle of its layers."""
    starts, ends = [0, *side.edges], [*side.edges, len(side)]
    step = max(1, math.ceil(len(side) / most))
    places = [k for start, end in zip(starts, ends, strict=True) for k in range(start, end, step)]
    axis.set_ticks(places, [plain(side.labels[k]) for k in places])
    if not side.edges:
        return
    middles = [(start + end - 1) / 2 for start, end in zip(starts, ends, strict=True)]
    names = [wrapped(side.models[start], int(most / len(starts) * 3)) for start in starts]
    axis.remove_overlapping_locs = False
    axis.set_ticks(middles, names, minor=True, rotation=90 if upright else 0, va="center" if upright else "top")
    axis.set_tick_params(which="minor", length=0, pad=16)
