"""Items are texts as a model sees them: one by one (`Item`), or many in a few flat arrays (`Items`)."""

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
    take: np.ndarray  # positions of the tokens of which the rows are made
    segment: np.ndarray  # (len(take),) the row of this item that each of them belongs to
    unit: np.ndarray  # (rows,) the word or token number of each row
    truncated: bool
    special: np.ndarray  # (t,) whether the tokenizer added the token, as a separator or the like
    targets: np.ndarray | None = None  # (len(take),) what a head is to give there: a token, or a class

    def __len__(self) -> int:
        return len(self.ids)


@dataclass
class Items:
    """n items as arrays joined end to end, so that choosing and padding items takes no loop over them."""

    ids: np.ndarray  # (all tokens,)
    types: np.ndarray | None  # (all tokens,)
    special: np.ndarray  # (all tokens,)
    lengths: np.ndarray  # (n,) tokens of each item
    take: np.ndarray  # (all that are taken,) positions within their item
    segment: np.ndarray  # (all that are taken,) rows within their item
    take_counts: np.ndarray  # (n,) how many tokens each item's rows are made of
    unit: np.ndarray  # (all rows,)
    rows: np.ndarray  # (n,) how many rows each item has
    truncated: np.ndarray  # (n,)
    targets: np.ndarray | None = None  # (all that are taken,)

    @staticmethod
    def from_list(items: Sequence[Item] | Items) -> Items:
        """Return single items as `Items`; `Items` are returned as they are."""
        if isinstance(items, Items):
            return items

        def whole(name: str, dtype: Any = np.int64) -> np.ndarray:
            parts = [np.asarray(getattr(item, name), dtype) for item in items]
            return np.concatenate(parts) if parts else np.empty(0, dtype)

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
        """Return the items of several parts, in order."""
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
        """Return one item, whose arrays are views, or the items of a slice."""
        if isinstance(place, slice):
            return self.at(np.arange(len(self))[place])
        place = range(len(self))[place]
        tokens = slice(at := int(self._token_starts[place]), at + int(self.lengths[place]))
        taken = slice(at := int(self._take_starts[place]), at + int(self.take_counts[place]))
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
    def _take_starts(self) -> np.ndarray:
        return self._starts("take_counts")

    @property
    def _row_starts(self) -> np.ndarray:
        return self._starts("rows")

    def _starts(self, name: str) -> np.ndarray:
        """Return where each item begins in the arrays that these counts are of, computed once."""
        cached: dict[str, np.ndarray] = self.__dict__.setdefault("_cached_starts", {})
        if name not in cached:
            counts = getattr(self, name)
            cached[name] = np.cumsum(counts) - counts
        return cached[name]

    def at(self, places: Any) -> Items:
        """Return the items at some places, in the order of the places."""
        places = np.asarray(places, dtype=np.int64)
        lengths, take_counts, rows = self.lengths[places], self.take_counts[places], self.rows[places]
        tokens = ranges(self._token_starts[places], lengths)
        chosen = ranges(self._take_starts[places], take_counts)
        return Items(
            self.ids[tokens],
            None if self.types is None else self.types[tokens],
            self.special[tokens],
            lengths,
            self.take[chosen],
            self.segment[chosen],
            take_counts,
            self.unit[ranges(self._row_starts[places], rows)],
            rows,
            self.truncated[places],
            None if self.targets is None else self.targets[chosen],
        )

    @property
    def owner(self) -> np.ndarray:
        """(all that are taken,) the item of each token that is taken."""
        return np.repeat(np.arange(len(self)), self.take_counts)

    @property
    def row(self) -> np.ndarray:
        """(all that are taken,) the row of each such token among the rows of all items."""
        return np.repeat(self._row_starts, self.take_counts) + self.segment

    def keep(self, wanted: np.ndarray) -> Items:
        """Return the items with only those rows for which `wanted` (all rows,) is True."""
        before = np.concatenate([[0], np.cumsum(wanted)])  # rows that are kept before each row
        rows = before[self._row_starts + self.rows] - before[self._row_starts]
        row = self.row
        chosen = wanted[row]
        segment = (before[row] - np.repeat(before[self._row_starts], self.take_counts))[chosen]
        counts = np.bincount(self.owner[chosen], minlength=len(self))
        return replace(
            self,
            take=self.take[chosen],
            segment=segment,
            take_counts=counts,
            unit=self.unit[wanted],
            rows=rows,
            targets=None if self.targets is None else self.targets[chosen],
        )


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the numbers start, start + 1, .. of every range, joined end to end."""
    total = int(lengths.sum())
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(total)
