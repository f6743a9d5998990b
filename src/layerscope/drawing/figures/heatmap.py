"""Heat maps: a value for each pair of a row and a column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from layerscope.drawing.figure import Columns, Figure, HeatmapAxis, check_shape, floats
from layerscope.drawing.render import lay_out, legend_below, plain, side_ticks, size_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EXTRAS = ("low", "high", "bias", "baseline", "p_value", "calibrated")  # arrays that may stand beside the values


@dataclass(frozen=True, kw_only=True)
class HeatmapFigure(Figure):
    """A heat map of `values[i, j]`. NaN with a reason is an undefined cell; NaN without one is not a cell at all.

    A reason beside a value says why something else of the cell, such as its interval, is undefined.
    """

    kind: ClassVar[str] = "heatmap"
    values: np.ndarray
    rows: HeatmapAxis
    columns: HeatmapAxis
    value_name: str
    scale: tuple[float, float]
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    bias: np.ndarray | None = None
    baseline: np.ndarray | None = None
    p_value: np.ndarray | None = None
    calibrated: np.ndarray | None = None
    reasons: Mapping[tuple[int, int], str] = field(default_factory=dict)
    cuts: tuple[int, ...] = ()  # lines before these entries, on both sides
    marked: tuple[tuple[int, int], ...] = ()  # cells with a ring around them
    marked_name: str = ""  # what the ring says
    n: int | None = None

    def __post_init__(self) -> None:
        check_shape(self.title, self.values.shape, (len(self.rows), len(self.columns)))

    def data(self) -> Columns:
        count = len(self.columns)
        places = [(i, j) for i in range(len(self.rows)) for j in range(count)]
        columns: Columns = {
            "row_model": [self.rows.models[i] for i, _ in places],
            "row_layer": [self.rows.labels[i] for i, _ in places],
            "column_model": [self.columns.models[j] for _, j in places],
            "column_layer": [self.columns.labels[j] for _, j in places],
            "value": floats(self.values),
        }
        for name in EXTRAS:
            if (extra := getattr(self, name)) is not None:
                columns[name] = floats(extra)
        return {**columns, "reason": [self.reasons.get(place, "") for place in places]}

    def settings(self) -> dict[str, Any]:
        return {
            "row_name": self.rows.name,
            "column_name": self.columns.name,
            "value_name": self.value_name,
            "scale": list(self.scale),
            "shape": list(self.values.shape),
            "extras": [name for name in EXTRAS if getattr(self, name) is not None],
            "cuts": list(self.cuts),
            "marked": [list(cell) for cell in self.marked],
            **({"marked_name": self.marked_name} if self.marked_name else {}),
            "n": self.n,
        }

    @classmethod
    def restored(cls, words: Mapping[str, Any], settings: Mapping[str, Any], data: Columns) -> Self:
        shape = tuple(settings["shape"])
        count = shape[1]
        extras: dict[str, Any] = {name: np.asarray(data[name]).reshape(shape) for name in settings["extras"]}
        sides = [
            HeatmapAxis(settings[f"{side}_name"], tuple(data[f"{side}_model"][at]), tuple(data[f"{side}_layer"][at]))
            for side, at in (("row", slice(None, None, count)), ("column", slice(None, count)))
        ]
        return cls(
            **words,
            values=np.asarray(data["value"], dtype=float).reshape(shape),
            rows=sides[0],
            columns=sides[1],
            value_name=settings["value_name"],
            scale=tuple(settings["scale"]),
            reasons={divmod(k, count): reason for k, reason in enumerate(data["reason"]) if reason},
            cuts=tuple(settings["cuts"]),
            marked=tuple((int(i), int(j)) for i, j in settings["marked"]),
            marked_name=str(settings.get("marked_name", "")),
            n=settings["n"],
            **extras,
        )

    def size(self, width: float | None = None) -> tuple[float, float]:
        if width is not None:
            return width, max(width * 0.84 * len(self.rows) / len(self.columns), 1.6)
        wide, high = (min(max(0.2 * len(side) + 2.0, 4.0), 14.0) for side in (self.columns, self.rows))
        return wide, high - 0.4

    def draw(self, ax: Axes, bar: bool = True) -> Any:
        """Draw the map with layer 0 at the origin, hatched undefined cells and lines between models.

        `bar=False` leaves out the colour bar. Returns matplotlib's image, of which a shared bar can be made.
        """
        from matplotlib.lines import Line2D
        from matplotlib.patches import Rectangle

        ax.grid(False)
        low, high = self.scale
        values = np.ma.masked_invalid(self.values)
        image = ax.imshow(values, origin="lower", vmin=low, vmax=high, interpolation="nearest", aspect="equal")
        for i, j in self.reasons:
            if not np.isnan(self.values[i, j]):
                continue  # the reason is of something beside the value
            hatched = Rectangle(
                (j - 0.5, i - 0.5), 1, 1, facecolor="white", edgecolor="0.6", hatch="/////", linewidth=0
            )
            ax.add_patch(hatched)
        for edges, line in ((self.rows.edges, ax.axhline), (self.columns.edges, ax.axvline)):
            for edge in edges:
                line(edge - 0.5, color="white", linewidth=1.5)
        for cut in self.cuts:
            for line in (ax.axhline, ax.axvline):
                line(cut - 0.5, color="white", linewidth=1.0, linestyle="--")
        if self.marked:
            rows, columns = zip(*self.marked, strict=True)
            ax.scatter(columns, rows, s=28, facecolors="none", edgecolors="tab:red", linewidths=1.2)
        for side, name in ((self.columns, ax.set_xlabel), (self.rows, ax.set_ylabel)):
            name("layer" if side.edges else plain(side.name))
        for spine in ax.spines.values():
            spine.set_visible(False)
        if bar:
            ax.figure.colorbar(image, ax=ax, label=plain(self.value_name), shrink=0.9)
        self._label_sides(ax)
        if self.marked and self.marked_name:
            sample: dict[str, Any] = {"marker": "o", "markerfacecolor": "none", "markeredgecolor": "tab:red"}
            ax.add_line(Line2D([], [], linestyle="none", label=plain(self.marked_name), **sample))
            legend_below(ax, [self.marked_name])
        return image

    def _label_sides(self, ax: Axes) -> None:
        """Write layers and models beside the map, models as letters with a key where their names are too long."""
        # How many labels have room is known when the axes are laid out, and their lines take room from the axes.
        (width, height), canvas = size_of(ax), ax.get_figure(root=True)
        assert canvas is not None
        cell = min(0.6 * width / len(self.columns), 0.75 * height / len(self.rows))
        rows, columns = self.rows, self.columns
        for _ in range(4):
            long = [side_ticks(ax.xaxis, columns, cell * len(columns), upright=False)]
            long += [side_ticks(ax.yaxis, rows, cell * len(rows), upright=True)]
            if any(long):
                keys = dict(zip(dict.fromkeys((*rows.models, *columns.models)), ascii_uppercase, strict=False))
                rows = replace(rows, models=tuple(keys.get(name, name) for name in rows.models))
                columns = replace(columns, models=tuple(keys.get(name, name) for name in columns.models))
                ax.set_xlabel(plain(f"layer ({', '.join(f'{key}: {name}' for name, key in keys.items())})"))
                continue
            lay_out(ax)
            before, cell = cell, min(cell, float(ax.bbox.width) / canvas.dpi / len(columns))
            if cell > 0.95 * before:
                return
