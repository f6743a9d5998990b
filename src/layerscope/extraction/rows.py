"""The identity of rows: which text of which data, which choice, which word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.errors import InputError

if TYPE_CHECKING:
    import pandas

_PARTS = ("row", "choice", "unit")


@dataclass(frozen=True, eq=False)
class Rows:
    """n rows: `row` is the text's number in its split; `choice` and `unit` (a word or a token) where there are any."""

    task: str | None
    split: str | None
    fingerprint: str  # of the data
    row: np.ndarray
    choice: np.ndarray | None = None
    unit: np.ndarray | None = None
    units: str | None = None  # "word", "word by <expression>", or "token of <tokenizer>"

    def __len__(self) -> int:
        return len(self.row)

    def take(self, index: Any) -> Rows:
        parts: dict[str, Any] = {
            name: None if (part := getattr(self, name)) is None else part[index] for name in _PARTS
        }
        return replace(self, **parts)

    @staticmethod
    def join(parts: Sequence[Rows]) -> Rows:
        """The rows of several pieces of one data set, in order."""
        first = parts[0]

        def whole(name: str) -> Any:
            return None if getattr(first, name) is None else np.concatenate([getattr(p, name) for p in parts])

        return replace(first, **{name: whole(name) for name in _PARTS})

    def order(self) -> np.ndarray:
        """The positions that bring the rows into the data's order."""
        return np.lexsort(list(reversed(self.arrays().values())))

    def arrays(self) -> dict[str, np.ndarray]:
        """The parts that are there, by name."""
        return {name: part for name in _PARTS if (part := getattr(self, name)) is not None}

    def frame(self) -> pandas.DataFrame:
        """A table: task, split, row, and choice, word or token."""
        import pandas

        unit = (self.units or "unit").split()[0]
        columns = {unit if name == "unit" else name: part for name, part in self.arrays().items()}
        return pandas.DataFrame({"task": self.task, "split": self.split, **columns})

    def keys(self) -> list[tuple[int, ...]]:
        """One key per row, for finding common rows."""
        return list(zip(*(part.tolist() for part in self.arrays().values()), strict=True))

    def difference(self, other: Rows) -> str | None:
        """In what two sets of rows differ, in a few words; None if row i is the same thing in both."""
        for name, what in (("task", "tasks"), ("split", "splits"), ("units", "units")):
            a, b = getattr(self, name), getattr(other, name)
            if a != b:
                return f"they are of different {what}: {a} and {b}"
        if self.fingerprint != other.fingerprint:
            return f"the texts or labels of {self.task} ({self.split}) have changed between them"
        if len(self) != len(other):
            return f"one has {len(self)} rows, the other {len(other)}"
        for name in _PARTS:
            a, b = getattr(self, name), getattr(other, name)
            if (a is None) != (b is None):
                return f"only one of them has a {name} for each row"
            if a is not None and not np.array_equal(a, b):
                place = int(np.flatnonzero(a != b)[0])
                return f"row {place} is {name} {a[place]} in one and {name} {b[place]} in the other"
        return None

    def require_same(self, other: Rows) -> None:
        """Raise the error that says in what the rows differ, if they do."""
        if difference := self.difference(other):
            raise InputError(
                f"These representations cannot be compared row by row: {difference}. Extract both over the same "
                "rows, or keep the rows that both have with Representations.common(a, b)."
            )
