"""Tables: columns of values, each row with the place it came from, broken lines set apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from layerscope.errors import DataError, near, some


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be used, with its place: file, line (or row of a Parquet file) and column."""

    file: str
    place: str
    column: str
    reason: str

    def __str__(self) -> str:
        column = f", column {some([repr(self.column)])}" if self.column else ""
        return f"{self.file}, {self.place}{column}: {self.reason}"


@dataclass
class Table:
    """Columns of equal length. `places[i]` says where row i stands, `numbers[i]` which row of the data it is."""

    name: str
    columns: dict[str, list[Any]]
    numbers: list[int]
    places: Callable[[int], str]
    broken: list[BadRow] = field(default_factory=list)
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)  # class names in order, where the data says

    def __len__(self) -> int:
        return len(self.numbers)

    def column(self, name: str, what: str) -> list[Any]:
        """The column `name`, or the error that lists what there is."""
        if name not in self.columns:
            raise DataError(
                f"{self.name} has no column {name!r} for the {what}; it has {some(map(repr, self.columns))}."
                + near(name, self.columns)
            )
        return self.columns[name]

    def bad(self, row: int, column: str, reason: str) -> BadRow:
        return BadRow(self.name, self.places(row), column, reason)


def frame_table(frame: Any, name: str, place: str = "row") -> Table:
    """A pandas or pyarrow table; rows are counted from 1."""
    if hasattr(frame, "to_pydict"):
        if len(set(frame.column_names)) != len(frame.column_names):
            raise DataError(f"{name} names a column twice: {some(frame.column_names)}.")
        columns = frame.to_pydict()
    else:
        names = [str(column) for column in frame.columns]
        if len(set(names)) != len(names):
            raise DataError(f"{name} names a column twice: {some(names)}.")
        values = (frame.iloc[:, i] for i in range(len(names)))
        gaps = ((column.tolist(), column.isna().tolist()) for column in values)
        columns = {n: [_plain(v, m) for v, m in zip(*pair, strict=True)] for n, pair in zip(names, gaps, strict=True)}
    length = len(next(iter(columns.values()), []))
    return Table(name, columns, list(range(length)), lambda row: f"{place} {row + 1}")


def _plain(value: Any, missing: bool) -> Any:
    if missing:
        return None
    return value.tolist() if hasattr(value, "tolist") else value
