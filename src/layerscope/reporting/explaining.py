"""Explanations that stand once on a page: repeated sentences become links, and columns are told in a glossary."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from layerscope.drawing.words import MEANINGS

if TYPE_CHECKING:
    from layerscope.reporting.cards import Card

_ENDS = re.compile(r"(?<=[.!?])\s+(?=[A-Z`0-9])")
_SHORT = 40  # characters below which a sentence is easier to read than a link
GENERAL = {
    "sure": "The interval, or the p-value, decides it: at 95%, after allowing for the choice where one was made. A "
    "number that stands alone is sure where its interval lies within a tenth of it.",
    "not sure": "It may be so, and the numbers do not decide it: too few texts, or too small a difference.",
    "not tested": "Nothing was measured that could say how sure it is; the number stands alone.",
    "hatched cell": "There is no value. The reason shows when the pointer or the arrow keys are on it. It is not 0.",
    "\u2013": "In a table: undefined, there is no such number.",
    "M, G, T": "In a table: millions, thousands of millions (10^9), millions of millions (10^12).",
    "interval": "Where the value would lie with other texts of the same kind: 95% unless another level is named.",
    "layer, block": "Layer 0 is the output of the embeddings, layer l that of block l. Blocks count from 1.",
}


@dataclass(frozen=True)
class Link:
    """A place on the page that says what is left out here."""

    anchor: str
    title: str


@dataclass(frozen=True)
class Words:
    """What is said beside a figure, without what was said before; and where that was."""

    reading: str
    caveat: str
    reading_links: tuple[Link, ...] = ()
    caveat_links: tuple[Link, ...] = ()


def sentences(text: str) -> list[str]:
    """A text in sentences."""
    return [part for part in _ENDS.split(text.strip()) if part]


def explained(cards: Iterable[Card]) -> dict[str, list[Words]]:
    """For every card, by its name, the words of each of its figures. Figures of one card are never seen together."""
    first: dict[str, Link] = {}
    told: dict[str, list[Words]] = {}
    for card in cards:
        own: dict[str, Link] = {}
        told[card.name] = [_words(figure, first) for figure in card.figures]
        for figure in card.figures:
            own |= {s: Link(card.name, card.title) for text in (figure.reading, figure.caveat) for s in sentences(text)}
        first = {**own, **first}
    return told


def _words(figure: Any, first: Mapping[str, Link]) -> Words:
    reading, reading_links = _unrepeated(figure.reading, first)
    caveat, caveat_links = _unrepeated(figure.caveat, first)
    return Words(reading, caveat, reading_links, caveat_links)


def _unrepeated(text: str, first: Mapping[str, Link]) -> tuple[str, tuple[Link, ...]]:
    """A text without its sentences that stand above, and the places where they stand."""
    parts = sentences(text)
    repeated = [part for part in parts if part in first and len(part) >= _SHORT]
    links = dict.fromkeys(first[part] for part in repeated)
    return " ".join(part for part in parts if part not in repeated), tuple(links)


def terms(tables: Iterable[Mapping[str, Sequence[Any]]]) -> dict[str, str]:
    """What the columns of some tables mean, those that have a meaning of their own, in alphabetical order."""
    names = sorted({str(name) for table in tables for name in table if str(name) in MEANINGS})
    return {name: MEANINGS[name] for name in names}


def without_constants(
    table: Mapping[str, Sequence[Any]], narrow: int
) -> tuple[dict[str, Sequence[Any]], dict[str, Any]]:
    """The columns of a table, and apart from them what is the same in every row, where it has many columns."""
    count = len(next(iter(table.values()), ()))
    if count < 2 or len(table) <= narrow:
        return dict(table), {}
    same = {name: values[0] for name, values in table.items() if len({repr(value) for value in values}) == 1}
    return {name: values for name, values in table.items() if name not in same}, same
