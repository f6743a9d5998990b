"""Tables as CSV that is safe to open in a spreadsheet: no text in it is a formula."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a cell begins with that a spreadsheet computes


def csv_text(frame: pandas.DataFrame) -> str:
    """A table as CSV. Texts that begin like a formula get an apostrophe before them; numbers stay as they are."""
    import pandas

    safe = frame.rename(columns=_plain)
    for place, kind in enumerate(safe.dtypes):
        if not pandas.api.types.is_numeric_dtype(kind):
            safe.isetitem(place, safe.iloc[:, place].map(_plain).array)
    return safe.to_csv(index=False)


def _plain(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = f"'{value}" if value.startswith(_FORMULA) else value
    return text.replace("\r\n", "\n").replace("\r", "\n")  # by itself it would begin a row
