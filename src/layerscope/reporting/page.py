"""The HTML report: one file that holds its style, its script and its data, and asks nothing of any network."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any

from layerscope.drawing.figure import Figure, Side
from layerscope.drawing.figures.heatmap import EXTRAS, HeatmapFigure
from layerscope.drawing.figures.table import TableFigure
from layerscope.drawing.painting import markup
from layerscope.drawing.words import heading
from layerscope.errors import InputError
from layerscope.reporting.cards import NARROW, cards
from layerscope.reporting.explaining import GENERAL, explained, terms, without_constants
from layerscope.reporting.findings import summarize
from layerscope.reporting.formulas import typeset
from layerscope.reporting.language import language_section
from layerscope.results import Record, find_records, read_record
from layerscope.store import write_text
from layerscope.version import __version__

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
) -> Path:
    """Write one self-contained HTML file that shows records.

    Args:
        records: Folders of records, folders that hold some, or `Record`s.
        path: The file to write.
        title: The heading of the page.

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
    if os.path.isdir(path):
        raise InputError(f"{path} is a folder; give the report a file name, such as {path / 'report.html'}.")
    text = render(shown, title)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}; give another path.") from error
    return path


def _check_size(records: Sequence[Record]) -> None:
    """Raise a sentence where a page would be too large for any browser."""
    total = 0
    for record in records:
        for figure in record.figures:
            total += sum(map(len, figure.data().values()))
            if total > MOST_VALUES:
                raise InputError(
                    f"These records hold more than {MOST_VALUES:,} values in their figures ({figure.title[:60]!r} of "
                    f"{record.title[:60]!r} is one too many), and no browser shows such a page; report fewer of them."
                )


def render(records: Sequence[Record], title: str) -> str:
    """The page as text. Every name is escaped: they come from users' files and models."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    script, style = _script(), _file("page.css")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "spell": spell,
        "raw": _raw,
        "moment": _moment,
        "numeric": _numeric,
        "cells": _cells,
        "heading": heading,
    }
    environment.filters |= {"sentence": _sentence, "brief": brief, "typeset": lambda text: Markup(typeset(text))}
    page = environment.from_string(_file("page.html"))
    sections = [_section(f"record-{k + 1}", record) for k, record in enumerate(records)]
    if (language := language_section(records)) is not None:
        sections.insert(0, _section("language-models", language))
    shown = [card for section in sections for card in section["cards"]]
    return page.render(
        title=title,
        sections=sections,
        summary=summarize(records),
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
    """A text with a capital at its beginning (except for `p = 0.2` and the like) and a full stop at its end."""
    first = text[:1] if text[1:3] == " =" else text[:1].upper()
    return first + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def payload(figure: Figure) -> dict[str, Any]:
    """What the page's script draws from; tables are in the page itself."""
    words = {"kind": figure.kind, **figure.words()}
    if isinstance(figure, TableFigure):
        return words
    if isinstance(figure, HeatmapFigure):
        return {**words, **_heatmap(figure)}
    return {**words, **figure.settings(), "data": figure.data()}


def _heatmap(figure: HeatmapFigure) -> dict[str, Any]:
    """Cells by their place; every reason is written once."""
    reasons = list(dict.fromkeys(figure.reasons.values()))
    count = len(figure.columns)
    return {
        "rows": _side(figure.rows),
        "columns": _side(figure.columns),
        "value_name": figure.value_name,
        "scale": list(figure.scale),
        "cuts": list(figure.cuts),
        "n": figure.n,
        "values": figure.values.ravel().tolist(),
        **{k: getattr(figure, k).ravel().tolist() for k in EXTRAS if getattr(figure, k) is not None},
        "reasons": reasons,
        "why": {str(i * count + j): reasons.index(reason) for (i, j), reason in figure.reasons.items()},
    }


def _side(side: Side) -> dict[str, Any]:
    models = list(dict.fromkeys(side.models))
    return {
        "name": side.name,
        "labels": list(side.labels),
        "models": models,
        "of": [models.index(model) for model in side.models],
    }


def embedded(value: Any) -> str:
    """JSON that may stand inside a script element: no sign in it can end the element."""
    text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _finite(value: Any) -> Any:
    """Numbers with few digits, NaN and infinities as null."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value


def spell(value: Any) -> str:
    """A value as people read it."""
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
    """A value as a cell of a table shows it: large numbers in millions and more, a dash where there is none."""
    if isinstance(value, float) and math.isnan(value):
        return "\u2013"
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        for size, prefix in _PREFIXES:
            if abs(value) >= size:
                return f"{value / size:.4g}\u2009{prefix}"
    return f"{value:.3g}" if isinstance(value, float) and 0 < abs(value) < 1 else spell(value)


def _raw(value: Any) -> str:
    """A number as sorting reads it."""
    return repr(float(value)) if isinstance(value, (int, float)) and math.isfinite(value) else ""


def _numeric(values: Sequence[Any]) -> bool:
    return all(v is None or (isinstance(v, (int, float)) and not isinstance(v, bool)) for v in values)


def _cells(columns: Sequence[Sequence[Any]]) -> list[list[tuple[Any, bool]]]:
    """A table's rows; every value with whether its column holds numbers."""
    numeric = [_numeric(column) for column in columns]
    return [list(zip(row, numeric, strict=True)) for row in zip(*columns, strict=True)]


def _moment(text: str) -> str:
    try:
        return datetime.fromisoformat(text).strftime("%d %B %Y, %H:%M %Z").strip(", ")
    except ValueError:
        return text


def _colours() -> list[str]:
    """Viridis: as many steps for the eye in every place, for colour-blind eyes too, and it survives a grey print."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    scale = colormaps["viridis"]
    return [to_hex(scale(k / (_STOPS - 1))) for k in range(_STOPS)]


def _script() -> str:
    """The page's script: the files of `web/` as one function, so that nothing of it is seen from outside."""
    parts = "\n".join(_file(f"{name}.js") for name in _SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


def _file(name: str) -> str:
    return resources.files("layerscope.reporting").joinpath("web", name).read_text(encoding="utf-8")
