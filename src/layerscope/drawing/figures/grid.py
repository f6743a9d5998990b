"""Grids of panels, as papers have them: models by tasks, every panel a heat map, curves, points or boxes."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from layerscope.drawing.figure import NAN, Columns, Figure
from layerscope.drawing.render import MARKERS, plain
from layerscope.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CELL, X_TICK, Y_TICK = "cell", "x tick", "y tick"  # of heat maps
LINE, LEVEL, POINT, FIT, BOX = "line", "level", "point", "fit", "box"
REASON = "reason"  # why a panel is empty
RIGHT, DASHED = "right", "dashed"  # labels of lines: on a panel's second axis, on its right; drawn with dashes
_MARKS = (CELL, X_TICK, Y_TICK, LINE, LEVEL, POINT, FIT, BOX, REASON)
_BY_COLUMN = ("x_names", "y_names")
_LARGEST = 2000  # cells along one side
_MOST_TICKS = 7
_LINE_HEIGHT = 0.09  # inches of a label on an upright axis
_MOST_LABELS = 25  # points of a panel that can have their labels beside them


@dataclass(frozen=True)
class Item:
    """Something in a panel: a cell of a heat map, a point of a line, a level, a value of a box, or a reason."""

    row: int
    column: int
    mark: str
    name: str = ""
    x: float = NAN
    y: float = NAN
    value: float = NAN
    low: float = NAN
    high: float = NAN
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class GridFigure(Figure):
    """Panels in rows and columns, with one legend and one colour scale for all of them.

    `x_names` and `y_names` have a name for each column, where columns show different things.
    """

    kind: ClassVar[str] = "grid"
    row_names: tuple[str, ...]
    column_names: tuple[str, ...]
    items: tuple[Item, ...]
    x_name: str = ""
    y_name: str = ""
    right_name: str = ""
    value_name: str = ""
    scale: tuple[float, float] | None = None
    x_names: tuple[str, ...] = ()
    y_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for names in (self.x_names, self.y_names):
            if names and len(names) != len(self.column_names):
                raise ValueError(f"there are {len(names)} names of axes for {len(self.column_names)} columns")
        rows, columns = range(len(self.row_names)), range(len(self.column_names))
        for item in self.items:
            if item.row not in rows or item.column not in columns or item.mark not in _MARKS:
                raise ValueError(f"the panel {item.row}, {item.column} cannot have a {str(item.mark)[:40]!r}")
            if item.mark == CELL and not all(0 <= v < _LARGEST and v == int(v) for v in (item.x, item.y)):
                raise ValueError(f"a cell stands at {item.x}, {item.y}, and cells are counted from 0")

    def data(self) -> Columns:
        return {f.name: [getattr(item, f.name) for item in self.items] for f in fields(Item)}

    def settings(self) -> dict[str, Any]:
        names = {name: getattr(self, name) for name in ("x_name", "y_name", "right_name", "value_name")}
        sides = {"row_names": list(self.row_names), "column_names": list(self.column_names)}
        sides |= {name: list(own) for name in _BY_COLUMN if (own := getattr(self, name))}
        return {**names, **sides, **({} if self.scale is None else {"scale": list(self.scale)})}

    @classmethod
    def restored(cls, words: Mapping[str, Any], settings: Mapping[str, Any], data: Columns) -> Self:
        items = tuple(Item(**dict(zip(data, values, strict=True))) for values in zip(*data.values(), strict=True))
        options: dict[str, Any] = {n: settings[n] for n in ("x_name", "y_name", "right_name", "value_name")}
        options |= {name: tuple(settings[name]) for name in ("row_names", "column_names")}
        options |= {name: tuple(settings[name]) for name in _BY_COLUMN if name in settings}
        options["scale"] = tuple(settings["scale"]) if "scale" in settings else None
        return cls(**words, **options, items=items)

    def size(self, width: float | None = None) -> tuple[float, float]:
        widest, highest = (self._most(X_TICK), self._most(Y_TICK)) if self.scale else (0, 0)
        wide, high = (max(1.5, 0.03 * widest), max(1.5, 0.03 * highest)) if widest else (2.1, 1.7)
        if widest and _words([item for item in self.items if item.mark == Y_TICK]):  # every one is written
            high = max(high, _LINE_HEIGHT * highest)
        if any(item.mark == POINT and item.label for item in self.items):
            wide, high = 3.4, 2.6
        natural = len(self.column_names) * wide + 1.6, len(self.row_names) * high + 0.9
        return natural if width is None else (width, max(width * natural[1] / natural[0], 1.6))

    def draw(self, ax: Axes) -> None:
        """Draw every panel into a part of the axes, which are hidden."""
        spec = ax.get_subplotspec()
        if spec is None:
            raise InputError("A grid of panels needs axes of its own: give none, or one that add_subplot made.")
        ax.set_axis_off()
        canvas: Any = ax.get_figure(root=True)
        rows, columns = len(self.row_names), len(self.column_names)
        places = spec.subgridspec(rows, columns)
        panels = [[canvas.add_subplot(places[i, j]) for j in range(columns)] for i in range(rows)]
        by_panel: dict[tuple[int, int], list[Item]] = {}
        for item in self.items:
            by_panel.setdefault((item.row, item.column), []).append(item)
        handles: dict[str, Any] = {}
        images: list[Any] = []
        for i in range(rows):
            for j in range(columns):
                self._panel(panels[i][j], by_panel.get((i, j), []), handles, images)
                if i == 0:
                    panels[i][j].set_title(plain(self.column_names[j]), fontsize=7)
                lowest = i == rows - 1
                if lowest and (x_name := self.x_names[j] if self.x_names else self.x_name):
                    panels[i][j].set_xlabel(plain(x_name), fontsize=6)
                y_name = self.y_names[j] if self.y_names else self.y_name
                if j == 0 or self.y_names:
                    name = "\n".join(part for part in (self.row_names[i] if j == 0 else "", y_name) if part)
                    panels[i][j].set_ylabel(plain(name), fontsize=6.5)
        flat = [panel for line in panels for panel in line]
        if images:
            bar = canvas.colorbar(images[0], ax=flat, shrink=min(1.0, 1.6 / rows), pad=0.01, aspect=25)
            bar.set_label(plain(self.value_name), fontsize=6.5)
            bar.ax.tick_params(labelsize=5.5)
        if handles and not (len(handles) == 1 and not next(iter(handles))):
            columns_of_names = max(1, int(self.size()[0] / 1.6))
            canvas.legend(handles.values(), map(plain, handles), loc="outside lower center", ncols=columns_of_names)

    def _most(self, mark: str) -> int:
        counts: dict[tuple[int, int], int] = {}
        for item in self.items:
            if item.mark == mark:
                counts[item.row, item.column] = counts.get((item.row, item.column), 0) + 1
        return max(counts.values(), default=0)

    @property
    def _styles(self) -> dict[str, int]:
        """A number for the colour of every name, in the order in which names occur."""
        marks = (LINE, POINT, BOX, FIT)
        return {name: k for k, name in enumerate(dict.fromkeys(i.name for i in self.items if i.mark in marks))}

    def _panel(self, ax: Any, items: Sequence[Item], handles: dict[str, Any], images: list[Any]) -> None:
        """Draw the items of one panel; handles for the legend and images for the colour bar are added to."""
        ax.tick_params(labelsize=5.5)
        reasons = [item.label for item in items if item.mark == REASON]
        marks = {item.mark for item in items}
        if CELL in marks:
            images.append(self._heatmap(ax, items))
        elif reasons:
            _empty(ax, reasons[0])
        ticks = [item for item in items if item.mark == X_TICK]
        if ticks and CELL not in marks:
            ax.set_xticks([t.x for t in ticks], [plain(t.label) for t in ticks], fontsize=5, rotation=20)
        styles = self._styles
        self._lines(ax, items, styles, handles)
        for item in items:
            if item.mark == LEVEL:
                handles.setdefault(item.name, ax.axhline(item.y, color="0.35", linestyle=":", linewidth=0.9))
        self._points(ax, [i for i in items if i.mark == POINT], styles, handles)
        _boxes(ax, [i for i in items if i.mark == BOX], styles, handles)

    def _lines(self, ax: Any, items: Sequence[Item], styles: Mapping[str, int], handles: dict[str, Any]) -> None:
        """Draw curves and fitted lines, some of them on a second axis on the right."""
        right = None
        for name in dict.fromkeys(item.name for item in items if item.mark in (LINE, FIT)):
            points = sorted((i for i in items if i.mark in (LINE, FIT) and i.name == name), key=lambda i: i.x)
            place = ax
            if points[0].label == RIGHT:
                right = right or ax.twinx()
                place = right
            x = [p.x for p in points]
            style: dict[str, Any] = {"color": f"C{styles[name] % 7}", "linewidth": 0.9}
            fitted = points[0].mark == FIT
            if fitted or points[0].label == DASHED:
                style["linestyle"] = "--"
            if not fitted:
                style |= {"marker": MARKERS[styles[name] % len(MARKERS)], "markersize": 1.8}
            (drawn,) = place.plot(x, [p.y for p in points], **style)
            if not all(math.isnan(p.low) for p in points):
                place.fill_between(
                    x, [p.low for p in points], [p.high for p in points], alpha=0.15, color=style["color"]
                )
            if fitted:
                ax.text(0.03, 0.03, plain(points[0].label), transform=ax.transAxes, fontsize=5.5)
            else:
                handles.setdefault(name, drawn)
        if right is not None:
            right.tick_params(labelsize=5.5)
            right.grid(False)
            right.spines["right"].set_visible(True)
            right.set_ylabel(plain(self.right_name), fontsize=6)

    def _points(self, ax: Any, points: Sequence[Item], styles: Mapping[str, int], handles: dict[str, Any]) -> None:
        for name in dict.fromkeys(p.name for p in points):
            own = [p for p in points if p.name == name]
            style = {"color": f"C{styles[name] % 7}", "marker": MARKERS[styles[name] % len(MARKERS)]}
            drawn = ax.scatter([p.x for p in own], [p.y for p in own], s=9, linewidths=0, **style)
            handles.setdefault(name, drawn)
            for p in own:
                if not math.isnan(p.low):
                    ax.plot([p.x, p.x], [p.low, p.high], color=style["color"], linewidth=0.6, alpha=0.6)
        for p in points if len(points) <= _MOST_LABELS else ():
            if p.label:
                ax.annotate(plain(p.label), (p.x, p.y), (2, 2), textcoords="offset points", fontsize=4.5)

    def _heatmap(self, ax: Any, items: Sequence[Item]) -> Any:
        from matplotlib.patches import Rectangle

        ax.grid(False)
        cells = [i for i in items if i.mark == CELL]
        shape = int(max(i.y for i in cells)) + 1, int(max(i.x for i in cells)) + 1
        values = np.full(shape, np.nan)
        for item in cells:
            values[int(item.y), int(item.x)] = item.value
        low, high = self.scale or (0.0, 1.0)
        image = ax.imshow(np.ma.masked_invalid(values), origin="lower", vmin=low, vmax=high, aspect="equal")
        for item in cells:
            if math.isnan(item.value) and item.label:
                corner = (item.x - 0.5, item.y - 0.5)
                ax.add_patch(Rectangle(corner, 1, 1, facecolor="white", edgecolor="0.7", hatch="////", linewidth=0))
        for axis, mark, line in ((ax.xaxis, X_TICK, ax.axvline), (ax.yaxis, Y_TICK, ax.axhline)):
            ticks = [i for i in items if i.mark == mark]
            models = list(dict.fromkeys(t.name for t in ticks))
            if len(models) > 1:
                groups = [[t.x for t in ticks if t.name == model] for model in models]
                for group in groups[1:]:
                    line(group[0] - 0.5, color="white", linewidth=0.8)
                upright = {} if mark == Y_TICK else {"rotation": 90}
                axis.set_ticks([sum(g) / len(g) for g in groups], [plain(m) for m in models], fontsize=5, **upright)
            else:
                words = _words(ticks)
                step = 1 if words else max(1, -(-len(ticks) // _MOST_TICKS))
                upright = {"rotation": 90} if words and mark == X_TICK else {}
                labels = [plain(t.label) for t in ticks[::step]]
                axis.set_ticks([t.x for t in ticks[::step]], labels, fontsize=5, **upright)
        for spine in ax.spines.values():
            spine.set_visible(False)
        return image


def _boxes(ax: Any, values: Sequence[Item], styles: Mapping[str, int], handles: dict[str, Any]) -> None:
    """Draw a box for each place and name, the names beside each other."""
    from matplotlib.patches import Patch

    names = list(dict.fromkeys(v.name for v in values))
    for k, name in enumerate(names):
        by_place: dict[float, list[float]] = {}
        for v in values:
            if v.name == name and not math.isnan(v.y):
                by_place.setdefault(v.x, []).append(v.y)
        width = 0.7 / len(names)
        places = [x + (k - (len(names) - 1) / 2) * width for x in by_place]
        color = f"C{styles[name] % 7}"
        lines = {part: {"color": color, "linewidth": 0.7} for part in ("boxprops", "whiskerprops", "capprops")}
        lines |= {"medianprops": {"color": color, "linewidth": 1.1}}
        ax.boxplot(
            list(by_place.values()),
            positions=places,
            widths=width * 0.9,
            manage_ticks=False,
            flierprops={"markersize": 1.5},
            **lines,
        )
        handles.setdefault(name, Patch(facecolor="none", edgecolor=color))
    if values:
        layers = sorted({v.x for v in values})
        ax.set_xticks(layers[:: max(1, -(-len(layers) // _MOST_TICKS))])
        ax.set_xticklabels([f"{x:g}" for x in ax.get_xticks()])


def _words(ticks: Sequence[Item]) -> bool:
    """Return whether some labels of ticks are words, which a reader cannot count on where they are left out."""
    return any(not tick.label.lstrip("-").isdecimal() for tick in ticks)


def _empty(ax: Any, reason: str) -> None:
    """Leave a panel empty, with its reason."""
    ax.set_facecolor("0.97")
    ax.grid(False)
    ax.set_xticks([])
    ax.set_yticks([])
    text = "\n".join(textwrap.wrap(reason, 26)[:7])
    ax.text(0.5, 0.5, plain(text), transform=ax.transAxes, ha="center", va="center", fontsize=4.5, color="0.35")
