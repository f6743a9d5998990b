"""From a table to examples: which column is what, what each label means, and which rows are bad."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from layerscope.data.examples import Examples
from layerscope.data.labels import Labels, as_number, hidden, pick, shown
from layerscope.data.registry import Columns
from layerscope.data.tables import BadRow, Table
from layerscope.errors import DataError, log, some
from layerscope.store import is_whole

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
    """The labels of a multiple-choice task: the number of the right choice, from 0."""
    most = max(reader.most_choices() for reader in (_Reader(table, columns) for table in tables))
    return Labels(tuple(map(str, range(most))))


def guess_columns(table: Table, given: Columns) -> Columns:
    """The columns as given, the others guessed where there is only one way to read the table."""
    names = [name for name in table.columns if name not in given.label]
    label = given.label or _guess_label(table)
    changes: dict[str, Any] = {"label": label}
    if given.text is None and not given.words:
        changes |= _guess_text(table, [n for n in names if n not in label], given)
    return given.model_copy(update=changes)


def _guess_label(table: Table) -> tuple[str, ...]:
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
    names = some(map(repr, table.columns))
    counted = list(table.columns) == [str(k) for k in range(len(table.columns))]  # as pandas names columns itself
    if len(strings) == 1 and not counted and any(as_number(name) is not None for name in table.columns):
        raise DataError(
            f"The columns of {table.name} are called {names}, which looks like a first row; put a line with names "
            "above it, or name the text: text='...', or --text on the command line."
        )
    if len(strings) == 1:
        return _texts_or_words(table, strings[0])
    raise DataError(
        f"Which column of {table.name} holds the text is not clear; it has {names}. Name it: text='...'"
        " (and text_pair='...', label='...'), or --text (--text-pair, --label) on the command line."
    )


def _texts_or_words(table: Table, name: str) -> dict[str, Any]:
    return {"words": (name,)} if _holds_lists(table.columns[name]) else {"text": name}


def _holds_lists(values: Sequence[Any]) -> bool:
    return isinstance(next((v for v in values if v is not None), None), list)


def _is_text(values: Sequence[Any]) -> bool:
    """Strings that are not all numbers: ids and scores of a CSV file are strings too."""
    present = [v for v in values[:1000] if v is not None]
    return bool(present) and all(isinstance(v, (str, list)) for v in present) and any(map(_wordy, present))


def _wordy(value: Any) -> bool:
    return isinstance(value, list) or as_number(value) is None


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
) -> Examples:
    """The examples of a table. Bad rows are an error that counts and places them, or are skipped and counted.

    With `may_be_empty` a row without text is not a bad row, but left out: running text has empty lines. A split without
    the label column has no labels if others have it (`may_lack_labels`); else that is an error.
    """
    reader = _Reader(table, columns)
    bad = list(table.broken)
    kept: list[int] = []
    values: list[float | int] = []
    tags = _Tags(table, columns, labels) if columns.tags and labels is not None else None
    column = _label_column(table, columns.label, may_lack_labels) if labels and tags is None else None
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
            kept.append(row)
            values.append(value)  # type: ignore[arg-type]
    _report(bad, table, skip_bad)
    if not kept:
        raise DataError(f"{table.name} has no usable row: {bad[0] if bad else 'every text is empty'}.")
    has_labels = column is not None and not unlabelled
    number = labels is not None and labels.number
    return Examples(
        task=task,
        split=split,
        rows=np.asarray([table.numbers[row] for row in kept], dtype=np.int64),
        labels=np.asarray(values, dtype=np.float64 if number else np.int64) if has_labels else None,
        label_names=labels.names if labels and not number else None,
        skipped=len(bad),
        tags=None if tags is None else [tags.read(row) for row in kept],
        **reader.columns(kept),
    )


class _Tags:
    """The column with the tags of each row's words."""

    def __init__(self, table: Table, columns: Columns, labels: Labels) -> None:
        self.table, self.labels = table, labels
        self.name = next((name for name in columns.tags if name in table.columns), columns.tags[0])
        self.values = table.column(self.name, "tags")

    def fault(self, row: int, reader: _Reader) -> BadRow | None:
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
    """The first of the alternatives that the table has; an error if it has none of them and may not lack it."""
    column = next((name for name in names if name in table.columns), None)
    if names and column is None and not may_lack:
        table.column(names[0], "label")
    return column


class _Reader:
    """The text columns of a table, row by row."""

    def __init__(self, table: Table, columns: Columns) -> None:
        self.table = table
        self.words = self._list_column(columns.words)
        self.text = table.column(columns.text, "text") if columns.text else None
        self.pair = table.column(columns.text_pair, "second text") if columns.text_pair else None
        self.prompt = table.column(columns.prompt, "prompt") if columns.prompt else None
        self.choices, self.choice_columns = self._choices(columns.choices)
        self.names = {"text": columns.text, "pair": columns.text_pair, "prompt": columns.prompt}
        self.words_name = next((n for n in columns.words if n in table.columns), "words")
        if self.text is None and self.words is None:
            raise DataError(f"{table.name}: no text column was named and none was found.")

    def _list_column(self, names: Sequence[str]) -> list[Any] | None:
        column = next((name for name in names if name in self.table.columns), None)
        if names and column is None:
            self.table.column(names[0], "words")
        return self.table.columns[column] if column else None

    def _choices(self, alternatives: Sequence[Sequence[str]]) -> tuple[list[Any] | None, str]:
        if not alternatives:
            return None, ""
        for names in alternatives:
            if all(name in self.table.columns for name in names):
                columns = [self.table.columns[name] for name in names]
                joined = columns[0] if len(columns) == 1 else [list(c) for c in zip(*columns, strict=True)]
                return joined, ", ".join(names)
        self.table.column(alternatives[0][0], "choices")
        return None, ""

    def empty(self, row: int) -> bool:
        """Whether the row has no text at all."""
        value = self.text[row] if self.text is not None else (self.words or [None])[row]
        return value is None or value == [] or (isinstance(value, str) and not value.strip())

    def fault(self, row: int) -> BadRow | None:
        """What is wrong with the row's texts, if anything."""
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

    def most_choices(self) -> int:
        return max((len(c) for c in self.choices or () if isinstance(c, list)), default=0)

    def columns(self, kept: list[int]) -> dict[str, Any]:
        """The examples' text fields for the rows that are kept."""
        words = None if self.words is None else [list(self.words[r]) for r in kept]
        parts: dict[str, Any] = {"words": words}
        parts["texts"] = [self.text[r] for r in kept] if self.text is not None else [" ".join(w) for w in words or ()]
        if self.pair is not None:
            parts["pairs"] = [self.pair[r] for r in kept]
        if self.choices is not None:
            start = (lambda r: f"{self.prompt[r]} ") if self.prompt is not None else (lambda _: "")  # type: ignore[index]
            parts["choices"] = [[start(r) + choice for choice in self.choices[r]] for r in kept]
            parts["prompts"] = None if self.prompt is None else [self.prompt[r] for r in kept]
        return parts


def _words_fault(words: Any) -> str:
    """What is wrong with a list of words, if anything."""
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
