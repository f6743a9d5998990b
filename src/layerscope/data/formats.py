"""Files and frames become tables: columns of values, and for each row the place that it came from.

The ending of a file decides how it is read. Broken lines are set apart in the table, for the caller to count or refuse;
a file that cannot be read at all raises DataError.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from layerscope.errors import DataError, InputError, first_line, near, some, whole
from layerscope.store import parse_json
from layerscope.store.validated import read_parquet


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
        """Return the column `name`, or raise DataError with the names that there are."""
        if name not in self.columns:
            raise DataError(
                f"{self.name} has no column {name!r} for the {what}; it has {some(map(repr, self.columns))}."
                + near(name, self.columns)
            )
        return self.columns[name]

    def bad(self, row: int, column: str, reason: str) -> BadRow:
        return BadRow(self.name, self.places(row), column, reason)


def frame_table(frame: Any, name: str, place: str = "row") -> Table:
    """Return a pandas or pyarrow table as a Table, whose messages count rows from 1."""
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


MAX_FIELD = 10_000_000  # characters of one field: a whole book fits, and what unpacks to gigabytes does not
_FIELDS = 4  # how many fields of the greatest length a line may hold
_MOST_COLUMNS = 10_000


def read(path: Path, max_field: int = MAX_FIELD) -> Table:
    """Read a file by its ending, which `.gz` may follow; a field may have at most `max_field` characters."""
    if not readable(path):
        raise DataError(f"{path} has an ending that cannot be read; allowed: {endings()}, each also with .gz.")
    if not os.path.exists(path):
        raise DataError(f"There is no file {path}.")
    if not os.path.isfile(path):
        raise DataError(f"{path} is not a file that can be read as data.")
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty.")
    try:
        table = _READERS[_ending(path)](path, check_max_field(max_field))
    except UnicodeDecodeError as error:
        encoding = "utf-16" if error.object[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "latin1"
        raise DataError(
            f"{path} is not UTF-8 text: byte {error.start} cannot be read; convert it first, for example with: "
            f"iconv -f {encoding} -t utf-8 {path.name} > utf-8-{path.name}."
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {first_line(error)}.") from error
    if not len(table):
        raise DataError(f"{path} has no usable row: {table.broken[0]}." if table.broken else f"{path} holds no rows.")
    return table


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


def _lines_table(
    path: Path, header: Sequence[str], rows: Sequence[tuple[int, Sequence[Any]]], broken: list[BadRow]
) -> Table:
    """Return the table of a text file from (line, values) pairs; broken lines keep their place in the numbering."""
    if len(header) > _MOST_COLUMNS:
        raise DataError(f"{path} has {len(header):,} columns; at most {_MOST_COLUMNS:,} are read.")
    lines = [line for line, _ in rows]
    columns = {name: [values[i] for _, values in rows] for i, name in enumerate(header)}
    return Table(str(path), columns, _numbers(lines, broken), lambda row: f"line {lines[row]}", broken)


def _numbers(lines: list[int], broken: list[BadRow]) -> list[int]:
    """Return row numbers from 0, counting broken lines too, so that a row keeps its number when they are fixed."""
    if not broken:
        return list(range(len(lines)))
    gaps = sorted(int(bad.place.split()[1]) for bad in broken)
    numbers, passed = [], 0
    for i, line in enumerate(lines):
        while passed < len(gaps) and gaps[passed] < line:
            passed += 1
        numbers.append(i + passed)
    return numbers


def _read_delimited(delimiter: str) -> Callable[[Path, int], Table]:
    """Return the reader of files whose fields are separated by commas (with quotes) or tabs (without)."""

    def read_file(path: Path, max_field: int) -> Table:
        rows: list[tuple[int, list[str | None]]] = []
        broken: list[BadRow] = []
        quoting = {"quoting": csv.QUOTE_MINIMAL} if delimiter == "," else {"quoting": csv.QUOTE_NONE}
        csv.field_size_limit(max_field)
        with _open(path) as file:
            lines = _lines(path, file, _FIELDS * max_field)
            reader = csv.reader(lines, delimiter=delimiter, strict=delimiter == ",", **quoting)  # type: ignore[arg-type]
            header = _header(path, reader, max_field)
            _check_separator(path, header, delimiter)
            if len(set(header)) != len(header):
                raise DataError(f"{path} names a column twice in its header: {some(header)}.")
            while True:
                line, reason = reader.line_num + 1, ""
                try:
                    values = next(reader)
                    if values and len(values) != len(header):
                        reason = f"{len(values)} fields where the header has {len(header)}"
                except StopIteration:
                    break
                except csv.Error as error:  # the next line is read on its own again
                    lost = reader.line_num - line
                    reason = _spelled(error, max_field)
                    reason += f"; the {lost} lines after it are lost with it" if lost else ""
                if reason:
                    broken.append(BadRow(str(path), f"line {line}", "", reason))
                elif values:
                    rows.append((line, [value if value != "" else None for value in values]))
        return _lines_table(path, header, rows, broken)

    return read_file


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


def _read_jsonl(path: Path, max_field: int) -> Table:
    """Read a file with one JSON object per line."""
    records: list[tuple[int, dict[str, Any]]] = []
    broken: list[BadRow] = []
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
                records.append((line, value))
            except ValueError as error:
                broken.append(BadRow(str(path), f"line {line}", "", f"broken JSON ({error})"))
    header = list(dict.fromkeys(name for _, value in records for name in value))
    if len(header) > _MOST_COLUMNS:
        raise DataError(f"{path} has {len(header):,} columns; at most {_MOST_COLUMNS:,} are read.")
    rows = [(line, [value.get(name) for name in header]) for line, value in records]
    return _lines_table(path, header, rows, broken)


def _read_parquet(path: Path, max_field: int) -> Table:
    """Read a Parquet file."""
    hint = ", 4 for each character of max_field= (--max-field)"
    table = read_parquet(path, most_field=4 * max_field, option=hint)
    try:
        return frame_table(table, str(path))
    except (ValueError, OverflowError) as error:  # dates and numbers that Python does not have
        if isinstance(error, (DataError, UnicodeDecodeError)):
            raise
        raise DataError(f"{path} holds values that cannot be read: {first_line(error)}.") from error


def _read_lines(path: Path, max_field: int) -> Table:
    """Read a text file with one sentence per line, its words separated by whitespace."""
    with _open(path) as file:
        lines = enumerate(_lines(path, file, max_field), start=1)
        rows = [(line, (text.strip(), text.split())) for line, text in lines if text.strip()]
    return _lines_table(path, ("text", "words"), rows, [])


def _read_conllu(path: Path, max_field: int) -> Table:
    """Read a treebank: one row per sentence with its text, words, parts of speech, `sent_id` and `newdoc id`."""
    rows: list[tuple[int, list[Any]]] = []
    broken: list[BadRow] = []
    with _open(path) as file:
        document = None
        for start, lines in _sentences(_lines(path, file, max_field)):
            comments: dict[str, str] = {}
            words, upos, xpos, text, fault = [], [], [], "", None
            for number, line in lines:
                if line.startswith("#"):
                    key, _, value = line.lstrip("# ").partition("=")
                    comments[key.strip()] = value.strip()
                    continue
                fields = line.split("\t")
                if len(fields) != 10:
                    reason = f"{len(fields)} fields where CoNLL-U has 10"
                    fault = fault or BadRow(str(path), f"line {number}", "", reason)
                elif fields[0].isdigit():  # not 1-2 (a surface token of several words) nor 1.1 (an empty node)
                    words.append(fields[1])
                    upos.append(fields[3])
                    xpos.append(fields[4])
                    text += fields[1] + ("" if "SpaceAfter=No" in fields[9] else " ")
            document = comments.get("newdoc id", document)
            if fault:
                broken.append(fault)
            elif words:
                sentence = comments.get("text", text.strip())
                rows.append((start, [sentence, words, comments.get("sent_id"), document, upos, xpos]))
    return _lines_table(path, ("text", "words", "sent_id", "newdoc id", "upos", "xpos"), rows, broken)


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


_READERS: dict[str, Callable[[Path, int], Table]] = {
    ".csv": _read_delimited(","),
    ".tsv": _read_delimited("\t"),
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
    ".conllu": _read_conllu,
    ".txt": _read_lines,
}
