"""Texts as a model sees them: one by one, and many side by side in a few arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np


@dataclass
class Item:
    """One text (or one choice of it) as a model sees it."""

    ids: np.ndarray  # (t,) token ids, special tokens included, no padding
    types: np.ndarray | None  # (t,) token type ids
    take: np.ndarray  # positions of the tokens that make up the rows
    segment: np.ndarray  # (len(take),) the row of this item that each belongs to
    unit: np.ndarray  # (rows,) the word or token number of each row
    truncated: bool
    special: np.ndarray  # (t,) whether the tokenizer added the token, as a separator or the like
    targets: np.ndarray | None = None  # (len(take),) what a head is to give there: a token, or a class

    def __len__(self) -> int:
        return len(self.ids)


@dataclass
class Items:
    """n items, the arrays of all of them end to end: choosing and padding them takes no loop over items."""

    ids: np.ndarray  # (all tokens,)
    types: np.ndarray | None  # (all tokens,)
    special: np.ndarray  # (all tokens,)
    lengths: np.ndarray  # (n,) tokens of each item
    take: np.ndarray  # (all that are taken,) positions within their item
    segment: np.ndarray  # (all that are taken,) rows within their item
    taken: np.ndarray  # (n,) how many tokens each item's rows are made of
    unit: np.ndarray  # (all rows,)
    rows: np.ndarray  # (n,) how many rows each item has
    truncated: np.ndarray  # (n,)
    targets: np.ndarray | None = None  # (all that are taken,)

    @staticmethod
    def of(items: Sequence[Item] | Items) -> Items:
        """Items that come one by one, side by side."""
        if isinstance(items, Items):
            return items

        def whole(name: str, dtype: Any = np.int64) -> np.ndarray:
            return _joined([getattr(item, name) for item in items], dtype)

        def count(name: str) -> np.ndarray:
            return np.fromiter((len(getattr(item, name)) for item in items), np.int64, len(items))

        first = items[0] if len(items) else None
        return Items(
            whole("ids"),
            None if first is None or first.types is None else whole("types"),
            whole("special", bool),
            count("ids"),
            whole("take"),
            whole("segment"),
            count("take"),
            whole("unit"),
            count("unit"),
            np.fromiter((item.truncated for item in items), bool, len(items)),
            None if first is None or first.targets is None else whole("targets"),
        )

    @staticmethod
    def join(parts: Sequence[Items]) -> Items:
        """The items of several parts, in order."""
        if len(parts) == 1:
            return parts[0]

        def whole(name: str) -> Any:
            return None if getattr(parts[0], name) is None else np.concatenate([getattr(part, name) for part in parts])

        return Items(**{name: whole(name) for name in Items.__dataclass_fields__})

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[Item]:
        return (self[i] for i in range(len(self)))

    @overload
    def __getitem__(self, place: int) -> Item: ...

    @overload
    def __getitem__(self, place: slice) -> Items: ...

    def __getitem__(self, place: int | slice) -> Item | Items:
        """One item, whose arrays are views; or some of them."""
        if isinstance(place, slice):
            return self.at(np.arange(len(self))[place])
        place = range(len(self))[place]
        tokens = slice(at := int(self._token_starts[place]), at + int(self.lengths[place]))
        taken = slice(at := int(self._taken_starts[place]), at + int(self.taken[place]))
        rows = slice(at := int(self._row_starts[place]), at + int(self.rows[place]))
        return Item(
            self.ids[tokens],
            None if self.types is None else self.types[tokens],
            self.take[taken],
            self.segment[taken],
            self.unit[rows],
            bool(self.truncated[place]),
            self.special[tokens],
            None if self.targets is None else self.targets[taken],
        )

    @property
    def _token_starts(self) -> np.ndarray:
        return self._starts("lengths")

    @property
    def _taken_starts(self) -> np.ndarray:
        return self._starts("taken")

    @property
    def _row_starts(self) -> np.ndarray:
        return self._starts("rows")

    def _starts(self, name: str) -> np.ndarray:
        known: dict[str, np.ndarray] = self.__dict__.setdefault("_known_starts", {})
        if name not in known:
            counts = getattr(self, name)
            known[name] = np.cumsum(counts) - counts
        return known[name]

    def at(self, places: Any) -> Items:
        """Some of the items, in the order of their places."""
        places = np.asarray(places, dtype=np.int64)
        lengths, taken, rows = self.lengths[places], self.taken[places], self.rows[places]
        tokens = ranges(self._token_starts[places], lengths)
        chosen = ranges(self._taken_starts[places], taken)
        return Items(
            self.ids[tokens],
            None if self.types is None else self.types[tokens],
            self.special[tokens],
            lengths,
            self.take[chosen],
            self.segment[chosen],
            taken,
            self.unit[ranges(self._row_starts[places], rows)],
            rows,
            self.truncated[places],
            None if self.targets is None else self.targets[chosen],
        )

    @property
    def owner(self) -> np.ndarray:
        """(all that are taken,) the item of each token that is taken."""
        return np.repeat(np.arange(len(self)), self.taken)

    @property
    def row(self) -> np.ndarray:
        """(all that are taken,) its row among those of all items."""
        return np.repeat(self._row_starts, self.taken) + self.segment

    def keep(self, wanted: np.ndarray) -> Items:
        """Only some of the rows: `wanted` (all rows,) says which."""
        before = np.concatenate([[0], np.cumsum(wanted)])  # rows that are kept before each row
        rows = before[self._row_starts + self.rows] - before[self._row_starts]
        row = self.row
        chosen = wanted[row]
        segment = (before[row] - np.repeat(before[self._row_starts], self.taken))[chosen]
        counts = np.bincount(self.owner[chosen], minlength=len(self))
        return replace(
            self,
            take=self.take[chosen],
            segment=segment,
            taken=counts,
            unit=self.unit[wanted],
            rows=rows,
            targets=None if self.targets is None else self.targets[chosen],
        )


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """start, start + 1, .. of every range, end to end."""
    total = int(lengths.sum())
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(total)


def _joined(parts: Sequence[np.ndarray], dtype: Any) -> np.ndarray:
    return np.concatenate([np.asarray(part, dtype) for part in parts]) if len(parts) else np.empty(0, dtype)
