"""Columns of a table become examples: which column holds what, what labels mean, and which rows are bad.

A label column holds classes, by name or by number, or numbers to be predicted. What was not named is guessed where only
one reading is possible; rows that cannot be used are counted and named with their file and line.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerscope.data.examples import Examples
from layerscope.data.formats import BadRow, Table
from layerscope.data.registry import Columns
from layerscope.errors import DataError, log, some
from layerscope.store import is_whole

_LABELS_SHOWN = 200  # characters of what a message repeats
_NOT_ONE = (list, tuple, dict, bytes)  # types of values that are not one label


@dataclass(frozen=True)
class Labels:
    """The meaning of a label column: the names of its classes, or a number to be predicted."""

    names: tuple[str, ...] = ()
    number: bool = False
    ordered: bool = True  # whether the data itself gave the order of the names, and not the alphabet

    def read(self, value: Any) -> float | int | str:
        """Return a value's class or number, or as text the reason why it is neither."""
        if is_missing(value):
            return "the label is missing"
        if isinstance(value, _NOT_ONE):
            return f"{shown(value)} is not one label, a name or a number"
        index = as_number(value)
        if self.number:
            return f"{shown(value)} is not a number" if index is None or not np.isfinite(index) else float(index)
        if label_name(value) in self.names:
            return self.names.index(label_name(value))
        # A number is a place in the list of names, unless the names are numbers themselves: class "3" of "1", "2", "5"
        # is a mistake and not the fourth class.
        named_by_numbers = all(as_number(name) is not None for name in self.names)
        if index is not None and index in range(len(self.names)) and not named_by_numbers:
            return int(index)
        return f"{shown(value)} is not one of the labels {shortened(', '.join(self.names))}"


def shown(value: Any) -> str:
    """Return a value as a message shows it."""
    return shortened(repr(value))


def shortened(text: str) -> str:
    """Return a text, of a long one only the beginning."""
    return text if len(text) <= _LABELS_SHOWN else f"{text[:_LABELS_SHOWN]}.."


def as_number(value: Any) -> float | None:
    """Return a value, perhaps a string from a CSV file, as a number, or None where it is not one."""
    if isinstance(value, _NOT_ONE):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def is_missing(value: Any) -> bool:
    """Return whether a value is None, an empty text, or a NaN in whatever spelling."""
    number = as_number(value)
    return (
        value is None or (isinstance(value, str) and not value.strip()) or (number is not None and math.isnan(number))
    )


def label_name(value: Any) -> str:
    """Return a label's name; a whole number has one name however it is written (1, 1.0, "1.0")."""
    number = as_number(value)
    if isinstance(value, bool) or number is None or not number.is_integer() or "." not in str(value):
        return str(value).strip()
    return str(int(number))


class LabelColumn:
    """What is known of all values of a label column, which are read in pieces, or come with how often each is there.

    Memory grows with the names of classes alone: numbers with a fraction are counted, and read again if they turn out
    to be names.

    Attributes:
        rows: How many values there are.
        present: How many are not missing and can be one label.
        numbers: How many of those are numbers.
        fractions: How many of those have a fraction.
        booleans: Whether some are True or False.
        hidden: Whether every value is -1 or absent, as where a test split of GLUE hides its labels.
    """

    def __init__(self, pieces: Callable[[], Iterable[Sequence[Any] | Mapping[Any, int]]]) -> None:
        self._pieces = pieces
        self.rows = self.present = self.numbers = self.fractions = 0
        self.booleans, shown, minus = False, False, False
        self._names: set[str] = set()  # of values without a fraction
        for value, times in (pair for piece in pieces() for pair in _counted(piece)):
            number = as_number(value)
            missing = is_missing(value)
            self.rows += times
            minus |= number == -1
            shown |= not missing and number != -1
            if missing or isinstance(value, _NOT_ONE):
                continue
            self.present += times
            self.numbers += times * (number is not None)
            self.booleans |= isinstance(value, bool)
            if _has_fraction(number):
                self.fractions += times
            else:
                self._names.add(label_name(value))
        self.hidden = minus and not shown

    def names(self) -> set[str]:
        """Return the names of all values, as classes."""
        if not self.fractions:
            return self._names
        values = (value for piece in self._pieces() for value in piece)
        return self._names | {label_name(value) for value in values if _has_fraction(as_number(value))}


def _counted(values: Sequence[Any] | Mapping[Any, int]) -> Iterator[tuple[Any, int]]:
    """Yield values with their number, each text and whole number once."""
    if isinstance(values, Mapping):
        yield from values.items()
        return
    plain = [value for value in values if type(value) in (str, int)]  # no booleans: True equals 1
    yield from Counter(plain).items()
    if len(plain) < len(values):
        yield from ((value, 1) for value in values if type(value) not in (str, int))


def _has_fraction(number: float | None) -> bool:
    return number is not None and not math.isnan(number) and not number.is_integer()


def infer_labels(columns: Sequence[LabelColumn], number: bool | None = None) -> Labels:
    """Return what the label columns of all splits mean, judged by all of their values.

    Values that are mostly numbers, some of them with a fraction, are a regression; others are classes. The names of
    classes are sorted (numerically if they are whole numbers), so that every split agrees.
    """
    numbers, present = sum(column.numbers for column in columns), sum(column.present for column in columns)
    whole = not any(column.fractions for column in columns)
    if number or (number is None and not whole and 2 * numbers > present):
        return Labels(number=True)
    names = {name for column in columns for name in column.names()}
    as_numbers = whole and numbers == present and not any(column.booleans for column in columns)
    order = tuple(sorted(names, key=float) if as_numbers else sorted(names))
    return Labels(order, ordered=order == tuple(map(str, range(len(order)))))


def hidden(values: Sequence[Any]) -> bool:
    """Return whether a test split hides its labels, as in GLUE: every one is -1 or absent."""
    return all(as_number(v) == -1 or is_missing(v) for v in values) and any(as_number(v) == -1 for v in values)


def pick(value: Any, pattern: str | None) -> Any:
    """Return the part of a label's value that the pattern matches, or all of it where nothing matches."""
    if pattern is None or value is None:
        return value
    match = re.search(pattern, str(value))
    return match.group(0) if match else value


_TEXT_NAMES = ("text", "sentence", "content", "review", "document")
_PAIR_NAMES = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("text", "text_pair"),
)
_WORDS_NAMES = ("words", "tokens")
_LABEL_NAMES = ("label", "labels", "class", "target")
_SHOWN = 5  # bad rows that an error message lists
_HALF = "it holds half a character (a lone surrogate), which no model reads"


def index_labels(tables: Iterable[Table], columns: Columns) -> Labels:
    """Return the labels of a multiple-choice task, whose classes are the numbers of the choices from 0."""
    rows = (choices for table in tables for choices in _choices(table, columns.choices)[0] or ())
    return Labels(tuple(map(str, range(max((len(c) for c in rows if isinstance(c, list)), default=0)))))


def _choices(table: Table, alternatives: Sequence[Sequence[str]]) -> tuple[list[Any] | None, str]:
    """Return each row's list of choices and their columns' names, of the first alternative that the table has."""
    for names in alternatives:
        if all(name in table.columns for name in names):
            columns = [table.columns[name] for name in names]
            joined = columns[0] if len(columns) == 1 else [list(c) for c in zip(*columns, strict=True)]
            return joined, ", ".join(names)
    return None, ""


def guess_columns(table: Table, given: Columns) -> Columns:
    """Return the given columns, with the others guessed where there is only one way to read the table."""
    names = [name for name in table.columns if name not in given.label]
    label = given.label or _guess_label(table)
    changes: dict[str, Any] = {"label": label}
    if given.text is None and not given.words:
        changes |= _guess_text(table, [n for n in names if n not in label], given)
    return given.model_copy(update=changes)


def _guess_label(table: Table) -> tuple[str, ...]:
    """Return the name of the label column, or nothing where no column looks like one."""
    candidates = [
        name for name, values in table.columns.items() if name.lower() in _LABEL_NAMES and not _holds_lists(values)
    ]
    if "label" in candidates or len(candidates) < 2:
        return ("label",) if "label" in candidates else tuple(candidates)
    raise DataError(
        f"Which column of {table.name} holds the label is not clear: {some(map(repr, candidates))}. "
        "Name it: label='...', or --label on the command line."
    )


def _guess_text(table: Table, names: Sequence[str], given: Columns) -> dict[str, Any]:
    """Return the fields of `Columns` that say which of these columns hold the texts, or raise DataError."""
    for name in _WORDS_NAMES:
        if name in names and _texts_or_words(table, name).get("words"):
            return {"text": "text" if "text" in names else None, "words": (name,)}
    used = {given.text_pair, given.prompt, *(name for group in given.choices for name in group)}
    pairs = [pair for pair in _PAIR_NAMES if set(pair) <= set(names)]
    if len(pairs) == 1 and given.text_pair is None and not given.choices:
        return {"text": pairs[0][0], "text_pair": pairs[0][1]}
    named = [name for name in names if name.lower() in _TEXT_NAMES and name not in used]
    if len(named) == 1:
        return _texts_or_words(table, named[0])
    strings = [n for n in names if n not in used and _is_text(table.columns[n])]
    listed = some(map(repr, table.columns))
    # A column called "0.5" was the first row of a file without a header; columns 0, 1, .. are pandas' own names.
    counted = list(table.columns) == [str(k) for k in range(len(table.columns))]
    if len(strings) == 1 and not counted and any(as_number(name) is not None for name in table.columns):
        raise DataError(
            f"The columns of {table.name} are called {listed}, which looks like a first row; put a line with names "
            "above it, or name the text: text='...', or --text on the command line."
        )
    if len(strings) == 1:
        return _texts_or_words(table, strings[0])
    raise DataError(
        f"Which column of {table.name} holds the text is not clear; it has {listed}. Name it: text='...'"
        " (and text_pair='...', label='...'), or --text (--text-pair, --label) on the command line."
    )


def _texts_or_words(table: Table, name: str) -> dict[str, Any]:
    return {"words": (name,)} if _holds_lists(table.columns[name]) else {"text": name}


def _holds_lists(values: Sequence[Any]) -> bool:
    return isinstance(next((v for v in values if v is not None), None), list)


def _is_text(values: Sequence[Any]) -> bool:
    """Return whether a column holds strings, or lists of words, that are not all numbers."""
    present = [v for v in values[:1000] if v is not None]
    if not present or not all(isinstance(v, (str, list)) for v in present):
        return False
    return any(isinstance(v, list) or as_number(v) is None for v in present)  # ids and scores of a CSV are strings too


def build(
    table: Table,
    columns: Columns,
    labels: Labels | None,
    *,
    task: str,
    split: str,
    skip_bad: bool,
    may_lack_labels: bool,
    may_be_empty: bool = False,
    unlabelled: bool | None = None,
    least: int = 0,
) -> Examples | int:
    """Return the examples of a table. Bad rows are skipped and counted, or raise a DataError that names them.

    With `may_be_empty` a row without text is left out and not called bad: running text has empty lines. With
    `may_lack_labels` a split without the label column has no labels; else that is an error. `unlabelled` says whether
    the split hides its labels, where that is known. Where fewer than `least` rows can be used, returns their number.
    """
    reader = _Reader(table, columns)
    bad = list(table.broken)
    usable: list[int] = []
    values: list[float | int] = []
    tags = _Tags(table, columns, labels) if columns.tags and labels is not None else None
    column = _label_column(table, columns.label, may_lack_labels) if labels and tags is None else None
    if unlabelled is None:
        unlabelled = column is not None and hidden(table.columns[column])
    for row in range(len(table)):
        if may_be_empty and reader.empty(row):
            continue
        fault = reader.fault(row) or (None if tags is None else tags.fault(row, reader))
        value: float | int | str = 0
        if fault is None and column is not None and not unlabelled:
            assert labels is not None
            value = labels.read(pick(table.columns[column][row], columns.label_pattern))
            if not isinstance(value, str) and (most := reader.choice_count(row)) is not None and value >= most:
                value = f"choice {value} was named, and there are choices 0..{most - 1}"
            if isinstance(value, str):
                fault = table.bad(row, column, value)
        if fault is not None:
            bad.append(fault)
        else:
            usable.append(row)
            values.append(value)  # type: ignore[arg-type]
    if len(usable) < least:
        return len(usable)
    _report(bad, table, skip_bad)
    if not usable:
        raise DataError(f"{table.name} has no usable row: {bad[0] if bad else 'every text is empty'}.")
    has_labels = column is not None and not unlabelled
    number = labels is not None and labels.number
    return Examples(
        task=task,
        split=split,
        rows=np.asarray([table.numbers[row] for row in usable], dtype=np.int64),
        lines=np.asarray([table.lines[row] for row in usable], dtype=np.int64),
        counted=table.unit,
        labels=np.asarray(values, dtype=np.float64 if number else np.int64) if has_labels else None,
        label_names=labels.names if labels and not number else None,
        skipped=len(bad),
        tags=None if tags is None else [tags.read(row) for row in usable],
        **reader.columns(usable),
    )


class _Tags:
    """The column of a table that holds the tags of each row's words."""

    def __init__(self, table: Table, columns: Columns, labels: Labels) -> None:
        self.table, self.labels = table, labels
        self.name = next((name for name in columns.tags if name in table.columns), columns.tags[0])
        self.values = table.column(self.name, "tags")

    def fault(self, row: int, reader: _Reader) -> BadRow | None:
        """Return what is wrong with a row's tags, or None where there is one known tag for each word."""
        tags, words = self.values[row], None if reader.words is None else reader.words[row]
        if words is None:
            raise DataError(f"{self.table.name} has tags and no words; name a column with lists of words (words).")
        if not isinstance(tags, list) or len(tags) != len(words):
            count = len(tags) if isinstance(tags, list) else 0
            return self.table.bad(row, self.name, f"{count} tags for {len(words)} words")
        wrong = next((value for value in map(self.labels.read, tags) if isinstance(value, str)), None)
        return None if wrong is None else self.table.bad(row, self.name, wrong)

    def read(self, row: int) -> np.ndarray:
        return np.asarray([self.labels.read(tag) for tag in self.values[row]], dtype=np.int64)


def _report(bad: list[BadRow], table: Table, skip_bad: bool) -> None:
    """Raise DataError with the first bad rows, or only warn about them with `skip_bad`."""
    if not bad:
        return
    listed = "; ".join(map(str, bad[:_SHOWN])) + (f"; and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else "")
    count = f"{len(bad)} of {len(table) + len(table.broken)} rows of {table.name}"
    if not skip_bad:
        raise DataError(
            f"{count} cannot be used: {listed}. Fix them, or leave them out with skip_bad=True "
            "(--skip-bad on the command line)."
        )
    log.warning("%s are left out: %s.", count, listed)


def _label_column(table: Table, names: Sequence[str], may_lack: bool) -> str | None:
    """Return the first of the names that the table has, or None; raise DataError if the label may not be lacking."""
    column = next((name for name in names if name in table.columns), None)
    if names and column is None and not may_lack:
        table.column(names[0], "label")
    return column


class _Reader:
    """The columns of a table that hold texts, words and choices, read row by row."""

    def __init__(self, table: Table, columns: Columns) -> None:
        self.table = table
        self.words = self._list_column(columns.words)
        self.text = table.column(columns.text, "text") if columns.text else None
        self.pair = table.column(columns.text_pair, "second text") if columns.text_pair else None
        self.prompt = table.column(columns.prompt, "prompt") if columns.prompt else None
        self.choices, self.choice_columns = _choices(table, columns.choices)
        if columns.choices and self.choices is None:
            table.column(columns.choices[0][0], "choices")
        self.names = {"text": columns.text, "pair": columns.text_pair, "prompt": columns.prompt}
        self.words_name = next((n for n in columns.words if n in table.columns), "words")
        if self.text is None and self.words is None:
            raise DataError(f"{table.name}: no text column was named and none was found.")

    def _list_column(self, names: Sequence[str]) -> list[Any] | None:
        """Return the first of these columns that the table has; raise DataError if names were given and it has none."""
        column = next((name for name in names if name in self.table.columns), None)
        if names and column is None:
            self.table.column(names[0], "words")
        return self.table.columns[column] if column else None

    def empty(self, row: int) -> bool:
        """Return whether the row has no text at all."""
        value = self.text[row] if self.text is not None else (self.words or [None])[row]
        return value is None or value == [] or (isinstance(value, str) and not value.strip())

    def fault(self, row: int) -> BadRow | None:
        """Return what is wrong with the row's texts, words or choices, or None."""
        for which, values in (("text", self.text), ("pair", self.pair), ("prompt", self.prompt)):
            if values is not None and not _has_text(values[row]):
                odd = values[row] is not None and not isinstance(values[row], str)
                reason = f"{shown(values[row])} is not a text" if odd else "the text is missing"
                reason = _HALF if _is_half(values[row]) else reason
                return self.table.bad(row, self.names[which] or which, reason)
        if self.words is not None and (reason := _words_fault(self.words[row])):
            return self.table.bad(row, self.words_name, reason)
        if self.choices is not None:
            choices = self.choices[row]
            if not isinstance(choices, list) or len(choices) < 2 or not all(map(_has_text, choices)):
                return self.table.bad(row, self.choice_columns, "the choices are missing or one of them is empty")
        return None

    def choice_count(self, row: int) -> int | None:
        return None if self.choices is None else len(self.choices[row])

    def columns(self, rows: list[int]) -> dict[str, Any]:
        """Return the fields of `Examples` that hold texts, for these rows."""
        words = None if self.words is None else [list(self.words[r]) for r in rows]
        parts: dict[str, Any] = {"words": words}
        parts["texts"] = [self.text[r] for r in rows] if self.text is not None else [" ".join(w) for w in words or ()]
        if self.pair is not None:
            parts["pairs"] = [self.pair[r] for r in rows]
        if self.choices is not None:
            start = (lambda r: f"{self.prompt[r]} ") if self.prompt is not None else (lambda _: "")  # type: ignore[index]
            parts["choices"] = [[start(r) + choice for choice in self.choices[r]] for r in rows]
            parts["prompts"] = None if self.prompt is None else [self.prompt[r] for r in rows]
        return parts


def _words_fault(words: Any) -> str:
    """Return what is wrong with a row's list of words, or an empty text."""
    if words is not None and not isinstance(words, (list, tuple)):
        return f"{shown(words)} is not a list of words"
    odd = [word for word in words or () if word is not None and not isinstance(word, str)]
    if odd:
        return f"{shown(odd[0])} is not a word"
    if any(map(_is_half, words or ())):
        return _HALF
    return "" if words and all(map(_has_text, words)) else "the words are missing or one of them is empty"


def _is_half(value: Any) -> bool:
    return isinstance(value, str) and not is_whole(value)


def _has_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and is_whole(value)
