"""Static figures for papers: every figure of a run by itself, in one style and of one width."""

from __future__ import annotations

import math
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.errors import InputError, choose
from layerscope.report.runs import RunRecord, find_runs, read_run
from layerscope.report.values import (
    BarsFigure,
    BoxFigure,
    CurveFigure,
    Figure,
    HeatmapFigure,
    ScatterFigure,
    Side,
    TableFigure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("pdf", "svg", "png")
WIDTH = "6.75in"  # two columns of most conferences
_INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}
_TEXT_HEIGHT = 9.0  # no figure is taller than a page
_MOST_LABELS = 40  # points that can have their whiskers and names beside them
_MARKERS = "osD^vP"
_DASHES = ("--", "-.", ":")
_UNDATED = {"pdf": {"CreationDate": None, "ModDate": None}, "svg": {"Date": None}, "png": {}}


def figures(
    run: str | Path | RunRecord,
    folder: str | Path = "figures",
    *,
    format: str = "pdf",
    width: str | float = WIDTH,
    titles: bool = False,
) -> list[Path]:
    """Draw every figure of a run (or of the runs in a folder) as a file of that width; tables become CSV files.

    `format` is pdf, svg or png, or several with commas. `width` is in inches, or a text with its unit: 6.75in, 8cm,
    85mm, 240pt. Returns the files.
    """
    import matplotlib
    from matplotlib.style import context

    wanted = dict.fromkeys(part.strip() for part in format.split(","))
    formats = [choose("figure format", part, FORMATS) for part in wanted]
    inches = inches_of(width)
    folder = Path(folder)
    if folder.is_file():
        raise InputError(f"{folder} is a file; figures need a folder.")
    runs = [run] if isinstance(run, RunRecord) else [read_run(one) for one in find_runs(run)]
    written = []
    with matplotlib.rc_context(), context(str(resources.files("layerscope.report").joinpath("paper.mplstyle"))):
        for name, figure in _named(runs):
            for one in formats[:1] if isinstance(figure, TableFigure) else formats:
                written.append(_write(figure, folder, name, one, inches, titles))
    return written


def _named(runs: Sequence[RunRecord]) -> Iterator[tuple[str, Figure]]:
    """Every figure with its file's name, which no other has: a second run of one kind is numbered."""
    seen: Counter[str] = Counter()
    for run in runs:
        seen[run.kind] += 1
        kind = run.kind if seen[run.kind] == 1 else f"{run.kind}{seen[run.kind]}"
        for k, figure in enumerate(run.figures):
            facets = [facet for facet in figure.facets.values() if facet not in figure.title]
            yield f"{kind}-{k + 1:02}-{slug(' '.join([figure.title, *facets]))}", figure


def inches_of(width: str | float) -> float:
    """`6.75in`, `8cm`, `85mm`, `240pt` or a number of inches."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*(in|cm|mm|pt)?\s*", str(width))
    try:
        found = float(match.group(1)) * _INCHES[match.group(2) or "in"] if match else 0.0
    except ValueError:
        found = 0.0
    if not 1.0 <= found <= 40.0:
        raise InputError(f"The width {str(width)!r} is no width of 1 to 40 inches; write 6.75in, 8cm, 85mm or 240pt.")
    return found


def slug(text: str) -> str:
    """A file name of plain letters."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60].strip("-") or "figure"


def _write(figure: Figure, folder: Path, name: str, format: str, width: float, titles: bool) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    try:
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(figure, TableFigure):
            import pandas

            path = folder / f"{name}.csv"
            temporary = folder / f".{path.name}"
            pandas.DataFrame(dict(figure.table)).to_csv(temporary, index=False)
        else:
            path = folder / f"{name}.{format}"
            temporary = folder / f".{path.name}"
            draw, height = _DRAW[type(figure)], _height(figure, width)
            canvas = Canvas(figsize=(width, min(height, _TEXT_HEIGHT)))
            FigureCanvasAgg(canvas)
            ax = canvas.add_subplot()
            draw(figure, ax)
            if titles:
                ax.set_title(plain(figure.title))
            canvas.savefig(temporary, format=format, metadata=_UNDATED[format])
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}; give another folder.") from error
    return path


def plain(text: str) -> str:
    """A name as text: matplotlib would read dollar signs as formulas."""
    return text.replace("$", r"\$")


def _height(figure: Any, width: float) -> float:
    if isinstance(figure, HeatmapFigure):
        return max(width * 0.84 * len(figure.rows) / len(figure.columns), 1.6)
    if isinstance(figure, (BarsFigure, BoxFigure)):
        count = len(figure.names) if isinstance(figure, BarsFigure) else len(figure.boxes)
        return 0.9 + 0.26 * count
    return width * 0.6


def _heatmap(figure: HeatmapFigure, ax: Axes) -> None:
    from matplotlib.patches import Rectangle

    ax.grid(False)
    low, high = figure.scale
    values = np.ma.masked_invalid(figure.values)
    image = ax.imshow(values, origin="lower", vmin=low, vmax=high, interpolation="nearest", aspect="equal")
    for i, j in figure.reasons:
        cell = Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor="white", edgecolor="0.6", hatch="/////", linewidth=0)
        ax.add_patch(cell)
    for edges, line in ((figure.rows.edges, ax.axhline), (figure.columns.edges, ax.axvline)):
        for edge in edges:
            line(edge - 0.5, color="white", linewidth=1.5)
    for cut in figure.cuts:
        for line in (ax.axhline, ax.axvline):
            line(cut - 0.5, color="white", linewidth=1.0, linestyle="--")
    width, height = _size(ax)
    _ticks(ax.xaxis, figure.columns, 4.5 * width, upright=False)
    _ticks(ax.yaxis, figure.rows, 5 * height, upright=True)
    for side, name in ((figure.columns, ax.set_xlabel), (figure.rows, ax.set_ylabel)):
        name("layer" if side.edges else plain(side.name))
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.figure.colorbar(image, ax=ax, label=plain(figure.value_name), shrink=0.9)


def _size(ax: Axes) -> tuple[float, float]:
    """The figure around some axes, in inches."""
    width, height = ax.get_figure(root=True).get_size_inches()  # type: ignore[union-attr]
    return float(width), float(height)


def _ticks(axis: Any, side: Side, most: float, upright: bool) -> None:
    """Layers along a side, as many as fit; with several models, each one's name in the middle of its layers."""
    starts = [0, *side.edges]
    ends = [*side.edges, len(side)]
    step = max(1, math.ceil(len(side) / most))
    places = [k for start, end in zip(starts, ends, strict=True) for k in range(start, end, step)]
    axis.set_ticks(places, [plain(side.labels[k]) for k in places])
    if not side.edges:
        return
    middles = [(start + end - 1) / 2 for start, end in zip(starts, ends, strict=True)]
    names = [_wrapped(side.models[start], int(most / len(starts) * 3)) for start in starts]
    axis.remove_overlapping_locs = False
    axis.set_ticks(middles, names, minor=True, rotation=90 if upright else 0, va="center" if upright else "top")
    axis.set_tick_params(which="minor", length=0, pad=16)


def _wrapped(text: str, width: int) -> str:
    """A name on several lines, so that it fits into so many letters."""
    return plain("\n".join(textwrap.wrap(text, max(width, 8)) or [text]))


def _curve(figure: CurveFigure, ax: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    for k, one in enumerate(figure.series):
        named = plain(one.name) if len(figure.series) > 1 else None
        ax.plot(one.x, one.y, marker=_MARKERS[k % len(_MARKERS)], label=named, color=f"C{k % 7}")
        if one.low is not None and one.high is not None:
            ax.fill_between(one.x, one.low, one.high, color=f"C{k % 7}", alpha=0.2, linewidth=0)
    _references(figure, ax.axhline)
    for name, value in figure.marks:
        ax.axvline(value, color="0.4", linestyle=":", linewidth=0.8, label=plain(name))
    if all(x == int(x) for one in figure.series for x in one.x):
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    _names(ax, figure.x_name, figure.y_name)
    if len(figure.series) > 1 or figure.references or figure.marks:
        ax.legend()


def _bars(figure: BarsFigure, ax: Axes) -> None:
    places = np.arange(len(figure.names))
    errors = None
    if figure.low is not None and figure.high is not None:
        errors = np.abs(np.asarray([figure.low, figure.high]) - np.asarray(figure.values))
    ax.barh(places, figure.values, height=0.65, xerr=errors)
    _rows(figure, ax, figure.names)


def _box(figure: BoxFigure, ax: Axes) -> None:
    for k, values in enumerate(figure.boxes.values()):
        found = np.asarray([v for v in values if np.isfinite(v)])
        if len(found) > 2:
            ax.boxplot([found], positions=[k], widths=0.5, orientation="horizontal", showfliers=False, whis=(0, 100))
        ax.plot(found, np.full(len(found), k), "o", color="C1", alpha=0.8)
    _rows(figure, ax, list(figure.boxes))


def _rows(figure: BarsFigure | BoxFigure, ax: Axes, names: Sequence[str]) -> None:
    """Names down the side, the first on top."""
    ax.set_yticks(range(len(names)), [plain(name) for name in names])
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(False, axis="y")
    _references(figure, ax.axvline)
    _names(ax, figure.y_name, "")
    if figure.references:
        ax.legend(loc="lower right", bbox_to_anchor=(1, 1), borderpad=0)


def _scatter(figure: ScatterFigure, ax: Axes) -> None:
    names = list(dict.fromkeys(point.series for point in figure.points))
    every = not figure.stressed and len(figure.points) <= _MOST_LABELS
    for k, name in enumerate(names):
        own = sorted((p for p in figure.points if p.series == name), key=lambda p: p.x)
        x, y = [p.x for p in own], [p.y for p in own]
        large = name in figure.stressed
        style: dict[str, Any] = {"marker": _MARKERS[k % len(_MARKERS)], "color": f"C{k % 7}", "label": plain(name)}
        ax.plot(x, y, linestyle="-" if name in figure.joined else "", markersize=7 if large else 3.5, **style)
        for p in own:
            if large or len(figure.points) <= _MOST_LABELS:
                ax.plot([p.x, p.x], [p.low, p.high], color=f"C{k % 7}", linewidth=0.8, alpha=1.0 if large else 0.5)
            if large or every:
                ax.annotate(plain(p.label), (p.x, p.y), fontsize=6, xytext=(4, -9), textcoords="offset points")
    _references(figure, ax.axhline)
    _names(ax, figure.x_name, figure.y_name)
    if len(names) > 1 or figure.references:
        ax.legend()


def _references(figure: Any, line: Callable[..., Any]) -> None:
    """Lines to compare with, each of its own dashes."""
    for k, (name, value) in enumerate(figure.references):
        line(value, color="0.4", linestyle=_DASHES[k % len(_DASHES)], linewidth=0.8, label=plain(name))


def _names(ax: Axes, x: str, y: str) -> None:
    width, height = _size(ax)
    ax.set_xlabel(_wrapped(x, int(width * 14)))
    ax.set_ylabel(_wrapped(y, int(height * 12)))


_DRAW: dict[type[Figure], Callable[[Any, Any], None]] = {
    HeatmapFigure: _heatmap,
    CurveFigure: _curve,
    BarsFigure: _bars,
    BoxFigure: _box,
    ScatterFigure: _scatter,
}
