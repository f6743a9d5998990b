"""Tables, shown as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from layerscope.drawing.figure import Columns, Figure, plain_value
from layerscope.drawing.render import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_ROWS = 30  # that are drawn; a CSV file holds all of them


@dataclass(frozen=True, kw_only=True)
class TableFigure(Figure):
    """A table: lists of one length under their headings."""

    kind: ClassVar[str] = "table"
    table: Mapping[str, Sequence[Any]]

    @classmethod
    def from_records(cls, records: Sequence[Mapping[Any, Any]], **words: Any) -> Self:
        """Make the table of some records, one row per record; `words` are the figure's words."""
        names = list(records[0]) if records else []
        return cls(table={str(name): [plain_value(record[name]) for record in records] for name in names}, **words)

    def data(self) -> Columns:
        return {name: _alike(list(values)) for name, values in self.table.items()}

    @classmethod
    def restored(cls, words: Mapping[str, Any], settings: Mapping[str, Any], data: Columns) -> Self:
        return cls(**words, table=data)

    def draw(self, ax: Axes) -> None:
        """Draw the first rows as text."""
        rows = list(zip(*(list(values)[:_MOST_ROWS] for values in self.table.values()), strict=True))
        ax.set_axis_off()
        if rows:
            cells = [[f"{v:.4g}" if isinstance(v, float) else plain(str(v)) for v in row] for row in rows]
            ax.table(cellText=cells, colLabels=[plain(name) for name in self.table], loc="center")


def _alike(values: list[Any]) -> list[Any]:
    """Return values that Parquet accepts as one column: numbers as floats, and texts where types are mixed."""
    kinds = {type(v) for v in values if v is not None}
    if kinds <= {int, float} and float in kinds:
        return [None if v is None else float(v) for v in values]
    return values if len(kinds) <= 1 else [None if v is None else str(v) for v in values]
