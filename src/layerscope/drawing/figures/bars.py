"""Bar charts: a number for each name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from layerscope.drawing.figure import Columns, Figure, Marks, check_shape, line_settings, restored_lines
from layerscope.drawing.render import named_rows, rows_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, kw_only=True)
class BarsFigure(Figure):
    """A bar chart: a number for each name, with an interval where there is one."""

    kind: ClassVar[str] = "bars"
    names: tuple[str, ...]
    values: tuple[float, ...]
    y_name: str
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    references: Marks = ()
    n: int | None = None

    def __post_init__(self) -> None:
        for part in (self.values, self.low, self.high):
            if part is not None:
                check_shape(self.title, (len(part),), (len(self.names),))

    def data(self) -> Columns:
        columns: Columns = {"name": list(self.names), "value": [float(v) for v in self.values]}
        for name in ("low", "high"):
            if (extra := getattr(self, name)) is not None:
                columns[name] = [float(v) for v in extra]
        return columns

    def settings(self) -> dict[str, Any]:
        return line_settings(self)

    @classmethod
    def restored(cls, words: Mapping[str, Any], settings: Mapping[str, Any], data: Columns) -> Self:
        extras: dict[str, Any] = {k: tuple(data[k]) for k in ("low", "high") if k in data}
        names, values = tuple(data["name"]), tuple(data["value"])
        return cls(**words, **restored_lines(settings), names=names, values=values, **extras)

    def size(self, width: float | None = None) -> tuple[float, float]:
        return rows_size(self.names, width)

    def draw(self, ax: Axes) -> None:
        errors = None
        if self.low is not None and self.high is not None:
            errors = np.abs(np.asarray([self.low, self.high]) - np.asarray(self.values))
        ax.barh(np.arange(len(self.names)), self.values, height=0.65, xerr=errors)
        named_rows(self, ax, self.names)
