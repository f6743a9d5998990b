"""Figures drawn with matplotlib, in one style: into a file, into the caller's axes, or several side by side.

The first functions find places for names in a picture, so that none covers a point or another name. The last ones draw
what several kinds of figures have in common.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.errors import InputError, choose
from layerscope.store import output_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from layerscope.drawing.figure import Figure, HeatmapAxis


Box = tuple[float, float, float, float]  # left, bottom, right, top
Line = tuple[tuple[float, float], tuple[float, float]]  # its ends


def overlap(one: Box, other: Box) -> float:
    """Return the area that two boxes share."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    return wide * high if wide > 0 and high > 0 else 0.0


def boxes_around(x: float, y: float, width: float, height: float, gap: float) -> list[Box]:
    """Return boxes for a name of that size around a point: beside, above and below it, then farther away."""
    places: list[Box] = []
    for far in (1.0, 2.0, 3.5, 5.0):
        d = gap * far
        for left, bottom in (
            (x + d, y + d / 2),
            (x - d - width, y + d / 2),
            (x + d, y - d / 2 - height),
            (x - d - width, y - d / 2 - height),
            (x - width / 2, y + d),
            (x - width / 2, y - d - height),
        ):
            places.append((left, bottom, left + width, bottom + height))
    return places


def place(places: Sequence[Box], occupied: Sequence[Box], inside: Box) -> Box:
    """Return the first of the places that covers nothing and lies inside; else the one that covers least."""

    def fault(box: Box) -> float:
        area = (box[2] - box[0]) * (box[3] - box[1])
        return sum(overlap(box, other) for other in occupied) + 2 * (area - overlap(box, inside))

    return min(places, key=fault)  # the first of equals


def is_free(box: Box, occupied: Sequence[Box], inside: Box) -> bool:
    """Return whether a box covers nothing and lies inside another one, except for a tenth of it."""
    area = (box[2] - box[0]) * (box[3] - box[1])
    return overlap(box, inside) > 0.9 * area and sum(overlap(box, other) for other in occupied) < 0.1 * area


def crosses(line: Line, box: Box) -> bool:
    """Return whether a straight line passes through a box."""
    (x, y), (dx, dy) = line[0], (line[1][0] - line[0][0], line[1][1] - line[0][1])
    enters, leaves = 0.0, 1.0  # shares of the line's length
    for start, along, low, high in ((x, dx, box[0], box[2]), (y, dy, box[1], box[3])):
        if along == 0:
            if not low < start < high:
                return False
        else:
            near, far = sorted(((low - start) / along, (high - start) / along))
            enters, leaves = max(enters, near), min(leaves, far)
    return enters < leaves


def uncrossed(places: Sequence[Box], lines: Sequence[Line]) -> list[Box]:
    """Return the places through which no line passes."""
    return [box for box in places if not any(crosses(line, box) for line in lines)]


def boxes_in(inside: Box, x: float, y: float, width: float, height: float) -> list[Box]:
    """Return boxes for a name of that size all over another box, those that lie nearest to a point first."""
    steps = [k / 24 for k in range(25)]
    lefts = [inside[0] + k * (inside[2] - inside[0] - width) for k in steps]
    bottoms = [inside[1] + k * (inside[3] - inside[1] - height) for k in steps]
    boxes = [(left, bottom, left + width, bottom + height) for left in lefts for bottom in bottoms]
    return sorted(boxes, key=lambda box: math.dist((x, y), ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)))


def spread_out(centres: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return positions along a line, as near to the given ones as a distance of `gap` between neighbours allows.

    They lie between `low` and `high`, unless there are too many for that.
    """
    order = sorted(range(len(centres)), key=lambda k: centres[k])
    spread = [min(max(centres[k], low), high) for k in order]
    for k in range(1, len(spread)):
        spread[k] = max(spread[k], spread[k - 1] + gap)
    limit = max(high, low + gap * (len(spread) - 1))
    for k in range(len(spread) - 1, -1, -1):
        spread[k] = min(spread[k], limit)
        limit = spread[k] - gap
    placed = [0.0] * len(centres)
    for k, value in zip(order, spread, strict=True):
        placed[k] = value
    return placed


FORMATS = ("pdf", "svg", "png")
MARKERS = "osD^vP"
NAMES = 6.5  # points: the letters of names in a picture
MOST_NAMED = 8  # lines that can have their names beside them; of more there is a legend
_DASHES = ("--", "-.", ":")
_BETWEEN = (8, 4, 12, *range(1, 16))  # sixteenths of the axes at which a line's name is tried, the middle first
_UNDATED = {"pdf": {"CreationDate": None, "ModDate": None}, "svg": {"Date": None}, "png": {}}
_TALLEST = 9.0  # inches: no figure is taller than a page
_BESIDE = 0.3  # of the width: names that need more have a legend below the picture
_LETTER = 0.56  # width of a letter on average, by the height of the letters
_TICKS, _LEGEND = 7.0, 7.0  # points: the letters of ticks and of legends, as in paper.mplstyle


@contextmanager
def style() -> Iterator[None]:
    """Set matplotlib to small sans-serif letters, thin lines and colour-blind-safe colours while the block runs."""
    import matplotlib
    from matplotlib.style import context

    from layerscope.drawing.notebook import prepare

    prepare()
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
    """Draw a figure into `ax`, or into axes of its own, and write it to `path` (PNG, SVG or PDF) if one is given."""
    with style():
        ax = _axes(1, *figure.size(width), shown=path is None)[0] if ax is None else ax
        if title:  # before the drawing, which wraps it and finds places for names below it
            ax.set_title(plain(figure.title))
        figure.draw(ax)
        if path is not None:
            write(ax.figure, path, tight=width is None)  # a figure of a given width keeps it
    return ax


def draw_panels(figures: Sequence[Figure], path: str | Path | None = None) -> list[Axes]:
    """Draw several figures side by side; heat maps among them have one colour scale with one bar."""
    from layerscope.drawing.figures.heatmap import HeatmapFigure

    if not figures:
        raise InputError("There is nothing to draw: no figure was given.")
    maps = [figure for figure in figures if isinstance(figure, HeatmapFigure)]
    scale = (min(m.scale[0] for m in maps), max(m.scale[1] for m in maps)) if maps else (0.0, 1.0)
    sizes = [figure.size() for figure in figures]
    with style():
        wide, high = sum(size[0] for size in sizes), max(size[1] for size in sizes)
        panels = _axes(len(figures), wide, high, shown=path is None)
        image = None
        for figure, ax in zip(figures, panels, strict=True):
            ax.set_title(plain(figure.title))
            if isinstance(figure, HeatmapFigure):
                image = replace(figure, scale=scale).draw(ax, bar=False)
            else:
                figure.draw(ax)
        if image is not None:
            holder: Any = panels[0].figure
            holder.colorbar(image, ax=panels, shrink=0.9)
        if path is not None:
            write(panels[0].figure, path)
    return panels


def write(canvas: Any, path: str | Path, tight: bool = True) -> None:
    """Save matplotlib's figure, whole or not at all, in the format of the path's ending."""
    path = Path(path)
    format = choose("figure format", path.suffix.lower().lstrip("."), FORMATS)
    with output_file(path) as temporary:
        canvas.savefig(temporary, format=format, metadata=_UNDATED[format], bbox_inches="tight" if tight else None)


def markup(figure: Figure) -> str:
    """Return the figure as SVG for pages and notebooks. Letters are drawn as shapes, so that no name becomes markup."""
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


def _axes(count: int, width: float, height: float, shown: bool = False) -> list[Axes]:
    """Return empty axes side by side on a new figure of that size in inches, `shown` in a notebook or nowhere."""
    from layerscope.drawing.notebook import NotebookAxes, new_canvas

    canvas = new_canvas(width, min(height, _TALLEST), shown)
    return [canvas.add_subplot(1, count, k + 1, axes_class=NotebookAxes) for k in range(count)]


# Parts that several kinds of figures share.


def plain(text: str) -> str:
    """Return a text with its dollar signs escaped, which matplotlib would read as formulas."""
    return text.replace("$", r"\$")


def wrapped(text: str, width: int) -> str:
    """Return a name broken into lines of at most `width` letters."""
    return plain("\n".join(textwrap.wrap(text, max(width, 8)) or [text]))


def size_of(ax: Axes) -> tuple[float, float]:
    """Return width and height in inches of the figure that holds the axes."""
    width, height = ax.get_figure(root=True).get_size_inches()  # type: ignore[union-attr]
    return float(width), float(height)


def reference_lines(figure: Any, line: Callable[..., Any]) -> None:
    """Draw a figure's reference lines, each with its own dashes."""
    for k, (name, value) in enumerate(figure.references):
        line(value, color="0.4", linestyle=_DASHES[k % len(_DASHES)], linewidth=0.8, label=plain(name))


def lay_out(ax: Axes) -> None:
    """Run the figure's layout, so that positions in pixels are final; names are placed after it.

    The title and the names of axes are broken into lines where they are longer than the figure.
    """
    canvas: Any = ax.get_figure(root=True)
    if canvas.get_layout_engine() is None:
        return
    bars = [image.colorbar.ax for image in ax.images if image.colorbar is not None]
    for _ in range(3):  # lines that are broken move the axes, and others may then be too long
        canvas.draw_without_rendering()
        if not sum([_wrap_names(part, len(canvas.axes) - len(bars) > 1) for part in (ax, *bars)]):
            return


def _wrap_names(ax: Axes, beside_others: bool) -> int:
    """Break names of axes and the title where they would leave the figure or reach into others; return how many."""
    canvas: Any = ax.get_figure(root=True)
    box, count = ax.bbox, 0
    wide = 2 * min((box.x0 + box.x1) / 2, canvas.bbox.width - (box.x0 + box.x1) / 2)
    high = 2 * min((box.y0 + box.y1) / 2, canvas.bbox.height - (box.y0 + box.y1) / 2)
    wide = min(wide, 1.2 * box.width) if beside_others else wide
    for text, room in ((ax.xaxis.label, wide), (ax.title, wide), (ax.yaxis.label, high)):
        extent = text.get_window_extent()
        length = extent.height if text is ax.yaxis.label else extent.width
        if length > room and text.get_text():
            letters = max(map(len, text.get_text().split("\n")))
            before, whole = text.get_text(), " ".join(text.get_text().split())
            text.set_text("\n".join(textwrap.wrap(whole, max(int(letters * room / length) - 1, 4))))
            count += text.get_text() != before
    return count


def letters_in(inches: float, points: float) -> int:
    """Return how many letters of a size stand beside one another in so many inches."""
    return max(int(inches * 72 / (points * _LETTER)), 1)


def names_fit_beside(ax: Axes, names: Sequence[str]) -> bool:
    """Return whether names are short enough to stand beside the picture."""
    return max(map(len, names), default=0) <= letters_in(size_of(ax)[0] * _BESIDE, NAMES)


def legend_below(ax: Axes, names: Sequence[str]) -> None:
    """Write a legend of the lines with these names below the picture, which keeps its height."""
    from matplotlib.transforms import ScaledTranslation

    lines = [line for name in dict.fromkeys(names) for line in ax.get_lines() if line.get_label() == plain(name)]
    if not lines:
        return
    canvas: Any = ax.get_figure(root=True)
    if canvas.get_layout_engine() is None:  # somebody's own figure: nothing is known of the room around the axes
        ax.legend(handles=lines)
        return
    lay_out(ax)
    room = canvas.bbox.width / canvas.dpi - ax.bbox.x0 / canvas.dpi - 0.5  # inches, without the lines' samples
    texts = ["\n".join(textwrap.wrap(str(line.get_label()), letters_in(room, _LEGEND))) for line in lines]
    longest = max(len(part) for text in texts for part in text.split("\n"))
    columns = max(int((room + 0.5) / (longest * _LEGEND * _LETTER / 72 + 0.55)), 1)
    label = ax.xaxis.label.get_window_extent()
    below = (ax.bbox.y0 - min(label.y0, ax.bbox.y0)) / canvas.dpi + (0.06 if ax.get_xlabel() else 0.25)
    moved = ax.transAxes + ScaledTranslation(0, -below, canvas.dpi_scale_trans)
    legend = ax.legend(
        *(lines, texts),
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=moved,
        ncols=columns,
        borderaxespad=0,
    )
    legend.get_window_extent(canvas.canvas.get_renderer())  # places its parts; the layout waits for the new size
    width, height = size_of(ax)
    if len(canvas.axes) == 1:  # else the axes beside it would grow
        canvas.set_size_inches(width, min(height + legend.get_window_extent().height / canvas.dpi + 0.06, _TALLEST))
    lay_out(ax)


def point_boxes(ax: Axes, points: Sequence[tuple[float, float]]) -> list[Box]:
    """Return the boxes of points in pixels, which names must not cover."""
    import numpy as np

    finite = [point for point in points if all(map(math.isfinite, point))]
    if not finite:
        return []
    half = 0.05 * ax.get_figure(root=True).dpi  # type: ignore[union-attr]
    places = ax.transData.transform(np.asarray(finite))
    return [(float(x) - half, float(y) - half, float(x) + half, float(y) + half) for x, y in places]


def lines_drawn(ax: Axes) -> list[Line]:
    """Return the pieces of all lines and whiskers in the axes in pixels, which must not pass through names."""
    import numpy as np

    found: list[Line] = []
    for line in ax.get_lines():
        if line.get_linestyle() == "None":
            continue
        places = line.get_transform().transform(np.asarray(line.get_xydata(), dtype=float))
        ends = zip(places[:-1].tolist(), places[1:].tolist(), strict=True)
        found += [((a[0], a[1]), (b[0], b[1])) for a, b in ends if all(map(math.isfinite, (*a, *b)))]
    return found


def text_size(ax: Axes, text: str, points: float) -> tuple[float, float]:
    """Return how wide and high a text is, in pixels, with a little air above and below."""
    canvas: Any = ax.get_figure(root=True)
    drawn = canvas.text(0, 0, text, fontsize=points)
    extent = drawn.get_window_extent()
    drawn.remove()
    return float(extent.width), max(float(extent.height), len(text.split("\n")) * points * 1.2 * canvas.dpi / 72)


def axes_box(ax: Axes) -> Box:
    """Return the box of the axes in pixels."""
    box = ax.bbox
    return float(box.x0), float(box.y0), float(box.x1), float(box.y1)


def write_at(ax: Axes, text: str, box: Box, **style: Any) -> None:
    """Write a text into a box given in pixels."""
    x, y = ax.transAxes.inverted().transform(((box[0] + box[2]) / 2, (box[1] + box[3]) / 2))
    ax.text(float(x), float(y), text, transform=ax.transAxes, ha="center", va="center", **style)


def name_lines(ax: Axes, ends: Sequence[tuple[str, float, str]]) -> None:
    """Write the names of lines beside the picture, each in its colour and at the height at which its line ends."""
    low, high = 0.02, 0.98
    places = [float(ax.transAxes.inverted().transform(ax.transData.transform((0.0, y)))[1]) for _, y, _ in ends]
    room = max(size_of(ax)[1] * 72 * 0.72, 1.0)  # points: about the height of the axes in the figure
    for (name, _, colour), at in zip(ends, spread_out(places, NAMES * 1.25 / room, low, high), strict=True):
        ax.annotate(
            *(plain(name), (1.0, at)),
            xycoords="axes fraction",
            xytext=(5, 0),
            textcoords="offset points",
            color=colour,
            fontsize=NAMES,
            va="center",
            annotation_clip=False,
        )


def name_levels(ax: Axes, levels: Sequence[tuple[str, float]], occupied: list[Box]) -> list[str]:
    """Write the names of level lines above or below them where they cover nothing; add their boxes to `occupied`.

    Returns the names that have no such place.
    """
    left, bottom, right, top = axes_box(ax)
    homeless, lines = [], lines_drawn(ax)
    for name, value in levels:
        if not math.isfinite(value):
            continue
        wide, high = text_size(ax, plain(name), NAMES)
        y = float(ax.transData.transform((0.0, value))[1])
        places = [
            (x, edge, x + wide, edge + high)
            for edge in (y + 2, y - high - 2)
            for x in (
                right - wide - 4,
                left + 4,
                *(left + k / 16 * (right - left - wide) for k in (8, 4, 12, *range(1, 16))),
            )
        ]
        free = uncrossed(places, lines)
        box = place(free or places, occupied, (left, bottom, right, top))
        if free and is_free(box, occupied, (left, bottom, right, top)):
            occupied.append(box)
            write_at(ax, plain(name), box, fontsize=NAMES, color="0.35")
        else:
            homeless.append(name)
    return homeless


def name_uprights(ax: Axes, marks: Sequence[tuple[str, float]], occupied: list[Box]) -> list[str]:
    """Write the names of upright lines beside them where they cover nothing, and add their boxes to `occupied`.

    Returns the names that have no such place.
    """
    left, bottom, right, top = axes_box(ax)
    homeless, lines = [], lines_drawn(ax)
    for name, value in marks:
        wide, high = text_size(ax, plain(name), NAMES)
        x = float(ax.transData.transform((value, 0.0))[0])
        places = [
            (start, edge, start + wide, edge + high)
            for edge in (
                top - high - 3,
                bottom + 3,
                *(bottom + k / 16 * (top - bottom - high) for k in (8, *range(1, 16))),
            )
            for start in (x + 3, x - wide - 3)
        ]
        free = uncrossed(places, lines)
        box = place(free or places, occupied, (left, bottom, right, top))
        if free and is_free(box, occupied, (left, bottom, right, top)):
            occupied.append(box)
            write_at(ax, plain(name), box, fontsize=NAMES, color="0.35")
        else:
            homeless.append(name)
    return homeless


def row_names(names: Sequence[str], width: float) -> list[str]:
    """Return names for the left side of a figure of that width, broken into lines so that they take half of it."""
    return [wrapped(name, letters_in(0.45 * width, _TICKS)) for name in names]


def rows_size(names: Sequence[str], width: float | None) -> tuple[float, float]:
    """Return the size of a figure with a row for each name; rows are as high as the name with the most lines needs."""
    wide = 5.6 if width is None else width
    most = max((name.count("\n") for name in row_names(names, wide)), default=0)
    return wide, 0.9 + (0.26 + 0.12 * most) * len(names)


def named_rows(figure: Any, ax: Axes, names: Sequence[str]) -> None:
    """Write names down the left side, the first on top, with the figure's reference lines and axis name."""
    ax.set_yticks(range(len(names)), row_names(names, size_of(ax)[0]))
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(False, axis="y")
    reference_lines(figure, ax.axvline)
    ax.set_xlabel(plain(figure.y_name))
    legend_below(ax, [name for name, _ in figure.references])
    lay_out(ax)


def side_ticks(axis: Any, side: HeatmapAxis, inches: float, upright: bool) -> bool:
    """Label a heat map's axis of about that length with layers, and with each of several models beside its layers.

    Returns whether names of models take more than a third of the figure, so that it needs shorter ones.
    """
    starts, ends = [0, *side.edges], [*side.edges, len(side)]
    widest = max(map(len, side.labels), default=1)
    high, wide = 1.6 * _TICKS, (widest + 1.5) * _TICKS * _LETTER  # points that a label takes
    step = max(1, math.ceil(len(side) * (high if upright else wide) / (inches * 72)))
    # The next model begins with a label of its own.
    lasts = [end if end == len(side) else end - step + 1 for end in ends]
    places = [k for start, last in zip(starts, lasts, strict=True) for k in range(start, max(last, start + 1), step)]
    axis.set_ticks(places, [plain(side.labels[k]) for k in places])
    if not side.edges:
        return False
    middles = [(start + end - 1) / 2 for start, end in zip(starts, ends, strict=True)]
    least = min(end - start for start, end in zip(starts, ends, strict=True)) * inches / len(side)
    names, along = _block_names([side.models[start] for start in starts], least)
    axis.remove_overlapping_locs = False
    turned = upright == along
    anchor = {"va": "center", "ha": "right"} if upright else {"va": "top", "ha": "center"}
    axis.set_ticks(middles, names, minor=True, rotation=90 if turned else 0, **anchor)
    axis.set_tick_params(which="minor", length=0, pad=_TICKS * (0.8 * widest if upright else 1.3) + 6)
    longest = max(len(line) for name in names for line in name.split("\n"))
    return not along and longest > letters_in(size_of(axis.axes)[0] / 3, _TICKS)


def _block_names(names: Sequence[str], inches: float) -> tuple[list[str], bool]:
    """Return models' names in lines for blocks of that length, and whether they stand along the axis or across it."""
    letters = letters_in(inches, _TICKS)
    along = [textwrap.wrap(name, letters, break_long_words=False) for name in names]
    if all(len(lines) <= 3 and max(map(len, lines), default=0) <= letters for lines in along):
        return [plain("\n".join(lines)) for lines in along], True
    most = max(int(inches * 72 / (1.3 * _TICKS)), 1)  # lines across
    across = []
    for name in names:
        width = next(w for w in range(12, 10_000) if len(textwrap.wrap(name, w)) <= most)
        across.append(plain("\n".join(textwrap.wrap(name, width))))
    return across, False
