"""`ls.report`: an HTML page in one file that holds its style, its script and its data, and asks nothing of any network.

A card is a place on the page, with a figure or with several that take turns. Formulas are typeset as MathML, which
browsers draw themselves: `web/formulas.json` holds the MathML of every formula that pages show, by its LaTeX;
`docs/formulas.py` makes it. An explanation stands once on a page: repeated sentences become links, and columns are
explained in a glossary.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from layerscope.drawing.captions import MEANINGS, heading
from layerscope.drawing.figure import Figure, HeatmapAxis
from layerscope.drawing.figures.heatmap import EXTRAS, HeatmapFigure
from layerscope.drawing.figures.table import TableFigure
from layerscope.drawing.render import markup
from layerscope.errors import InputError
from layerscope.reporting.language import language_section
from layerscope.reporting.summary import Summary, by_weight, summarize
from layerscope.results import Record, find_records, read_record
from layerscope.store import output_file
from layerscope.version import __version__

DRAWN = ("heatmap", "curve", "box", "bars", "scatter")  # kinds that the page's script knows
NARROW = 6  # columns of a table that fits into half of the page


@dataclass(frozen=True)
class Card:
    """One place on the page: a figure, or several that take turns."""

    name: str
    figures: Sequence[Figure]

    @property
    def first(self) -> Figure:
        return self.figures[0]

    @property
    def title(self) -> str:
        return self.first.group if len(self.figures) > 1 else self.first.title

    @property
    def facets(self) -> dict[str, list[str]]:
        """The facets that can be switched, with the values that occur."""
        names = dict.fromkeys(name for figure in self.figures for name in figure.facets)
        occurring = {n: list(dict.fromkeys(f.facets[n] for f in self.figures if n in f.facets)) for n in names}
        return {name: values for name, values in occurring.items() if len(values) > 1}

    @property
    def drawn_by_script(self) -> bool:
        """Whether the page's script draws the card; other kinds are shown as a still picture."""
        return self.first.kind in DRAWN

    @property
    def upright(self) -> bool:
        """Whether the card is a table of one row and many columns, which are shown below one another."""
        if not isinstance(self.first, TableFigure) or len(self.first.table) <= NARROW:
            return False
        return len(next(iter(self.first.table.values()))) == 1

    @property
    def wide(self) -> bool:
        """Whether the card takes the page's whole width."""
        widest = max((len(f.columns) for f in self.figures if isinstance(f, HeatmapFigure)), default=0)
        if isinstance(self.first, TableFigure):
            return len(self.first.table) > NARROW and not self.upright
        return widest > 14


def cards(figures: Iterable[Figure], prefix: str = "record") -> list[Card]:
    """Return the cards of figures; those of one kind and group share a card."""
    groups: dict[tuple[str, ...], list[Figure]] = {}
    for k, figure in enumerate(figures):
        key = (figure.kind, figure.group) if figure.group and figure.kind != "table" else (str(k),)
        groups.setdefault(key, []).append(figure)
    return [Card(f"{prefix}-figure-{k + 1}", group) for k, group in enumerate(groups.values())]


FORMULA = re.compile(r"\$(?=\S)([^$\n]+?)(?<=\S)\$")


@cache
def formulas() -> dict[str, str]:
    """Return the MathML of every formula, by its LaTeX."""
    file = resources.files("layerscope.reporting").joinpath("web", "formulas.json")
    return dict(json.loads(file.read_text(encoding="utf-8")))


def typeset(text: str) -> str:
    """Return a text as HTML: formulas between dollar signs as MathML, all else escaped. Unknown ones stay text."""
    parts, end = [], 0
    for match in FORMULA.finditer(text):
        if match.group(1) in formulas():
            parts += [escape(text[end : match.start()]), formulas()[match.group(1)]]
            end = match.end()
    return "".join([*parts, escape(text[end:])])


_ENDS = re.compile(r"(?<=[.!?])\s+(?=[A-Z`0-9])")
_SHORT = 40  # characters below which a sentence is easier to read than a link
GENERAL = {
    "sure": "The comparison in the sentence was tested, and the interval or the p-value decides it: at 95%, after "
    "allowing for the choice where one was made. A number that stands alone is sure where its interval lies within a "
    "tenth of it.",
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
    """A place on the page where a sentence stands that is left out elsewhere."""

    anchor: str
    title: str


@dataclass(frozen=True)
class Words:
    """The words beside a figure, without sentences that stand above, and links to where those stand."""

    reading: str
    caveat: str
    reading_links: tuple[Link, ...] = ()
    caveat_links: tuple[Link, ...] = ()


def sentences(text: str) -> list[str]:
    """Return the sentences of a text."""
    return [part for part in _ENDS.split(text.strip()) if part]


def explained(cards: Iterable[Card]) -> dict[str, list[Words]]:
    """Return, for every card by its name, the words of each of its figures.

    Figures of one card are never seen together, so that a sentence may stand beside each of them.
    """
    first: dict[str, Link] = {}
    words: dict[str, list[Words]] = {}
    for card in cards:
        of_card: dict[str, Link] = {}
        words[card.name] = [_words(figure, first) for figure in card.figures]
        for figure in card.figures:
            of_card |= {
                s: Link(card.name, card.title) for text in (figure.reading, figure.caveat) for s in sentences(text)
            }
        first = {**of_card, **first}
    return words


def _words(figure: Any, first: Mapping[str, Link]) -> Words:
    reading, reading_links = _unrepeated(figure.reading, first)
    caveat, caveat_links = _unrepeated(figure.caveat, first)
    return Words(reading, caveat, reading_links, caveat_links)


def _unrepeated(text: str, first: Mapping[str, Link]) -> tuple[str, tuple[Link, ...]]:
    """Return a text without its sentences that stand above, and the places where they stand."""
    parts = sentences(text)
    repeated = [part for part in parts if part in first and len(part) >= _SHORT]
    links = dict.fromkeys(first[part] for part in repeated)
    return " ".join(part for part in parts if part not in repeated), tuple(links)


def terms(tables: Iterable[Mapping[str, Sequence[Any]]]) -> dict[str, str]:
    """Return what the columns of some tables mean, where they have a meaning of their own, in alphabetical order."""
    names = sorted({str(name) for table in tables for name in table if str(name) in MEANINGS})
    return {name: MEANINGS[name] for name in names}


def without_constants(
    table: Mapping[str, Sequence[Any]], narrow: int
) -> tuple[dict[str, Sequence[Any]], dict[str, Any]]:
    """Return the columns of a table and, where it has many, apart from them what is the same in every row."""
    count = len(next(iter(table.values()), ()))
    if count < 2 or len(table) <= narrow:
        return dict(table), {}
    same = {name: values[0] for name, values in table.items() if len({repr(value) for value in values}) == 1}
    return {name: values for name, values in table.items() if name not in same}, same


_STOPS = 33  # colours of the scale that the page is given; it blends between them
_SCRIPTS = ("tools", "pointing", "heatmap", "charts", "rows", "tables", "page")
_DIGITS = 6  # of every number on the page
MOST_VALUES = 2_000_000  # on a page
MOST_QUESTIONS = 12  # in its summary


def report(
    records: str | Path | Record | Sequence[str | Path | Record],
    path: str | Path = "report.html",
    *,
    title: str = "layerscope report",
    summary: Summary | None = None,
) -> Path:
    """Write one self-contained HTML file that shows records.

    Args:
        records: Folders of records, folders that hold some, or `Record`s.
        path: The file to write.
        title: The heading of the page.
        summary: What stands on top; made of the records' findings if not given.

    Returns:
        The path.

    Example:
        >>> import tempfile, numpy as np, layerscope as ls
        >>> folder = tempfile.mkdtemp()
        >>> similarity = ls.compare([np.eye(4), np.eye(4) ** 2])
        >>> record = ls.Record.of("compare", "Two layers", {"cka": similarity})
        >>> ls.report(record, f"{folder}/report.html").name
        'report.html'
    """
    many = [records] if isinstance(records, (str, Path, Record)) else list(records)
    shown = [r for part in many for r in ([part] if isinstance(part, Record) else map(read_record, find_records(part)))]
    if not shown:
        raise InputError("There is nothing to report: give at least one record.")
    _check_size(shown)
    path = Path(path)
    text = render(shown, title, summary)
    with output_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="replace", newline="")
    return path


def _check_size(records: Sequence[Record]) -> None:
    """Raise InputError where a page would be too large for any browser."""
    total = 0
    for record in records:
        for figure in record.figures:
            total += sum(map(len, figure.data().values()))
            if total > MOST_VALUES:
                raise InputError(
                    f"These records hold more than {MOST_VALUES:,} values in their figures ({figure.title[:60]!r} of "
                    f"{record.title[:60]!r} is one too many), and no browser shows such a page; report fewer of them."
                )


def render(records: Sequence[Record], title: str, summary: Summary | None = None) -> str:
    """Return the page as text. Every name is escaped: they come from users' files and models."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    # The files of `web/` become one function, so that nothing of the script is seen from outside.
    parts = "\n".join(_file(f"{name}.js") for name in _SCRIPTS)
    script, style = f'"use strict";\n(() => {{\n{parts}}})();\n', _file("page.css")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "spell": spell,
        "raw": _raw,
        "moment": _moment,
        "numeric": _numeric,
        "cells": _cells,
        "heading": heading,
    }
    environment.filters |= {
        "by_weight": by_weight,
        "sentence": _sentence,
        "brief": brief,
        "typeset": lambda text: Markup(typeset(text)),
    }
    page = environment.from_string(_file("page.html"))
    sections = [_section(f"record-{k + 1}", record) for k, record in enumerate(records)]
    if (language := language_section(records)) is not None:
        sections.insert(0, _section("language-models", language))
    shown = [card for section in sections for card in section["cards"]]
    return page.render(
        title=title,
        sections=sections,
        summary=summarize(records) if summary is None else summary,
        most_questions=MOST_QUESTIONS,
        words=explained(shown),
        general=GENERAL,
        terms=terms(figure.table for card in shown for figure in card.figures if isinstance(figure, TableFigure)),
        parts=lambda figure: without_constants(figure.table, NARROW),
        style=Markup(style),
        script=Markup(script),
        hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        payload=lambda card: Markup(embedded({"figures": [payload(f) for f in card.figures]})),
        still=lambda figure: Markup(markup(figure)),
        colours=Markup(embedded(_colours())),
        version=__version__,
    )


def _section(name: str, record: Record) -> dict[str, Any]:
    return {"id": name, "record": record, "cards": cards(record.figures, name)}


def _sentence(text: str) -> str:
    """Return a text with a capital at its beginning (except for `p = 0.2` and the like) and a full stop at its end."""
    first = text[:1] if text[1:3] == " =" else text[:1].upper()
    return first + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def payload(figure: Figure) -> dict[str, Any]:
    """Return what the page's script draws from; tables are in the page itself."""
    words = {"kind": figure.kind, **figure.words()}
    if isinstance(figure, TableFigure):
        return words
    if isinstance(figure, HeatmapFigure):
        return {**words, **_heatmap(figure)}
    return {**words, **figure.settings(), "data": figure.data()}


def _heatmap(figure: HeatmapFigure) -> dict[str, Any]:
    """Return the data of a heat map: cells by their place, and every reason once."""
    reasons = list(dict.fromkeys(figure.reasons.values()))
    count = len(figure.columns)
    return {
        "rows": _side(figure.rows),
        "columns": _side(figure.columns),
        "value_name": figure.value_name,
        "scale": list(figure.scale),
        "cuts": list(figure.cuts),
        "marked": [i * count + j for i, j in figure.marked],
        "marked_name": figure.marked_name,
        "n": figure.n,
        "values": figure.values.ravel().tolist(),
        **{k: getattr(figure, k).ravel().tolist() for k in EXTRAS if getattr(figure, k) is not None},
        "reasons": reasons,
        "why": {str(i * count + j): reasons.index(reason) for (i, j), reason in figure.reasons.items()},
    }


def _side(side: HeatmapAxis) -> dict[str, Any]:
    models = list(dict.fromkeys(side.models))
    return {
        "name": side.name,
        "labels": list(side.labels),
        "models": models,
        "of": [models.index(model) for model in side.models],
    }


def embedded(value: Any) -> str:
    """Return JSON that may stand inside a script element: no sign in it can end the element."""
    text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _finite(value: Any) -> Any:
    """Return a value with numbers of few digits, and NaN and infinities as null."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value


def spell(value: Any) -> str:
    """Return a value as people read it."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "undefined" if value is not None else ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u2009")
    if isinstance(value, float):
        return spell(int(value)) if 1e4 <= abs(value) < math.inf else f"{value:.4g}"
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"))


def brief(value: Any) -> str:
    """Return a value as a cell of a table shows it: large numbers in millions and more, a dash where there is none."""
    if isinstance(value, float) and math.isnan(value):
        return "\u2013"
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        for size, prefix in _PREFIXES:
            if abs(value) >= size:
                return f"{value / size:.4g}\u2009{prefix}"
    return f"{value:.3g}" if isinstance(value, float) and 0 < abs(value) < 1 else spell(value)


def _raw(value: Any) -> str:
    """Return a number as sorting reads it."""
    return repr(float(value)) if isinstance(value, (int, float)) and math.isfinite(value) else ""


def _numeric(values: Sequence[Any]) -> bool:
    return all(v is None or (isinstance(v, (int, float)) and not isinstance(v, bool)) for v in values)


def _cells(columns: Sequence[Sequence[Any]]) -> list[list[tuple[Any, bool]]]:
    """Return a table's rows, every value with whether its column holds numbers."""
    numeric = [_numeric(column) for column in columns]
    return [list(zip(row, numeric, strict=True)) for row in zip(*columns, strict=True)]


def _moment(text: str) -> str:
    try:
        return datetime.fromisoformat(text).strftime("%d %B %Y, %H:%M %Z").strip(", ")
    except ValueError:
        return text


def _colours() -> list[str]:
    """Return the colours of viridis.

    It has as many steps for the eye in every place, for colour-blind eyes too, and it survives a grey print.
    """
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    scale = colormaps["viridis"]
    return [to_hex(scale(k / (_STOPS - 1))) for k in range(_STOPS)]


def _file(name: str) -> str:
    return resources.files("layerscope.reporting").joinpath("web", name).read_text(encoding="utf-8")
