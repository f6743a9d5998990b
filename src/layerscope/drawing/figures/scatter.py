"""Scatter plots: points in series."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

from layerscope.drawing.figure import NAN, Columns, Figure, Marks, line_settings, restored_lines
from layerscope.drawing.painting import (
    MARKERS,
    axis_names,
    dots_of,
    inside_of,
    name_levels,
    plain,
    reference_lines,
    text_size,
    wrapped,
    write_at,
)
from layerscope.drawing.placing import Box, boxes_around, place

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
    n: int | None = None

    def data(self) -> Columns:
        return {f.name: [getattr(point, f.name) for point in self.points] for f in fields(Point)}

    def settings(self) -> dict[str, Any]:
        own = {"x_name": self.x_name, "joined": list(self.joined), "stressed": list(self.stressed)}
        return {**line_settings(self), **own}

    @classmethod
    def restored(cls, words: Mapping[str, Any], settings: Mapping[str, Any], data: Columns) -> Self:
        points = tuple(Point(**dict(zip(data, values, strict=True))) for values in zip(*data.values(), strict=True))
        own: dict[str, Any] = {name: tuple(settings[name]) for name in ("joined", "stressed")}
        return cls(**words, **restored_lines(settings), **own, points=points, x_name=settings["x_name"])

    def draw(self, ax: Axes) -> None:
        """Points with their whiskers, and names that cover none of them."""
        from matplotlib.ticker import MaxNLocator

        names = list(dict.fromkeys(point.series for point in self.points))
        few = len(self.points) <= _MOST_LABELS
        for k, name in enumerate(names):
            own = sorted((p for p in self.points if p.series == name), key=lambda p: p.x)
            large = name in self.stressed
            style: dict[str, Any] = {"marker": MARKERS[k % len(MARKERS)], "color": f"C{k % 7}", "label": plain(name)}
            x, y, dash = [p.x for p in own], [p.y for p in own], "-" if name in self.joined else ""
            ax.plot(x, y, linestyle=dash, markersize=7 if large else 3.5, **style)
            for p in own:
                if large or few:
                    ax.plot([p.x, p.x], [p.low, p.high], color=f"C{k % 7}", linewidth=0.8, alpha=1.0 if large else 0.5)
        reference_lines(self, ax.axhline)
        axis_names(ax, self.x_name, self.y_name)
        if all(p.x == int(p.x) for p in self.points if math.isfinite(p.x)):
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        taken = dots_of(ax, [(p.x, p.y) for p in self.points])
        told = [p for p in self.points if p.series in self.stressed or (few and not self.stressed)]
        self._name_points(ax, taken, told)
        name_levels(ax, self.references, taken)
        if len(names) > 1:
            drawn = [line for line in ax.get_lines() if line.get_label() in {plain(name) for name in names}]
            ax.legend(handles=drawn)

    def _name_points(self, ax: Axes, taken: list[Box], points: Sequence[Point]) -> None:
        for p in points:
            if not (math.isfinite(p.x) and math.isfinite(p.y)):
                continue
            x, y = ax.transData.transform((p.x, p.y))
            text = wrapped(p.label, 34)
            gap = 0.07 * ax.get_figure(root=True).dpi  # type: ignore[union-attr]
            box = place(boxes_around(float(x), float(y), *text_size(ax, text, 6), gap), taken, inside_of(ax))
            taken.append(box)
            write_at(ax, text, box, fontsize=6)
