"""Reading what may be damaged or made up: one way for JSON, one for tensors; whatever is wrong is a sentence."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from layerscope.errors import DataError, LayerscopeError

if TYPE_CHECKING:
    from torch import Tensor

MOST_BYTES = 64 << 20  # of a JSON file
DEEPEST = 64  # lists and objects in one another
MOST_DIGITS = 40  # of a whole number; tokenizers write 1e30 for "no limit"
_ROWS = 65536  # looked at together
_SHOWN = 60  # characters of a name in a message


class Saved(BaseModel):
    """What a saved object says of itself: fields of exactly these types; what else stands there is left alone."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", protected_namespaces=())


Schema = TypeVar("Schema", bound=BaseModel)
Read = TypeVar("Read")


def parse_json(text: str | bytes) -> Any:
    """JSON of bounded depth whose texts are whole characters; raises ValueError with the reason in a few words."""
    try:
        value = json.loads(text.decode("utf-8") if isinstance(text, bytes) else text, parse_int=_whole_number)
    except RecursionError:
        raise ValueError(f"it is nested more than {DEEPEST} deep") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 text: byte {error.start} cannot be read") from None
    for depth, part in _parts(value):
        if depth > DEEPEST:
            raise ValueError(f"it is nested more than {DEEPEST} deep")
        if isinstance(part, str) and not is_whole(part):
            raise ValueError(f"{part[:_SHOWN]!a} holds half a character (a lone surrogate)")
    return value


def shaped(value: Any, schema: type[Schema]) -> Schema:
    """A value as a schema has it; raises ValueError with the first thing that is wrong."""
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part)[:_SHOWN] for part in first["loc"])
        said = first["msg"][:1].lower() + first["msg"][1:]
        raise ValueError(f"{place}: {said}" if place else said) from None


def read_json(
    path: Path, schema: type[Schema], *, error: type[LayerscopeError] = DataError, way_out: str = ""
) -> Schema:
    """A JSON file as a schema has it, or the sentence that says what is wrong with it, ended by `way_out`."""
    return shaped_or(lambda: shaped(parse_json(_content(path)), schema), path, error, way_out)


def read_object(path: Path, *, error: type[LayerscopeError] = DataError, way_out: str = "") -> dict[str, Any]:
    """The same for a file of which nothing is known but that it holds an object."""
    return shaped_or(lambda: _object(parse_json(_content(path))), path, error, way_out)


def read_value(path: Path, *, error: type[LayerscopeError] = DataError, way_out: str = "") -> Any:
    """The same for a file of which nothing is known."""
    return shaped_or(lambda: parse_json(_content(path)), path, error, way_out)


def shaped_or(read: Callable[[], Read], path: Path, error: type[LayerscopeError], way_out: str = "") -> Read:
    """What `read` gives; what it raises as a sentence about a file."""
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


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value


def inside(folder: Path, name: str, error: type[LayerscopeError] = DataError) -> Path:
    """The file of that name in a folder; a name that leads out of it is refused, and so is a link that does."""
    path = folder / name
    plain = name not in ("", ".", "..") and Path(name).name == name and "\0" not in name and is_whole(name)
    if not plain or not path.resolve().is_relative_to(folder.resolve()):
        raise error(f"{folder} names the file {name[:_SHOWN]!a}, which is not in it; only files of a folder are read.")
    return path


class TensorFile:
    """A safetensors file whose header is sound; tensors are memory-mapped, and read when they are asked for."""

    def __init__(self, path: Path, error: type[LayerscopeError], way_out: str) -> None:
        self.path, self._error, self._way_out = path, error, way_out
        self._file = self._try(lambda: _safe_open(path))
        self.names: list[str] = list(self._file.keys())

    @property
    def metadata(self) -> dict[str, str]:
        """What stands in the header beside the tensors."""
        return self._try(self._file.metadata) or {}

    def shape(self, name: str) -> tuple[int, ...]:
        """From the header, without reading the tensor."""
        return tuple(self._try(lambda: self._file.get_slice(name).get_shape()))

    def dtype(self, name: str) -> str:
        """From the header, such as F32."""
        return str(self._try(lambda: self._file.get_slice(name).get_dtype()))

    def tensor(self, name: str, start: int | None = None, stop: int | None = None) -> Tensor:
        """A tensor, or some of its rows."""
        if start is None and stop is None:
            return self._try(lambda: self._file.get_tensor(name))
        return self._try(lambda: self._file.get_slice(name)[start:stop])

    def finite(self, name: str, what: str, first: int = 0) -> None:
        """Raise a sentence unless every entry is a finite number; `what` says whose rows these are."""
        rows = (self.shape(name) or (1,))[0]
        for start in range(0, rows, _ROWS):
            part = self.tensor(name, start, start + _ROWS) if self.shape(name) else self.tensor(name)
            if (row := first_bad_row(part)) is not None:
                self._fail(f"{what}, row {first + start + row} holds a value that is not a finite number")

    def require(self, shapes: dict[str, tuple[int | None, ...]]) -> None:
        """Raise a sentence unless these tensors are there with these shapes; None is any length."""
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
        from safetensors import SafetensorError

        try:
            return act()
        except FileNotFoundError:
            raise self._error(f"{self.path} is not there{'; ' if self._way_out else ''}{self._way_out}.") from None
        except (SafetensorError, OSError, ValueError, TypeError, RuntimeError, KeyError, AttributeError) as problem:
            first = (str(problem).splitlines() or [type(problem).__name__])[0].rstrip(".")
            raise self._error(
                f"{self.path} is damaged or no safetensors file ({first}){'; ' if self._way_out else ''}"
                f"{self._way_out}."
            ) from problem


def first_bad_row(tensor: Tensor) -> int | None:
    """The first row of a tensor with an entry that is not a finite number, or None."""
    import torch

    if not tensor.is_floating_point() or bool(torch.isfinite(tensor).all()):
        return None
    bad = ~torch.isfinite(tensor.reshape(len(tensor) if tensor.ndim else 1, -1)).all(dim=1)
    return int(bad.nonzero()[0])


def open_tensors(path: Path, *, error: type[LayerscopeError] = DataError, way_out: str = "") -> TensorFile:
    """A safetensors file, or the sentence that says what is wrong with it, ended by `way_out`."""
    return TensorFile(path, error, way_out)


def is_whole(text: str) -> bool:
    """Whether a text can be written: half a character (a lone surrogate) cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _safe_open(path: Path) -> Any:
    from safetensors import safe_open

    _check_regular(path.stat())  # a pipe would be waited for
    return safe_open(str(path), framework="pt")


def _check_regular(about: os.stat_result) -> None:
    if not stat.S_ISREG(about.st_mode):
        raise OSError("it is not a plain file")


def _content(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        _check_regular(os.fstat(descriptor))
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
    return content


def _whole_number(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"it holds a whole number of {len(text)} digits")
    return int(text)


def _parts(value: Any) -> Iterator[tuple[int, Any]]:
    """Everything in a JSON value with its depth, names of fields among it."""
    waiting = [(0, value)]
    while waiting:
        depth, part = waiting.pop()
        yield depth, part
        if isinstance(part, dict):
            waiting += [(depth + 1, item) for pair in part.items() for item in pair]
        elif isinstance(part, list):
            waiting += [(depth + 1, item) for item in part]
