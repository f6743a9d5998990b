"""Scatter plots: points in series."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

from layerscope.drawing.figure import NAN, Columns, Figure, Marks, line_settings, restored_lines
from layerscope.drawing.painting import MARKERS, axis_names, plain, reference_lines

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
        names = list(dict.fromkeys(point.series for point in self.points))
        few = len(self.points) <= _MOST_LABELS
        for k, name in enumerate(names):
            own = sorted((p for p in self.points if p.series == name), key=lambda p: p.x)
            x, y = [p.x for p in own], [p.y for p in own]
            large = name in self.stressed
            style: dict[str, Any] = {"marker": MARKERS[k % len(MARKERS)], "color": f"C{k % 7}", "label": plain(name)}
            ax.plot(x, y, linestyle="-" if name in self.joined else "", markersize=7 if large else 3.5, **style)
            for p in own:
                if large or few:
                    ax.plot([p.x, p.x], [p.low, p.high], color=f"C{k % 7}", linewidth=0.8, alpha=1.0 if large else 0.5)
                if large or (few and not self.stressed):
                    ax.annotate(plain(p.label), (p.x, p.y), fontsize=6, xytext=(4, -9), textcoords="offset points")
        reference_lines(self, ax.axhline)
        axis_names(ax, self.x_name, self.y_name)
        if len(names) > 1 or self.references:
            ax.legend()
