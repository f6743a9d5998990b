"""Texts to items by a network's own reader: the places of each text, and which of them make up its rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layerscope.data import Examples
from layerscope.errors import DataError, InputError
from layerscope.extraction.items import Item
from layerscope.extraction.reading import Reading
from layerscope.models import Model
from layerscope.models.readers import ReadText, Text, TextReader


def own_items(model: Model, examples: Examples, reading: Reading) -> list[Item]:
    """One item per text."""
    if examples.pairs is not None or examples.choices is not None:
        kind = "two texts" if examples.choices is None else "several choices"
        raise InputError(
            f"{model.name} reads one text at a time, and every row of {examples.task} has {kind}; name one column as "
            "the only text (text=, --text)."
        )
    reader: TextReader = model.tokenizer
    places = reader.read(_texts(reader, examples, reading), reading.max_length)
    items = []
    for text, read in enumerate(places):
        rows = _words(model, read, reading.subword) if reading.pool == "words" else _places(model, read, reading)
        items.append(Item(read.ids, None, *rows, read.truncated, read.special))
        if not len(items[-1].take) and reading.pool != "words":
            raise DataError(
                f"Row {examples.rows[text]} of {examples.task} ({examples.split}) has no word for {model.name} "
                f"within {reading.max_length} places: {examples.texts[text][:40]!r}. Leave that row out."
            )
    return items


def _texts(reader: TextReader, examples: Examples, reading: Reading) -> Sequence[Text]:
    if reading.pool == "words":
        return [list(words) for words in examples.in_words().words or ()]
    if reader.takes_words and examples.words is not None:
        return [list(words) for words in examples.words]
    return list(examples.texts)


_Rows = tuple[np.ndarray, np.ndarray, np.ndarray]  # take, segment and unit of an item


def _places(model: Model, read: ReadText, reading: Reading) -> _Rows:
    """What the rows of a whole text are made of."""
    plain = np.arange(len(read.ids)) if reading.special else np.flatnonzero(~read.special)
    if reading.pool == "mean":
        return plain, np.zeros(len(plain), np.int64), np.zeros(min(len(plain), 1), np.int64)
    if reading.pool == "tokens":
        return plain, np.arange(len(plain)), plain
    if reading.pool == "cls":
        take = np.arange(len(read.ids))
        take = take[:1] if model.require_summary() == "first" else take[-1:]
    else:
        take = plain[-1:]  # marks stand for no part of a text
    return take, np.zeros(len(take), np.int64), np.zeros(len(take), np.int64)


def _words(model: Model, read: ReadText, subword: str) -> _Rows:
    if read.words is None:
        raise InputError(
            f"The pool 'words' needs to know which places are which word, and encode of {model.name} does not say: it "
            "gives no 'words'."
        )
    positions = np.flatnonzero((read.words >= 0) & ~read.special)
    positions = positions[np.argsort(read.words[positions], kind="stable")]
    unit, segment, counts = np.unique(read.words[positions], return_inverse=True, return_counts=True)
    if subword == "mean":
        return positions, segment, unit
    ends = np.cumsum(counts)
    return positions[ends - 1 if subword == "last" else ends - counts], np.arange(len(unit)), unit
