"""Scatter plots: points in series."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

from layerscope.drawing.figure import NAN, Columns, Figure, Marks, line_settings, restored_lines
from layerscope.drawing.render import (
    MARKERS,
    Box,
    axes_box,
    boxes_around,
    boxes_in,
    is_free,
    lay_out,
    legend_below,
    lines_drawn,
    name_levels,
    place,
    plain,
    point_boxes,
    reference_lines,
    text_size,
    uncrossed,
    wrapped,
    write_at,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_LABELS = 40  # points that can have their whiskers and names beside them


@dataclass(frozen=True)
class Point:
    """One point of a scatter plot."""

    x: float
    y: float
    label: str
    series: str
    low: float = NAN
    high: float = NAN


@dataclass(frozen=True, kw_only=True)
class ScatterFigure(Figure):
    """Points in series; the series in `joined` are joined by a line, those in `stressed` are drawn large and named."""

    kind: ClassVar[str] = "scatter"
    points: tuple[Point, ...]
    x_name: str
    y_name: str
    joined: tuple[str, ...] = ()
    stressed: tuple[str, ...] = ()
    references: Marks = ()
    log: bool = False  # the upright axis is one of powers of ten
    n: int | None = None

    def data(self) -> Columns:
        return {f.name: [getattr(point, f.name) for point in self.points] for f in fields(Point)}

    def settings(self) -> dict[str, Any]:
        names = {"x_name": self.x_name, "joined": list(self.joined), "stressed": list(self.stressed)}
        return {**line_settings(self), **names, **({"log": True} if self.log else {})}

    @classmethod
    def restored(cls, words: Mapping[str, Any], settings: Mapping[str, Any], data: Columns) -> Self:
        points = tuple(Point(**dict(zip(data, values, strict=True))) for values in zip(*data.values(), strict=True))
        options: dict[str, Any] = {name: tuple(settings[name]) for name in ("joined", "stressed")}
        options["log"] = bool(settings.get("log", False))
        return cls(**words, **restored_lines(settings), **options, points=points, x_name=settings["x_name"])

    def draw(self, ax: Axes) -> None:
        """Draw points with their whiskers, and names that cover none of them."""
        from matplotlib.ticker import MaxNLocator

        names = list(dict.fromkeys(point.series for point in self.points))
        few = len(self.points) <= _MOST_LABELS
        for k, name in enumerate(names):
            points = sorted((p for p in self.points if p.series == name), key=lambda p: p.x)
            large = name in self.stressed
            style: dict[str, Any] = {"marker": MARKERS[k % len(MARKERS)], "color": f"C{k % 7}", "label": plain(name)}
            x, y, dash = [p.x for p in points], [p.y for p in points], "-" if name in self.joined else ""
            ax.plot(x, y, linestyle=dash, markersize=7 if large else 3.5, **style)
            for p in points:
                if large or few:
                    ax.plot([p.x, p.x], [p.low, p.high], color=f"C{k % 7}", linewidth=0.8, alpha=1.0 if large else 0.5)
        reference_lines(self, ax.axhline)
        if self.log:
            ax.set_yscale("log")
        ax.set_xlabel(plain(self.x_name))
        ax.set_ylabel(plain(self.y_name))
        if all(p.x == int(p.x) for p in self.points if math.isfinite(p.x)):
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        legend_below(ax, names if len(names) > 1 else ())
        lay_out(ax)
        occupied = point_boxes(ax, [(p.x, p.y) for p in self.points])
        named = [p for p in self.points if p.series in self.stressed or (few and not self.stressed)]
        self._name_points(ax, occupied, named)
        # A point that is called like a line lies on it, and its name stands for both.
        said = {p.label for p in named}
        homeless = name_levels(ax, [(name, at) for name, at in self.references if name not in said], occupied)
        legend_below(ax, [*(names if len(names) > 1 else ()), *homeless] if homeless else ())

    def _name_points(self, ax: Axes, occupied: list[Box], points: Sequence[Point]) -> None:
        """Write the labels of points beside them where they cover nothing, and add their boxes to `occupied`."""
        lines = lines_drawn(ax)
        for p in points:
            if not (math.isfinite(p.x) and math.isfinite(p.y)):
                continue
            x, y = ax.transData.transform((p.x, p.y))
            text = wrapped(p.label, 34)
            gap = 0.07 * ax.get_figure(root=True).dpi  # type: ignore[union-attr]
            size, frame = text_size(ax, text, 6), axes_box(ax)
            around = boxes_around(float(x), float(y), *size, gap)
            # Where whiskers stand close together, the name moves to the nearest place that none of them crosses.
            near, anywhere = (
                [box for box in uncrossed(boxes, lines) if is_free(box, occupied, frame)]
                for boxes in (around, boxes_in(frame, float(x), float(y), *size))
            )
            box = place(near or anywhere[:1] or around, occupied, frame)
            occupied.append(box)
            write_at(ax, text, box, fontsize=6)
