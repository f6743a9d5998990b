"""Files and frames become tables: columns of values, and for each row the place that it came from.

Tables come in pieces of BLOCK rows, so that who needs few rows, or one column, takes the memory and time of those. The
ending of a file decides how it is read. Broken lines are set apart in the table, for the caller to count or refuse; a
file that cannot be read at all raises DataError.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from layerscope.errors import DataError, InputError, first_line, near, some, whole
from layerscope.store import parse_json
from layerscope.store.validated import parquet_batches

BLOCK = 1000  # rows that are read together


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
    """Columns of equal length. `numbers[i]` says which row of the data row i is, from 0, `lines[i]` where it stands."""

    name: str
    columns: dict[str, list[Any]]
    numbers: list[int]
    lines: list[int]  # as whoever opens the data counts them, from 1
    unit: str = "row"  # what is counted so: rows, or the lines of a text file
    broken: list[BadRow] = field(default_factory=list)
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)  # class names in order, where the data says

    def __len__(self) -> int:
        return len(self.numbers)

    def column(self, name: str, what: str) -> list[Any]:
        """Return the column `name`, or raise DataError with the names that there are."""
        if name not in self.columns:
            raise DataError(
                f"{self.name} has no column {name!r} for the {what}; it has {some(map(repr, self.columns))}."
                + near(name, self.columns)
            )
        return self.columns[name]

    def bad(self, row: int, column: str, reason: str) -> BadRow:
        return BadRow(self.name, f"{self.unit} {self.lines[row]}", column, reason)

    @staticmethod
    def joined(pieces: Sequence[Table]) -> Table:
        """Return one table of pieces that follow each other; a column is empty where a piece does not have it."""
        first, names = pieces[0], dict.fromkeys(name for piece in pieces for name in piece.columns)
        _check_width(first.name, names)
        return Table(
            first.name,
            {name: [v for p in pieces for v in p.columns.get(name, [None] * len(p))] for name in names},
            [number for piece in pieces for number in piece.numbers],
            [line for piece in pieces for line in piece.lines],
            first.unit,
            [bad for piece in pieces for bad in piece.broken],
            first.classes,
        )


def frame_tables(frame: Any, name: str, columns: Sequence[str] | None = None) -> Iterator[Table]:
    """Yield a pandas or pyarrow table, or some of its columns, in pieces."""
    arrow = hasattr(frame, "to_pydict")
    names = [str(column) for column in (frame.column_names if arrow else frame.columns)]
    if len(set(names)) != len(names):
        raise DataError(f"{name} names a column twice: {some(names)}.")
    places = [i for i, each in enumerate(names) if columns is None or each in columns]
    for start in range(0, max(len(frame), 1), BLOCK):
        part = frame.slice(start, BLOCK) if arrow else frame.iloc[start : start + BLOCK]
        yield _frame_table(name, {names[i]: _values(part, i, arrow) for i in places}, start, len(part))


def _frame_table(name: str, columns: dict[str, list[Any]], start: int, length: int) -> Table:
    numbers = range(start, start + length)
    return Table(name, columns, list(numbers), [number + 1 for number in numbers])


def _values(frame: Any, place: int, arrow: bool) -> list[Any]:
    """Return a column of a pandas or pyarrow table as plain values."""
    if arrow:
        values: list[Any] = frame.column(place).to_pylist()
        return values
    column = frame.iloc[:, place]
    return [_plain(v, missing) for v, missing in zip(column.tolist(), column.isna().tolist(), strict=True)]


def _plain(value: Any, missing: bool) -> Any:
    if missing:
        return None
    return value.tolist() if hasattr(value, "tolist") else value


MAX_FIELD = 10_000_000  # characters of one field: a whole book fits, and what unpacks to gigabytes does not
_FIELDS = 4  # how many fields of the greatest length a line may hold
_MOST_COLUMNS = 10_000


def read(path: Path, max_field: int = MAX_FIELD, columns: Sequence[str] | None = None) -> Iterator[Table]:
    """Yield a file, or some of its columns, in pieces. Its ending, which `.gz` may follow, says how it is read.

    A field may have at most `max_field` characters.
    """
    if not readable(path):
        raise DataError(f"{path} has an ending that cannot be read; allowed: {endings()}, each also with .gz.")
    if not os.path.exists(path):
        raise DataError(f"There is no file {path}.")
    if not os.path.isfile(path):
        raise DataError(f"{path} is not a file that can be read as data.")
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty.")
    usable, broken = 0, None
    try:
        for table in _READERS[_ending(path)](path, check_max_field(max_field), columns):
            usable, broken = usable + len(table), broken or next(iter(table.broken), None)
            yield table
    except UnicodeDecodeError as error:
        encoding = "utf-16" if error.object[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "latin1"
        raise DataError(
            f"{path} is not UTF-8 text: byte {error.start} cannot be read; convert it first, for example with: "
            f"iconv -f {encoding} -t utf-8 {path.name} > utf-8-{path.name}."
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {first_line(error)}.") from error
    if not usable:
        raise DataError(f"{path} has no usable row: {broken}." if broken else f"{path} holds no rows.")


def check_max_field(max_field: int) -> int:
    """Return the bound on the characters of a field, or raise InputError where it cannot be one."""
    if not whole(max_field) or not 1 <= max_field < 1 << 31:
        raise InputError(
            f"max_field (--max-field) is {max_field}; it must be a whole number from 1 to {(1 << 31) - 1}."
        )
    return max_field


def _too_long(what: str, most: int) -> str:
    return f"{what} has more than {most:,} characters, the most that are read (max_field=, --max-field)"


def readable(path: Path) -> bool:
    """Return whether the file's ending names a format that can be read."""
    return _ending(path) in _READERS


def endings() -> str:
    """Return the endings of files that can be read, with commas between them."""
    return ", ".join(_READERS)


def _ending(path: Path) -> str:
    """Return a file's ending in small letters, without a `.gz` after it."""
    suffixes = [s.lower() for s in path.suffixes[-2:]]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _open(path: Path) -> TextIO:
    """Open a text file, which may be packed by gzip and begin with a byte-order mark."""
    if path.suffix.lower() == ".gz":
        return io.TextIOWrapper(gzip.open(path), encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _lines(path: Path, file: TextIO, most: int) -> Iterator[str]:
    """Yield the lines of a file; raise DataError at one with more than `most` characters."""
    # Read with a limit: a packed file of a few bytes can hold one line that fills the memory.
    number = 1
    while line := file.readline(most + 1):
        if len(line) > most:
            raise DataError(f"{path}, line {number}: {_too_long('it', most)}.")
        yield line
        number += 1


Entry = tuple[int, Mapping[str, Any] | str]  # a row's line and its columns, or the reason why it cannot be read
Reader = Callable[[Path, int, Sequence[str] | None], Iterator[Table]]  # of a file, the longest field and columns


def _of_lines(entries: Callable[[Path, int, Sequence[str] | None], Iterator[Entry]]) -> Reader:
    """Return the reader of a text format of which `entries` yields the rows."""

    def read_file(path: Path, max_field: int, columns: Sequence[str] | None) -> Iterator[Table]:
        rows, first = entries(path, max_field, columns), 0
        while block := list(islice(rows, BLOCK)):
            table = Table(str(path), {}, [], [], "line")
            found: dict[str, Any] = {}  # only its names count, in the order in which they come
            rows_read: list[Mapping[str, Any]] = []
            # Broken lines are numbered too, so that a row keeps its number when they are fixed.
            for number, (line, row) in enumerate(block, start=first):
                if isinstance(row, str):
                    table.broken.append(BadRow(str(path), f"line {line}", "", row))
                else:
                    found.update(row)
                    rows_read.append(row)
                    table.numbers.append(number)
                    table.lines.append(line)
            first += len(block)
            _check_width(str(path), found)
            wanted = [name for name in found if columns is None or name in columns]
            table.columns.update({name: [row.get(name) for row in rows_read] for name in wanted})
            yield table

    return read_file


def _check_width(name: str, columns: Sized) -> None:
    """Raise DataError where a table has more columns than are read."""
    if len(columns) > _MOST_COLUMNS:
        raise DataError(f"{name} has {len(columns):,} columns; at most {_MOST_COLUMNS:,} are read.")


def _delimited(delimiter: str) -> Reader:
    """Return the reader of files whose fields are separated by commas (with quotes) or tabs (without)."""

    def entries(path: Path, max_field: int, columns: Sequence[str] | None) -> Iterator[Entry]:
        quoting = {"quoting": csv.QUOTE_MINIMAL} if delimiter == "," else {"quoting": csv.QUOTE_NONE}
        csv.field_size_limit(max_field)
        with _open(path) as file:
            lines = _lines(path, file, _FIELDS * max_field)
            reader = csv.reader(lines, delimiter=delimiter, strict=delimiter == ",", **quoting)  # type: ignore[arg-type]
            header = _header(path, reader, max_field)
            _check_separator(path, header, delimiter)
            if len(set(header)) != len(header):
                raise DataError(f"{path} names a column twice in its header: {some(header)}.")
            _check_width(str(path), header)
            wanted = [(i, name) for i, name in enumerate(header) if columns is None or name in columns]
            while True:
                line = reader.line_num + 1
                try:
                    values = next(reader)
                except StopIteration:
                    break
                except csv.Error as error:  # the next line is read on its own again
                    lost = reader.line_num - line
                    reason = _spelled(error, max_field)
                    yield line, reason + (f"; the {lost} lines after it are lost with it" if lost else "")
                    continue
                if values and len(values) != len(header):
                    yield line, f"{len(values)} fields where the header has {len(header)}"
                elif values:
                    yield line, {name: values[i] if values[i] != "" else None for i, name in wanted}

    return _of_lines(entries)


def _header(path: Path, reader: Any, max_field: int) -> list[str]:
    """Read the first line of a delimited file as the names of its columns."""
    try:
        return [name.strip() for name in next(reader)]
    except StopIteration:
        raise DataError(f"{path} is empty.") from None
    except csv.Error as error:
        raise DataError(
            f"{path}, line 1: the header cannot be read ({_spelled(error, max_field)}); is a quote in it not closed?"
        ) from error


def _spelled(error: csv.Error, max_field: int) -> str:
    """Return the message of the csv module, or our own where a field is too long."""
    if "field limit" in str(error):
        return _too_long("a field", max_field)
    return str(error)


def _check_separator(path: Path, header: list[str], delimiter: str) -> None:
    """Raise DataError where all columns ran into one, as in what spreadsheets save with semicolons."""
    other = (
        next((sign for sign in ";\t," if sign != delimiter and sign in header[0]), None) if len(header) == 1 else None
    )
    if other is not None:
        signs = {",": "commas (.csv)", ";": "semicolons", "\t": "tabs (.tsv)"}
        column = some([repr(header[0])])
        raise DataError(
            f"{path} has one column, {column}: its fields seem to be separated by {signs[other]} and not by "
            f"{signs[delimiter]}. Save it with {signs[delimiter].split()[0]} in between; if it really has one column, "
            "give that another name."
        )


def _json_lines(path: Path, max_field: int, _: Sequence[str] | None) -> Iterator[Entry]:
    """Yield the rows of a file with one JSON object per line."""
    with _open(path) as file:
        for line, text in enumerate(_lines(path, file, _FIELDS * max_field), start=1):
            if not text.strip():
                continue
            try:
                value = parse_json(text)
                if not isinstance(value, dict):
                    raise ValueError("not a JSON object; each line must be one")
                if any(isinstance(field, str) and len(field) > max_field for field in value.values()):
                    raise ValueError(_too_long("a field", max_field))
                yield line, value
            except ValueError as error:
                yield line, f"broken JSON ({error})"


def _read_parquet(path: Path, max_field: int, columns: Sequence[str] | None) -> Iterator[Table]:
    """Yield a Parquet file in pieces."""
    hint = ", 4 for each character of max_field= (--max-field)"
    batches = parquet_batches(path, BLOCK, columns=columns, most_field=4 * max_field, option=hint)
    start = 0
    try:
        for batch in batches:
            yield _frame_table(str(path), batch.to_pydict(), start, len(batch))
            start += len(batch)
    except (ValueError, OverflowError) as error:  # dates and numbers that Python does not have
        if isinstance(error, (DataError, UnicodeDecodeError)):
            raise
        raise DataError(f"{path} holds values that cannot be read: {first_line(error)}.") from error


def _plain_lines(path: Path, max_field: int, _: Sequence[str] | None) -> Iterator[Entry]:
    """Yield the rows of a text file with one sentence per line, its words separated by whitespace."""
    with _open(path) as file:
        for line, text in enumerate(_lines(path, file, max_field), start=1):
            if text.strip():
                yield line, {"text": text.strip(), "words": text.split()}


def _treebank(path: Path, max_field: int, _: Sequence[str] | None) -> Iterator[Entry]:
    """Yield the rows of a treebank, one per sentence: text, words, parts of speech, `sent_id` and `newdoc id`."""
    with _open(path) as file:
        document = None
        for start, lines in _sentences(_lines(path, file, max_field)):
            comments: dict[str, str] = {}
            words, upos, xpos, text = [], [], [], ""
            fault: tuple[int, str] | None = None
            for number, line in lines:
                if line.startswith("#"):
                    key, _, value = line.lstrip("# ").partition("=")
                    comments[key.strip()] = value.strip()
                    continue
                fields = line.split("\t")
                if len(fields) != 10:
                    fault = fault or (number, f"{len(fields)} fields where CoNLL-U has 10")
                elif fields[0].isdigit():  # not 1-2 (a surface token of several words) nor 1.1 (an empty node)
                    words.append(fields[1])
                    upos.append(fields[3])
                    xpos.append(fields[4])
                    text += fields[1] + ("" if "SpaceAfter=No" in fields[9] else " ")
            document = comments.get("newdoc id", document)
            named = {"sent_id": comments.get("sent_id"), "newdoc id": document, "upos": upos, "xpos": xpos}
            if fault:
                yield fault
            elif words:
                yield start, {"text": comments.get("text", text.strip()), "words": words, **named}


def _sentences(file: Iterable[str]) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    """Yield the first line number of each block between empty lines, and its lines with their numbers."""
    block: list[tuple[int, str]] = []
    for number, raw in enumerate(file, start=1):
        line = raw.rstrip("\r\n")
        if line:
            block.append((number, line))
        elif block:
            yield block[0][0], block
            block = []
    if block:
        yield block[0][0], block


_DISTINCT = 50_000  # values that are counted; with more of them a column holds numbers or texts, and no classes


def counts(path: Path, column: str) -> dict[Any, int] | None:
    """Return how often each value stands in a column of a file, or None where only `read` can tell.

    Readers of pyarrow's go through the file, many times as fast as `read`. They give up where the two might not see the
    same values: at a line that is broken, and at values that are neither text nor whole numbers.
    """
    import pyarrow

    parts = _COUNTED.get(_ending(path))
    if parts is None or not os.path.isfile(path):
        return None
    absent = "" if _ending(path) in (".jsonl", ".parquet") else None  # what an empty text is, as `read` has it
    counted: dict[Any, int] = {}
    try:
        for part in parts(path, column):
            if not _is_plain(part.type):
                return None
            for pair in part.value_counts().to_pylist():
                value = absent if pair["values"] == "" else pair["values"]
                counted[value] = counted.get(value, 0) + pair["counts"]
            if len(counted) > _DISTINCT:
                return None
    except (OSError, EOFError, zlib.error, ValueError, csv.Error, pyarrow.ArrowException):  # `read` says what is wrong
        return None
    return counted or None


def _is_plain(kind: Any) -> bool:
    """Return whether a type of pyarrow's is text or whole numbers."""
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_integer(kind))


def _stream(path: Path) -> Any:
    import pyarrow

    return pyarrow.input_stream(path, compression="gzip" if path.suffix.lower() == ".gz" else None)


def _delimited_column(delimiter: str) -> Callable[[Path, str], Iterator[Any]]:
    """Return what yields a column of a file whose fields are separated by commas or tabs, as arrays of pyarrow's."""

    def parts(path: Path, column: str) -> Iterator[Any]:
        import pyarrow
        from pyarrow import csv as arrow_csv

        quoted = delimiter == ","
        with _open(path) as file:
            lines = csv.reader(file, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE)
            header, length = [name.strip() for name in next(lines)], lines.line_num
        if header.count(column) != 1 or len(set(header)) != len(header) or length != 1:
            raise ValueError("the header is not one line that names the column once")
        batches = arrow_csv.open_csv(
            _stream(path),
            # Threads read ahead of one another, and hold what they have read.
            read_options=arrow_csv.ReadOptions(column_names=header, skip_rows=1, use_threads=False),
            parse_options=arrow_csv.ParseOptions(
                delimiter=delimiter, quote_char='"' if quoted else False, newlines_in_values=quoted
            ),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=[column], column_types={column: pyarrow.string()}, strings_can_be_null=False
            ),
        )
        yield from (batch.column(0) for batch in batches)

    return parts


def _json_column(path: Path, column: str) -> Iterator[Any]:
    """Yield a column of a file with one JSON object per line, as arrays of pyarrow's."""
    import pyarrow
    from pyarrow import json as arrow_json

    for kind in (pyarrow.string(), pyarrow.int64()):
        try:
            batches = arrow_json.open_json(  # which reads the first lines
                _stream(path),
                read_options=arrow_json.ReadOptions(use_threads=False),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=pyarrow.schema([(column, kind)]), unexpected_field_behavior="ignore"
                ),
            )
            break
        except pyarrow.ArrowInvalid:
            continue
    else:
        raise ValueError("the column holds neither texts alone nor whole numbers alone")
    yield from (batch.column(0) for batch in batches)


def _parquet_column(path: Path, column: str) -> Iterator[Any]:
    """Yield a column of a Parquet file, as arrays of pyarrow's."""
    for table in parquet_batches(path, 8 * BLOCK, columns=[column], most_field=4 * MAX_FIELD):
        if not table.num_columns:
            raise ValueError("there is no such column")
        yield table.column(0)


_COUNTED: dict[str, Callable[[Path, str], Iterator[Any]]] = {
    ".csv": _delimited_column(","),
    ".tsv": _delimited_column("\t"),
    ".jsonl": _json_column,
    ".parquet": _parquet_column,
}


_READERS: dict[str, Reader] = {
    ".csv": _delimited(","),
    ".tsv": _delimited("\t"),
    ".jsonl": _of_lines(_json_lines),
    ".parquet": _read_parquet,
    ".conllu": _of_lines(_treebank),
    ".txt": _of_lines(_plain_lines),
}
