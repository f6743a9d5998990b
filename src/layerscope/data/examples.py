"""Examples: the usable rows of one split, with labels and the identity of each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xxhash


@dataclass(frozen=True)
class Examples:
    """n examples in the data's order: texts, perhaps second texts or choices or words, perhaps labels."""

    task: str
    split: str
    texts: Sequence[str]
    rows: np.ndarray  # (n,) the number of each example in the split, from 0, bad rows counted
    pairs: Sequence[str] | None = None
    choices: Sequence[Sequence[str]] | None = None  # the second texts of each example, one a choice
    words: Sequence[Sequence[str]] | None = None  # the text split into words
    labels: np.ndarray | None = None  # (n,) int64 classes or float64 numbers
    label_names: tuple[str, ...] | None = None
    skipped: int = 0  # bad rows that were left out
    fingerprint: str = ""  # of the whole split's content

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, index: Any) -> Examples:
        """Some of the examples, by a slice or an array of positions; each keeps its identity."""
        positions = np.arange(len(self))[index]
        names = ("texts", "pairs", "choices", "words")
        lists: dict[str, Any] = {
            n: [getattr(self, n)[i] for i in positions] for n in names if getattr(self, n) is not None
        }
        labels = None if self.labels is None else self.labels[positions]
        return replace(self, **lists, rows=self.rows[positions], labels=labels)

    def signed(self) -> Examples:
        """The same with the fingerprint of its content."""
        total = xxhash.xxh3_128()
        for values in (self.texts, self.pairs or (), self.choices or (), self.words or ()):
            for value in values:
                parts = (value,) if isinstance(value, str) else value
                for part in parts:
                    data = part.encode("utf-8", "surrogatepass")
                    total.update(len(data).to_bytes(4, "little") + data)
                total.update(b"\xff")
            total.update(b"\xfe")
        total.update(repr(self.label_names).encode())
        total.update(b"" if self.labels is None else self.labels.tobytes())
        return replace(self, fingerprint=total.hexdigest())
