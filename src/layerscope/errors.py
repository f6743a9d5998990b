"""Errors and the checks that raise them. A message says what was asked, found and allowed, and the way out."""

from __future__ import annotations

import difflib
import errno
import logging
import re
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

log = logging.getLogger("layerscope")
NOTICE = 25  # between INFO and WARNING: the command line shows it, and Python stays silent
_LONG = 60  # characters of a name in a message


class LayerscopeError(Exception):
    """Any mistake that a user can fix. The message is a full sentence.

    Example:
        >>> import layerscope as ls
        >>> try:
        ...     ls.LayerPlan(keep=[2, 1])
        ... except ls.LayerscopeError as error:
        ...     print(error)
        keep is [2, 1]; blocks are numbered from 1, each once and in order.
    """


class InputError(LayerscopeError, ValueError):
    """Raised where an argument has a value that cannot be used."""


class UnknownNameError(LayerscopeError, KeyError):
    """Raised where a name is not in the list of what there is."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0])


class DataError(InputError):
    """Raised where a file, a column or a row cannot be read as it was asked for."""


class ModelError(InputError):
    """Raised where a checkpoint or an architecture cannot be used correctly."""


class PlanError(ModelError):
    """Raised where an architecture cannot be cut by a plan, however much memory there is."""


class TargetError(InputError):
    """Raised where the work is done and nothing that came out meets what was asked for."""


class StoreError(LayerscopeError):
    """Raised where the store cannot be read or written."""


class PlatformError(LayerscopeError, ImportError):
    """Raised where layerscope is imported on a platform that it does not run on."""


class LayerscopeWarning(UserWarning):
    """Warns about something that is allowed but seldom meant."""


def near(name: str, allowed: Iterable[str]) -> str:
    """Return `' Did you mean 'sst2'?'` for a near miss, else an empty string."""
    spelled = {each.lower(): each for each in allowed}
    close = [spelled[c] for c in difflib.get_close_matches(name.lower(), list(spelled), n=2, cutoff=0.6)]
    return f" Did you mean {' or '.join(repr(c) for c in close)}?" if close else ""


def first_line(error: BaseException) -> str:
    """Return the message of another library's error in one line, with the error's class where it says little."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = " ".join(lines[:2] if lines and lines[0].endswith(":") else lines[:1]).rstrip(".")[:300]
    kind = type(error).__name__
    return kind if not message else f"{kind}: {message}" if isinstance(error, (KeyError, IndexError)) else message


_NO_MEMORY = re.compile(r"out of memory|can('t|not) allocate memory|not enough memory|bad.alloc", re.IGNORECASE)
_BROKEN = re.compile(
    r"(CUDA|HIP|cuDNN|CUBLAS\w*) (driver )?error|CUBLAS_STATUS|CUDNN_STATUS|accelerator error", re.IGNORECASE
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that memory ran out; on a CPU only the words of torch's RuntimeError tell."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error)) is not None


def device_fault(error: BaseException) -> str | None:
    """Return what memory or a device refused, in a few words; None for an error of another kind."""
    if is_out_of_memory(error):
        return f"memory ran out ({first_line(error)})"
    if isinstance(error, RuntimeError) and _BROKEN.search(str(error)):
        return f"the device failed ({first_line(error)})"
    return None


def some(names: Iterable[str], most: int = 20) -> str:
    """Return names with commas between them, only the first of many, so that a message stays readable."""
    spelled = [name if len(name) <= _LONG else f"{name[:_LONG]}.." for name in map(str, names)]
    more = f" and {len(spelled) - most} more" if len(spelled) > most else ""
    return ", ".join(spelled[:most]) + more


def whole(value: Any) -> bool:
    """Return whether a value is a whole number of Python or numpy. Booleans are not accepted."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_count(count: int | None, name: str) -> None:
    """Raise InputError unless the setting of that name is a whole number of at least 1, or None."""
    if count is not None and (not whole(count) or count < 1):
        raise InputError(f"{name} is {count}; it must be a whole number of at least 1.")


MOST_SEEDS = 10_000  # that are asked for by their count


def check_seed(seed: int) -> int:
    """Return the seed if numpy and torch can both be seeded with it, else raise InputError."""
    if not isinstance(seed, Integral) or not 0 <= seed < 1 << 32:
        raise InputError(f"seed is {seed}; it must be a whole number from 0 to {(1 << 32) - 1}.")
    return int(seed)


def check_level(ci: float | None) -> None:
    """Raise InputError unless `ci` is the level of an interval, such as 0.95, or None."""
    if ci is not None and not (isinstance(ci, Real) and 0 < ci < 1):
        raise InputError(f"ci is {ci}; it must be between 0 and 1, such as 0.95.")


def unknown(kind: str, name: str, allowed: Iterable[str]) -> UnknownNameError:
    """Return the error for an unknown name, which suggests near names and lists all of them."""
    allowed = sorted(allowed)
    return UnknownNameError(f"There is no {kind} {name!r}.{near(name, allowed)} Known: {', '.join(allowed)}.")


def choose(kind: str, value: str, allowed: Iterable[str]) -> str:
    """Return `value` if it is allowed, else raise InputError with what is."""
    allowed = tuple(allowed)
    if value not in allowed:
        raise InputError(f"There is no {kind} {value!r}; allowed: {', '.join(allowed)}.{near(str(value), allowed)}")
    return value
