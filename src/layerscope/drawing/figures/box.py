"""Box plots: the spread of several numbers for each name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from layerscope.drawing.figure import Columns, Figure, Marks, line_settings, places_of, restored_lines
from layerscope.drawing.render import named_rows, rows_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, kw_only=True)
class BoxFigure(Figure):
    """A box plot: the spread of several numbers for each name, such as scores of several seeds for each strategy."""

    kind: ClassVar[str] = "box"
    boxes: Mapping[str, Sequence[float]]
    y_name: str
    references: Marks = ()
    n: int | None = None

    def data(self) -> Columns:
        pairs = [(name, float(v)) for name, values in self.boxes.items() for v in values or (math.nan,)]
        return {"name": [name for name, _ in pairs], "value": [value for _, value in pairs]}

    def settings(self) -> dict[str, Any]:
        return line_settings(self)

    @classmethod
    def restored(cls, words: Mapping[str, Any], settings: Mapping[str, Any], data: Columns) -> Self:
        boxes = {name: tuple(data["value"][i] for i in at) for name, at in places_of(data["name"]).items()}
        return cls(**words, **restored_lines(settings), boxes=boxes)

    def size(self, width: float | None = None) -> tuple[float, float]:
        return rows_size(list(self.boxes), width)

    def draw(self, ax: Axes) -> None:
        for k, values in enumerate(self.boxes.values()):
            finite = np.asarray([v for v in values if np.isfinite(v)])
            if len(finite) > 2:
                style: dict[str, Any] = {"widths": 0.5, "orientation": "horizontal", "showfliers": False}
                ax.boxplot([finite], positions=[k], whis=(0, 100), **style)
            ax.plot(finite, np.full(len(finite), k), "o", color="C1", alpha=0.8)
        named_rows(self, ax, list(self.boxes))
