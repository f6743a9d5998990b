"""Examples are the usable rows of one split, with labels and the identity of each row."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import xxhash

from layerscope.errors import DataError, InputError
from layerscope.store import digest

RUN = 2_000  # characters of neighbouring texts that are drawn together: about as many as 500 tokens have
WHITESPACE = "whitespace"  # the usual way to split a text into words


@dataclass(frozen=True)
class Examples:
    """n examples in the data's order: texts, with second texts, choices, words and labels where there are any."""

    task: str
    split: str
    texts: Sequence[str]
    rows: np.ndarray  # (n,) the number of each example in the split, from 0, bad rows counted
    pairs: Sequence[str] | None = None
    choices: Sequence[Sequence[str]] | None = None  # the second texts of each example, one per choice
    words: Sequence[Sequence[str]] | None = None  # the text split into words
    tags: Sequence[np.ndarray] | None = None  # (words,) int64, the class of each word
    prompts: Sequence[str] | None = None  # what every choice of an example begins with, where it does
    labels: np.ndarray | None = None  # (n,) int64 classes or float64 numbers
    label_names: tuple[str, ...] | None = None
    lines: np.ndarray | None = None  # (n,) where each stands in the file, as whoever opens it counts: see `place`
    counted: str = "row"  # what is counted so: rows, or the lines of a text file
    skipped: int = 0  # bad rows that were left out
    words_by: str | None = None  # what splits texts into words, where they do not come as words: see `in_words`
    _whole: tuple[str, str, int] | None = field(default=None, init=False, repr=False, compare=False)
    # (n,) in which order they are drawn where fewer are wanted: see `first`. Without it, in the data's order.
    _ranks: np.ndarray | None = field(default=None, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, index: Any) -> Examples:
        """Return some of the examples, by a slice or an array of positions; each keeps its row number."""
        positions = np.arange(len(self))[index]
        names = ("texts", "pairs", "choices", "words", "tags", "prompts")
        lists: dict[str, Any] = {
            n: [getattr(self, n)[i] for i in positions] for n in names if getattr(self, n) is not None
        }
        labels = None if self.labels is None else self.labels[positions]
        lines = None if self.lines is None else self.lines[positions]
        part = replace(self, **lists, rows=self.rows[positions], labels=labels, lines=lines)
        return part._drawn_by(None if self._ranks is None else self._ranks[positions]).known_as(self)

    def first(self, limit: int | None) -> Examples:
        """Return `limit` of the examples: the first ones, or of a sampled task those that are drawn first.

        Either way they come in the data's order, and those of a smaller limit are among those of a larger one.
        """
        if limit is None:
            return self
        if self._ranks is None:
            return self.take(slice(limit))
        return self.take(np.sort(np.argsort(self._ranks, kind="stable")[:limit]))

    def _drawn_by(self, ranks: np.ndarray | None) -> Examples:
        """Give these examples the order in which they are drawn, and return them."""
        object.__setattr__(self, "_ranks", ranks)
        return self

    def sampled(self, seed: int, running: bool = False) -> Examples:
        """Return the same examples, of which `first` draws at random, with every class in proportion.

        With `running` they are texts that may be joined: neighbours are then drawn together, as runs of some thousand
        characters, so that most windows of tokens are of text that belongs together.
        """
        if running:
            order = _order_of_runs([len(text) for text in self.texts], seed)
        else:
            classes = self.labels if self.labels is not None and self.labels.dtype.kind == "i" else None
            order = stratified_order(len(self), classes, seed)
        ranks = np.empty(len(self), dtype=np.int64)
        ranks[order] = np.arange(len(self))
        return copy.copy(self)._drawn_by(ranks)

    def place(self, index: int) -> str:
        """Return where an example stands, as every message says it: `line 3 of reviews (all)`, `row 2 of table (all)`.

        Lines of a text file are counted from 1 with the header; rows of other tables are counted from 1.
        """
        number = int(self.rows[index]) + 1 if self.lines is None else int(self.lines[index])
        return f"{self.counted} {number} of {self.task} ({self.split})"

    def in_words(self) -> Examples:
        """Return the examples with words: those of the data, or the texts split by `words_by` (else by whitespace).

        Raises InputError where rows have several texts, and DataError with all rows that have no word.
        """
        if self.pairs is not None or self.choices is not None:
            kind = "two texts" if self.choices is None else "several choices"
            raise InputError(
                f"Words were asked for, and every row of {self.task} has {kind}; name one column as the only text "
                "(text=, --text), or take tokens or whole texts (the pools tokens, mean, cls and last)."
            )
        if self.words is not None:
            return self
        by = self.words_by or WHITESPACE
        words = [split_words(text, by) for text in self.texts]
        if empty := [index for index, some in enumerate(words) if not some]:
            raise DataError(
                f"{len(empty)} of {len(self)} texts have no word by {by!r}, such as {self.place(empty[0])}; leave them "
                "out, or split words in another way (words_by=, --words-by)."
            )
        part = replace(self, words=words, words_by=by)
        return part.known_as(self)

    def known_as(self, whole: Examples, data: str | None = None) -> Examples:
        """Give these the identity of the examples that they were made from, and return them.

        `data` is their fingerprint where that of `whole` does not tell which rows these are.
        """
        object.__setattr__(self, "_whole", (data or whole.fingerprint, whole.texts_fingerprint, whole.read))
        return self

    @property
    def read(self) -> int:
        """How many examples were read of the data, of which these may be a part."""
        return len(self) if self._whole is None else self._whole[2]

    def begin_with(self, texts: str, count: int) -> bool:
        """Return whether the first `count` of all examples of the split have the texts of that fingerprint."""
        if count == self.read or self._whole is not None:
            return count == self.read and texts == self.texts_fingerprint
        columns = (self.texts, self.pairs, self.choices)
        return count < len(self) and texts == _hash([None if c is None else c[:count] for c in columns])

    @cached_property
    def fingerprint(self) -> str:
        """A hash of what was read of the split that these were taken from, or of these if they were not taken."""
        if self._whole is not None:
            return self._whole[0]
        parts = [repr(self.label_names).encode()]
        if self.labels is not None:
            parts += [self.labels.dtype.str.encode(), np.ascontiguousarray(self.labels).tobytes()]
        if self.tags is not None:
            parts += [b"tags", *(np.ascontiguousarray(tags).tobytes() for tags in self.tags)]
        if self.prompts is not None:
            parts += [b"prompts", *(prompt.encode("utf-8", "surrogatepass") for prompt in self.prompts)]
        return _hash((self.texts, self.pairs, self.choices, self.words), parts)

    @cached_property
    def texts_fingerprint(self) -> str:
        """The same hash of the texts alone, whatever their labels and words: of what a model reads."""
        return self._whole[1] if self._whole is not None else _hash((self.texts, self.pairs, self.choices))

    def spec(self) -> dict[str, Any]:
        """Return what determines the examples, for keys of the store: the data's content, and which rows of it."""
        rows = digest(np.ascontiguousarray(self.rows).tobytes())
        by = {} if self.words_by is None else {"words_by": self.words_by}
        return {"task": self.task, "split": self.split, "data": self.fingerprint, "rows": rows, **by}

    def described(self) -> dict[str, Any]:
        """Return a description of the examples for the provenance of results."""
        data = {"task": self.task, "split": self.split, "fingerprint": self.fingerprint, "n": len(self)}
        by = {} if self.words_by is None else {"words_by": self.words_by}
        return {**data, "skipped": self.skipped, **by}


def stratified_order(n: int, classes: np.ndarray | None, seed: int = 0) -> np.ndarray:
    """Return a random order of n rows in which every beginning has the classes in proportion."""
    order = np.random.default_rng(seed).permutation(n)
    if classes is None:
        return order
    place = np.empty(n)  # of each row among those of its class, from 0 to 1
    for name in np.unique(classes):
        members = order[classes[order] == name]
        place[members] = (np.arange(len(members)) + 0.5) / len(members)
    return order[np.argsort(place[order], kind="stable")]


def _order_of_runs(sizes: Sequence[int], seed: int) -> np.ndarray:
    """Return a random order of runs of neighbouring texts, each of which has at least `RUN` characters."""
    begun, numbers, number = 0, np.empty(len(sizes), dtype=np.int64), 0
    for place, size in enumerate(sizes):
        numbers[place], begun = number, begun + size
        if begun >= RUN:
            begun, number = 0, number + 1
    places = np.random.default_rng(seed).permutation(number + 1)
    return np.argsort(places[numbers], kind="stable")


def split_words(text: str, by: str) -> list[str]:
    """Return the words of a text: what stands between whitespace, or what an expression matches."""
    if by == WHITESPACE:
        return text.split()
    return [match[0].strip() for match in re.finditer(by, text) if match[0].strip()]


def check_words_by(by: str | None) -> str | None:
    """Return `whitespace` or a regular expression as given (None if empty); raise InputError for anything else."""
    try:
        re.compile(by or "")
    except re.error as error:
        raise InputError(
            f"words_by (--words-by) is {by!r}, which is not a regular expression ({error}); give {WHITESPACE}, or an "
            r"expression that matches a word, such as \w+|[^\w\s]."
        ) from error
    return by or None


def _hash(lists: Sequence[Sequence[Any] | None], more: Sequence[bytes] = ()) -> str:
    """Return a hash of lists of texts, or of lists of texts for each row, and of further bytes."""
    total = xxhash.xxh3_128()

    # Each part comes with its length, so that no two lists have one hash because their texts join to the same.
    def add(data: bytes) -> None:
        total.update(len(data).to_bytes(8, "little") + data)

    for values in lists:
        add(b"" if values is None else f"{len(values)}".encode())
        for value in values or ():
            parts = (value,) if isinstance(value, str) else tuple(value)
            add(f"{len(parts)}".encode())
            for part in parts:
                add(part.encode("utf-8", "surrogatepass"))
    for data in more:
        add(data)
    return total.hexdigest()
