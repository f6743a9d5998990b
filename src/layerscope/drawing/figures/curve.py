"""Curves over one axis, such as the layers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

from layerscope.drawing.figure import (
    NAN,
    Columns,
    Figure,
    Marks,
    check_shape,
    line_settings,
    places_of,
    restored_lines,
)
from layerscope.drawing.render import (
    MARKERS,
    MOST_NAMED,
    lay_out,
    legend_below,
    name_levels,
    name_lines,
    name_uprights,
    names_fit_beside,
    plain,
    point_boxes,
    reference_lines,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Series:
    """One curve, NaN where it has no value; `low` and `high` are the ends of intervals around it, or None.

    `hollow` says which points are drawn empty; the figure says what that means.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    hollow: tuple[bool, ...] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for part in (self.y, self.low, self.high, self.hollow):
            if part is not None:
                check_shape(self.name, (len(part),), (len(self.x),))


@dataclass(frozen=True, kw_only=True)
class CurveFigure(Figure):
    """Curves over one axis; `references` are level lines, `marks` upright ones, `log` makes the y axis logarithmic.

    `hollow` is what the legend says of points that are drawn empty.
    """

    kind: ClassVar[str] = "curve"
    series: tuple[Series, ...]
    x_name: str
    y_name: str
    references: Marks = ()
    marks: Marks = ()
    log: bool = False
    hollow: str = ""
    n: int | None = None

    def data(self) -> Columns:
        columns: Columns = {"series": [], "x": [], "y": [], "low": [], "high": []}
        for series in self.series:
            gaps = (NAN,) * len(series.x)
            columns["series"] += [series.name] * len(series.x)
            parts = {"x": series.x, "y": series.y, "low": series.low or gaps, "high": series.high or gaps}
            for name, part in parts.items():
                columns[name] += map(float, part)
        if self.hollow:
            columns["hollow"] = [each for s in self.series for each in s.hollow or (False,) * len(s.x)]
        return columns

    def settings(self) -> dict[str, Any]:
        more: dict[str, Any] = {"log": True} if self.log else {}
        more |= {"hollow": self.hollow} if self.hollow else {}
        return {**line_settings(self), "marks": [list(m) for m in self.marks], "x_name": self.x_name, **more}

    @classmethod
    def restored(cls, words: Mapping[str, Any], settings: Mapping[str, Any], data: Columns) -> Self:
        series = []
        for name, at in places_of(data["series"]).items():
            parts = {k: tuple(data[k][i] for i in at) for k in ("x", "y", "low", "high")}
            empty = tuple(bool(data["hollow"][i]) for i in at) if "hollow" in data else ()
            if all(math.isnan(v) for v in parts["low"]):
                parts = {k: parts[k] for k in ("x", "y")}
            series.append(Series(name, **parts, hollow=empty if any(empty) else None))
        lines = restored_lines(settings, "marks")
        log = bool(settings.get("log", False))
        named = {"x_name": settings["x_name"], "hollow": str(settings.get("hollow", ""))}
        return cls(**words, **lines, series=tuple(series), log=log, **named)

    def draw(self, ax: Axes) -> None:
        """Draw every curve with its name at its end, and lines with their names where these cover no point."""
        from matplotlib.ticker import MaxNLocator

        names = [series.name for series in self.series]
        beside = len(names) <= MOST_NAMED and names_fit_beside(ax, names)
        for place, series in enumerate(self.series):
            marker, label = MARKERS[place % len(MARKERS)], plain(series.name)
            ax.plot(series.x, series.y, marker=marker, label=label, color=f"C{place % 7}")
            if series.low is not None and series.high is not None:
                ax.fill_between(series.x, series.low, series.high, color=f"C{place % 7}", alpha=0.2, linewidth=0)
            if series.hollow is not None:
                empty = [k for k, is_empty in enumerate(series.hollow) if is_empty]
                places = [[values[k] for k in empty] for values in (series.x, series.y)]
                style: dict[str, Any] = {"linestyle": "none", "markerfacecolor": "white", "label": "_empty"}
                ax.plot(*places, marker=marker, color=f"C{place % 7}", **style)
        reference_lines(self, ax.axhline)
        for name, value in self.marks:
            ax.axvline(value, color="0.4", linestyle=":", linewidth=0.8, label=plain(name))
        if self.log:
            ax.set_yscale("log")
        if all(x == int(x) for series in self.series for x in series.x):
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_xlabel(plain(self.x_name))
        ax.set_ylabel(plain(self.y_name))
        if self.hollow:  # a sample for the legend
            ax.plot(
                [], [], marker="o", linestyle="none", color="0.4", markerfacecolor="white", label=plain(self.hollow)
            )
        below = [] if beside or len(names) < 2 else names
        below = [*below, self.hollow] if self.hollow else below
        if beside and len(names) > 1:
            finite = [[y for y in series.y if math.isfinite(y)] for series in self.series]
            ends = [(s.name, y[-1], f"C{k % 7}") for k, (s, y) in enumerate(zip(self.series, finite, strict=True)) if y]
            name_lines(ax, ends)
        legend_below(ax, below)
        lay_out(ax)
        occupied = point_boxes(ax, [point for series in self.series for point in zip(series.x, series.y, strict=True)])
        homeless = [*name_uprights(ax, self.marks, occupied), *name_levels(ax, self.references, occupied)]
        legend_below(ax, [*below, *homeless] if homeless else ())
