"""Checked reading of JSON, safetensors and Parquet files that may be damaged, or written by an attacker.

Each reader bounds what it reads, and raises the given LayerscopeError with the file, the fault and the way out. Parquet
files can be small on the disk and huge in memory, so the size of a table is estimated before it is decoded.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from layerscope.errors import DataError, LayerscopeError, first_line

if TYPE_CHECKING:
    from torch import Tensor


MOST_BYTES = 64 << 20  # of a JSON file
DEEPEST = 64  # levels of lists and objects in a JSON value
MOST_DIGITS = 40  # of a whole number; tokenizers write 1e30 for "no limit"
_ROWS = 65536  # of a tensor or a table are checked together
_SHOWN = 60  # characters of a name in a message


class Saved(BaseModel):
    """The base of schemas of saved files: fields must have exactly their types, and other fields are ignored."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", protected_namespaces=())


Schema = TypeVar("Schema", bound=BaseModel)
Read = TypeVar("Read")


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; raises ValueError if it is nested too deeply or holds half a character."""
    try:
        text = text.decode("utf-8") if isinstance(text, bytes) else text
        # A decoder is made once, where `json.loads` makes one for each text; a byte-order mark is left to its sentence.
        value = json.loads(text) if text.startswith("\ufeff") else _DECODER.decode(text)
    except RecursionError:
        raise ValueError(f"it is nested more than {DEEPEST} deep") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 text: byte {error.start} cannot be read") from None
    # Most texts have too few brackets to be nested so deeply, and no half character, escaped or not.
    if text.count("[") + text.count("{") <= DEEPEST and "\\ud" not in text and "\\uD" not in text and is_whole(text):
        return value
    for depth, part in _parts(value):
        if depth > DEEPEST:
            raise ValueError(f"it is nested more than {DEEPEST} deep")
        if isinstance(part, str) and not is_whole(part):
            raise ValueError(f"{part[:_SHOWN]!a} holds half a character (a lone surrogate)")
    return value


def shaped(value: Any, schema: type[Schema]) -> Schema:
    """Return a value validated by a schema; raises ValueError with the first thing that is wrong."""
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part)[:_SHOWN] for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        message = message[:1].lower() + message[1:]
        raise ValueError(f"{place}: {message}" if place else message) from None


def read_json(
    path: Path, schema: type[Schema], *, error: type[LayerscopeError] = DataError, way_out: str = ""
) -> Schema:
    """Return a JSON file validated by a schema, or raise `error` with what is wrong with it, ended by `way_out`."""
    return read_or_raise(lambda: shaped(parse_json(_content(path)), schema), path, error, way_out)


def read_object(path: Path, *, error: type[LayerscopeError] = DataError, way_out: str = "") -> dict[str, Any]:
    """Return the object in a JSON file that has no schema; errors are those of `read_json`."""

    def read() -> dict[str, Any]:
        value = parse_json(_content(path))
        if not isinstance(value, dict):
            raise ValueError("it is not a JSON object")
        return value

    return read_or_raise(read, path, error, way_out)


def read_value(path: Path, *, error: type[LayerscopeError] = DataError, way_out: str = "") -> Any:
    """Return the value in a JSON file that has no schema; errors are those of `read_json`."""
    return read_or_raise(lambda: parse_json(_content(path)), path, error, way_out)


def read_or_raise(read: Callable[[], Read], path: Path, error: type[LayerscopeError], way_out: str = "") -> Read:
    """Return what `read` returns; what it raises becomes an `error` that names the file and ends with `way_out`."""
    try:
        return read()
    except FileNotFoundError:
        reason = "is not there"
    except OSError as problem:
        reason = f"cannot be read ({problem.strerror or problem})"
    except json.JSONDecodeError as problem:
        reason = f"is not JSON ({problem})"
    except ValueError as problem:
        reason = f"is damaged ({problem})"
    raise error(f"{path} {reason}{'; ' if way_out else ''}{way_out}.")


def inside(folder: Path, name: str, error: type[LayerscopeError] = DataError) -> Path:
    """Return the path of a folder's file, or raise `error` where the name, or a link of that name, leads out of it."""
    path = folder / name
    plain = name not in ("", ".", "..") and Path(name).name == name and "\0" not in name and is_whole(name)
    if not plain or not path.resolve().is_relative_to(folder.resolve()):
        raise error(f"{folder} names the file {name[:_SHOWN]!a}, which is not in it; only files of a folder are read.")
    return path


class TensorFile:
    """A safetensors file with a valid header. Tensors are memory-mapped, and read when they are asked for."""

    def __init__(self, path: Path, error: type[LayerscopeError], way_out: str) -> None:
        from safetensors import safe_open

        def open_file() -> Any:
            _check_regular(path.stat())  # safe_open would wait for a pipe for ever
            return safe_open(str(path), framework="pt")

        self.path, self._error, self._way_out = path, error, way_out
        self._file = self._try(open_file)
        self.names: list[str] = list(self._file.keys())

    @property
    def metadata(self) -> dict[str, str]:
        """The strings that the header holds beside the tensors."""
        return self._try(self._file.metadata) or {}

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape from the header, without reading the tensor."""
        return tuple(self._try(lambda: self._file.get_slice(name).get_shape()))

    def dtype(self, name: str) -> str:
        """Return a tensor's type from the header, such as F32."""
        return str(self._try(lambda: self._file.get_slice(name).get_dtype()))

    def tensor(self, name: str, start: int | None = None, stop: int | None = None) -> Tensor:
        """Read a tensor, or its rows from `start` to `stop`."""
        if start is None and stop is None:
            return self._try(lambda: self._file.get_tensor(name))
        return self._try(lambda: self._file.get_slice(name)[start:stop])

    def finite(self, name: str, what: str, first: int = 0) -> None:
        """Raise this file's error unless every entry is a finite number; `what` says whose rows these are."""
        rows = (self.shape(name) or (1,))[0]
        for start in range(0, rows, _ROWS):
            part = self.tensor(name, start, start + _ROWS) if self.shape(name) else self.tensor(name)
            if (row := first_bad_row(part)) is not None:
                self._fail(f"{what}, row {first + start + row} holds a value that is not a finite number")

    def require(self, shapes: dict[str, tuple[int | None, ...]]) -> None:
        """Raise this file's error unless these tensors are there with these shapes; None is any length."""
        for name, wanted in shapes.items():
            if name not in self.names:
                self._fail(f"it holds no {name}")
            shape = self.shape(name)
            if len(shape) != len(wanted) or any(w not in (None, s) for w, s in zip(wanted, shape, strict=True)):
                spelled = ", ".join("any" if w is None else str(w) for w in wanted)
                self._fail(f"{name} has shape {shape} where ({spelled}) is needed")

    def _fail(self, reason: str) -> None:
        raise self._error(f"{self.path} is damaged: {reason}{'; ' if self._way_out else ''}{self._way_out}.")

    def _try(self, act: Any) -> Any:
        """Return what `act()` returns; whatever a damaged file makes it raise becomes this file's error."""
        from safetensors import SafetensorError

        try:
            return act()
        except FileNotFoundError:
            raise self._error(f"{self.path} is not there{'; ' if self._way_out else ''}{self._way_out}.") from None
        except (SafetensorError, OSError, ValueError, TypeError, RuntimeError, KeyError, AttributeError) as problem:
            first = (str(problem).splitlines() or [type(problem).__name__])[0].rstrip(".")
            raise self._error(
                f"{self.path} is damaged or not a safetensors file ({first}){'; ' if self._way_out else ''}"
                f"{self._way_out}."
            ) from problem


def first_bad_row(tensor: Tensor) -> int | None:
    """Return the first row of a tensor with an entry that is not a finite number, or None."""
    import torch

    if not tensor.is_floating_point() or bool(torch.isfinite(tensor).all()):
        return None
    bad = ~torch.isfinite(tensor.reshape(len(tensor) if tensor.ndim else 1, -1)).all(dim=1)
    return int(bad.nonzero()[0])


def open_tensors(path: Path, *, error: type[LayerscopeError] = DataError, way_out: str = "") -> TensorFile:
    """Open a safetensors file, or raise `error` with what is wrong with it, ended by `way_out`."""
    return TensorFile(path, error, way_out)


def is_whole(text: str) -> bool:
    """Return whether a text can be encoded: half a character (a lone surrogate) cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_regular(status: os.stat_result) -> None:
    """Raise OSError unless a status is that of a plain file."""
    if not stat.S_ISREG(status.st_mode):
        raise OSError("it is not a plain file")


def _content(path: Path) -> bytes:
    """Return a file's bytes, or raise ValueError where there are more than a JSON file may have."""
    # Opened without blocking, then checked: a pipe would be waited for, and a name may change between check and open.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        _check_regular(os.fstat(descriptor))
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
    return content


def _whole_number(text: str) -> int:
    """Return the whole number that JSON's digits stand for; raises ValueError if there are too many."""

    if len(text) > MOST_DIGITS:
        raise ValueError(f"it holds a whole number of {len(text)} digits")
    return int(text)


_DECODER = json.JSONDecoder(parse_int=_whole_number)


def _parts(value: Any) -> Iterator[tuple[int, Any]]:
    """Iterate over everything in a JSON value, names of fields included, with its depth."""
    # A loop and not a recursion: the value may be nested as deeply as Python's parser allows.
    waiting = [(0, value)]
    while waiting:
        depth, part = waiting.pop()
        yield depth, part
        if isinstance(part, dict):
            waiting += [(depth + 1, item) for pair in part.items() for item in pair]
        elif isinstance(part, list):
            waiting += [(depth + 1, item) for item in part]


MOST_VALUES = 20_000_000  # in one table of a record
MOST_TEXT = 256 << 20  # bytes of text in one table of a record


def read_parquet(path: Path, **limits: Any) -> Any:
    """Return the pyarrow table in a file; limits and errors are those of `parquet_batches`."""
    import pyarrow

    return pyarrow.concat_tables(parquet_batches(path, _ROWS, **limits))


def parquet_batches(
    path: Path,
    rows: int,
    *,
    columns: Sequence[str] | None = None,
    most_values: int | None = None,
    most_text: int | None = None,
    most_field: int | None = None,
    option: str = "",
    error: type[LayerscopeError] = DataError,
    way_out: str = "",
) -> Iterator[Any]:
    """Yield the pyarrow table in a file in pieces, at least one, or raise `error` with what is wrong with it.

    Args:
        path: One plain file.
        rows: How many rows a piece has.
        columns: The columns that are read, of those that there are; all if not given.
        most_values: How many values the file may hold.
        most_text: How many bytes of text may be read; half of the machine's memory if not given.
        most_field: How many bytes one text may have.
        option: What the message says, before `way_out`, about the option that raises the limits of text.
        error: The class of the error.
        way_out: The end of the error's message.
    """
    import pyarrow
    import pyarrow.parquet

    end = f"; {way_out}." if way_out else "."
    most_text = most_text or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    total = 0
    try:
        if not path.is_file():
            raise FileNotFoundError("it is not there")
        file = pyarrow.parquet.ParquetFile(path)
        schema = file.schema_arrow
        count = file.metadata.num_rows * file.metadata.num_columns
        texts = [field.name for field in schema if _is_text(field.type)]
        if len(set(schema.names)) != len(schema.names):
            raise error(f"{path} names a column twice: {', '.join(schema.names[:20])}{end}")
        if most_values is not None and count > most_values:
            raise error(f"{path} holds {count:,} values; at most {most_values:,} are read{end}")
        wanted = [field for field in schema if columns is None or field.name in columns]
        schema = pyarrow.schema(wanted, metadata=schema.metadata)
        # Read as dictionaries, repeated texts are in memory once; they are decoded only after their size is checked.
        file = pyarrow.parquet.ParquetFile(path, read_dictionary=texts, pre_buffer=False)
        if not file.metadata.num_rows:
            yield schema.empty_table()
        for batch in file.iter_batches(batch_size=rows, columns=None if columns is None else schema.names):
            table = pyarrow.Table.from_batches([batch])
            total += _size_of_texts(path, table, most_field, error, f"{option}{end}")
            if total > most_text:
                raise error(
                    f"{path} holds up to {total / 1e9:,.1f} GB of text; at most {most_text / 1e9:,.1f} are read"
                    f"{option}{end}"
                )
            yield table.cast(schema)
    except (OSError, pyarrow.ArrowException, ValueError, MemoryError) as problem:
        if isinstance(problem, LayerscopeError):
            raise
        raise error(f"{path} is missing or damaged, or not a Parquet file ({first_line(problem)}){end}") from problem


def _is_text(kind: Any) -> bool:
    import pyarrow.types as kinds

    return kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_binary(kind)


def _size_of_texts(path: Path, table: Any, most_field: int | None, error: type[LayerscopeError], end: str) -> int:
    """Return how many bytes decoded texts take at most; raise `error` where one of them is too long.

    It is an upper bound: every text of a chunk counts as long as the longest one.
    """
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
    return total
