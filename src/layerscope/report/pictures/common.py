"""What several kinds of result say alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from layerscope.report.values import TableFigure

UNDEFINED = " Hatched cells have no value; the reason shows when the pointer or the arrow keys are on them."
_SMALL_N = 100  # below this many rows every figure says so


def numbers(title: str, records: Sequence[Mapping[Any, Any]]) -> TableFigure:
    """Records as they are, under a title."""
    return TableFigure.of(
        records, title=title, shows="The numbers, a row each.", reading="Sort by a column with its heading."
    )


def caveat(said: str, n: int) -> str:
    """A caveat, with a word on the number of rows where they are few."""
    few = f"Only {n:,} rows: expect other rows to give other numbers." if n < _SMALL_N else ""
    return " ".join(part for part in (said, few) if part)


def is_number(value: Any) -> bool:
    """Whether a layer's name is a number."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
