"""Parquet files can be small on the disk and huge in memory: how much comes out is known before it does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from layerscope.errors import DataError, LayerscopeError, first_line

MOST_VALUES = 20_000_000  # of a table that a record holds
MOST_TEXT = 256 << 20  # bytes, the same


def read_parquet(
    path: Path,
    *,
    most_values: int | None = None,
    most_text: int | None = None,
    most_field: int | None = None,
    option: str = "",
    error: type[LayerscopeError] = DataError,
    way_out: str = "",
) -> Any:
    """The pyarrow table in a file, or the sentence that says what is wrong with it.

    Args:
        path: One plain file.
        most_values: How many values it may hold.
        most_text: How many bytes of text; half of the memory if not given.
        most_field: How many bytes one text may have.
        option: What raises that.
        error: What is raised.
        way_out: How the sentence ends.
    """
    import pyarrow
    import pyarrow.parquet

    end = f"; {way_out}." if way_out else "."
    try:
        if not path.is_file():
            raise FileNotFoundError("it is not there")
        file = pyarrow.parquet.ParquetFile(path)
        schema, about = file.schema_arrow, file.metadata
        count = about.num_rows * about.num_columns
        texts = [field.name for field in schema if _is_text(field.type)]
        if len(set(schema.names)) != len(schema.names):
            raise error(f"{path} names a column twice: {', '.join(schema.names[:20])}{end}")
        if most_values is not None and count > most_values:
            raise error(f"{path} holds {count:,} values; at most {most_values:,} are read{end}")
        table = pyarrow.parquet.ParquetFile(path, read_dictionary=texts).read()  # a text that repeats is kept once
        _check_texts(path, table, most_text or _half_of_memory(), most_field, error, f"{option}{end}")
        return table.cast(schema)
    except (OSError, pyarrow.ArrowException, ValueError, MemoryError) as problem:
        if isinstance(problem, LayerscopeError):
            raise
        raise error(f"{path} is missing or damaged, or not a Parquet file ({first_line(problem)}){end}") from problem


def _is_text(kind: Any) -> bool:
    import pyarrow.types as kinds

    return kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_binary(kind)


def _check_texts(
    path: Path, table: Any, most_text: int, most_field: int | None, error: type[LayerscopeError], end: str
) -> None:
    """Texts that repeat take their place once here, and many times in what is made of it."""
    import pyarrow.compute
    import pyarrow.types as kinds

    total = 0
    for name, column in zip(table.column_names, table.columns, strict=True):
        for chunk in column.chunks if kinds.is_dictionary(column.type) else ():
            if not _is_text(chunk.type.value_type) or not len(chunk.dictionary):
                continue
            longest = pyarrow.compute.max(pyarrow.compute.binary_length(chunk.dictionary)).as_py() or 0
            if most_field is not None and longest > most_field:
                raise error(
                    f"{path}, column {name!r}: a field has {longest:,} bytes; at most {most_field:,} are read{end}"
                )
            total += longest * len(chunk)
    if total > most_text:
        raise error(f"{path} holds up to {total / 1e9:,.1f} GB of text; at most {most_text / 1e9:,.1f} are read{end}")


def _half_of_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
