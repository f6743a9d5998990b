"""What a label column means: classes by name, or a number."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_SHOWN = 200  # characters of what a message repeats
_NOT_ONE = (list, tuple, dict, bytes)  # what a column may hold that is several labels, or bytes


@dataclass(frozen=True)
class Labels:
    """What the label column means: classes by name, or a number."""

    names: tuple[str, ...] = ()
    number: bool = False
    ordered: bool = True  # whether the order of the names means something, and is not just that of the alphabet

    def read(self, value: Any) -> float | int | str:
        """The value's class or number; a sentence if it is neither."""
        if is_missing(value):
            return "the label is missing"
        if isinstance(value, _NOT_ONE):
            return f"{shown(value)} is not one label, a name or a number"
        index = as_number(value)
        if self.number:
            return f"{shown(value)} is not a number" if index is None or not np.isfinite(index) else float(index)
        if label_name(value) in self.names:
            return self.names.index(label_name(value))
        if index is not None and index in range(len(self.names)) and self._indexed:
            return int(index)
        return f"{shown(value)} is not one of the labels {shortened(', '.join(self.names))}"

    @property
    def _indexed(self) -> bool:
        """Whether a number may mean the place in the list: not where the names are numbers themselves."""
        return not all(as_number(name) is not None for name in self.names)


def shown(value: Any) -> str:
    """A value as a message shows it."""
    return shortened(repr(value))


def shortened(text: str) -> str:
    """The beginning of a text that is long."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}.."


def as_number(value: Any) -> float | None:
    """The value as a number, or None; also for the strings that CSV gives."""
    if isinstance(value, _NOT_ONE):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def is_missing(value: Any) -> bool:
    """None, an empty text, or a NaN in whatever spelling."""
    number = as_number(value)
    return (
        value is None or (isinstance(value, str) and not value.strip()) or (number is not None and math.isnan(number))
    )


def label_name(value: Any) -> str:
    """A label's name; a whole number is named alike however it is written (1, 1.0, "1.0")."""
    number = as_number(value)
    if isinstance(value, bool) or number is None or not number.is_integer() or "." not in str(value):
        return str(value).strip()
    return str(int(number))


def infer_labels(values: Iterable[Any], number: bool | None = None) -> Labels:
    """What a label column means, from all its values: mostly numbers, some with a fraction, are a regression.

    The rest are classes. Their names are in sorted order (numerically if they are whole numbers), so that every split
    agrees.
    """
    present = [v for v in values if not is_missing(v) and not isinstance(v, _NOT_ONE)]
    numbers = [n for n in map(as_number, present) if n is not None]
    whole = all(n.is_integer() for n in numbers)
    if number or (number is None and not whole and 2 * len(numbers) > len(present)):
        return Labels(number=True)
    names = {label_name(v) for v in present}
    as_numbers = whole and len(numbers) == len(present) and not any(isinstance(v, bool) for v in present)
    order = tuple(sorted(names, key=float) if as_numbers else sorted(names))
    return Labels(order, ordered=order == tuple(map(str, range(len(order)))))


def hidden(values: Sequence[Any]) -> bool:
    """Whether a test split hides its labels: every one is -1 or absent, as GLUE does."""
    return all(as_number(v) == -1 or is_missing(v) for v in values) and any(as_number(v) == -1 for v in values)


def pick(value: Any, pattern: str | None) -> Any:
    """The part of a label's value that the pattern matches."""
    if pattern is None or value is None:
        return value
    match = re.search(pattern, str(value))
    return match.group(0) if match else value
