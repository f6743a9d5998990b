"""Figures and tables for LaTeX: floats with captions, and texts in which nothing is read as a command.

What is written compiles under pdflatex with the packages graphicx and booktabs alone, whatever names models have.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from layerscope.drawing.captions import heading
from layerscope.drawing.figure import Figure
from layerscope.drawing.figures.table import TableFigure

MOST_ROWS = 30  # of a table: more leave no room for a caption on the page
_LONG = 40  # characters: a column with longer cells is broken into lines
_TOGETHER = 10  # floats after which LaTeX places what it has: it keeps no more than some dozens in hand
_HEAD = r"""% The figures and tables that `layerscope figures --format tex` wrote. In your document:
%   \usepackage{graphicx,booktabs}
%   \graphicspath{{FOLDER/}}    % this folder, if the document lies elsewhere
%   \input{FOLDER/figures}
"""
# ruff: noqa: RUF001  (letters that look alike are what the table is for)
_WRITTEN = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "[": "{[}",  # after the end of a row a bracket or a star would be read as its argument
    "*": "{*}",
    **{sign: rf"\{sign}" for sign in "&%$#_{}"},
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "−": "$-$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≈": r"$\approx$",
    "→": r"$\rightarrow$",
    "∞": r"$\infty$",
    "°": r"$^{\circ}$",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "‘": "`",
    "’": "'",
    "“": "``",
    "”": "''",
    "ß": r"\ss{}",
    "æ": r"\ae{}",
    "Æ": r"\AE{}",
    "œ": r"\oe{}",
    "Œ": r"\OE{}",
    "ø": r"\o{}",
    "Ø": r"\O{}",
    "ł": r"\l{}",
    "Ł": r"\L{}",
    "ı": r"\i{}",
    **{sign: f"$^{{{digit}}}$" for digit, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
}
_GREEK = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi"
for _name in (*_GREEK.split(), "omega"):
    _sign = unicodedata.lookup(f"GREEK SMALL LETTER {_name.replace('lambda', 'lamda')}")
    _WRITTEN[_sign] = rf"$\{_name}$"
_WRITTEN["µ"] = r"$\mu$"
_ACCENTS = {
    "\u0300": "`",
    "\u0301": "'",
    "\u0302": "^",
    "\u0303": "~",
    "\u0304": "=",
    "\u0306": "u",
    "\u0307": ".",
    "\u0308": '"',
    "\u030a": "r",
    "\u030b": "H",
    "\u030c": "v",
    "\u0327": "c",
}


def tex(text: Any) -> str:
    """Return a text as LaTeX shows it. What pdflatex has no letter for becomes its number, such as [U+4E2D]."""
    line = unicodedata.normalize("NFC", " ".join(str(text).split()))
    # Two hyphens of an option such as --limit would become one dash.
    return "-{}".join("".join(map(_letter, part)) for part in re.split("-(?=-)", line))


def _letter(letter: str) -> str:
    if letter in _WRITTEN:
        return _WRITTEN[letter]
    if " " <= letter <= "~":
        return letter
    plain, *accents = list(unicodedata.normalize("NFD", letter))
    if plain.isascii() and plain.isalpha() and len(accents) == 1 and accents[0] in _ACCENTS:
        return rf"\{_ACCENTS[accents[0]]}{{{plain}}}"
    return f"{{[}}U+{ord(letter):04X}]"


def floats(named: Iterable[tuple[str, Figure]]) -> str:
    """Return every figure and table with its caption, by the names of their files without an ending."""
    made = [part for name, figure in named if (part := _float(name, figure))]
    parts = [part + ("\\clearpage\n" if k % _TOGETHER == 0 else "") for k, part in enumerate(made, 1)]
    return "\n".join([_HEAD, *parts])


def _float(name: str, figure: Figure) -> str:
    """Return the float of a figure, or nothing for a table in which nothing stands."""
    more = ""
    if isinstance(figure, TableFigure):
        kind, body, more = "table", tabular(figure.table), _left_out(name, figure)
        if not body:
            return ""
    else:
        # In its natural size, for which its letters were drawn.
        kind, body = "figure", rf"\includegraphics{{{name}.pdf}}"
    words = [figure.title, *_facets(figure), figure.shows, figure.caveat, more]
    caption = tex(" ".join(f"{word.strip().rstrip('.')}." for word in words if word.strip()))
    lines = [rf"\begin{{{kind}}}[htbp]", r"\centering", body, rf"\caption{{{caption}}}"]
    return "\n".join([*lines, rf"\label{{{kind[:3]}:{name}}}", rf"\end{{{kind}}}", ""])


def _facets(figure: Figure) -> list[str]:
    said = [f"{name} {value}" for name, value in figure.facets.items() if value not in figure.title]
    return [", ".join(said)] if said else []


def _left_out(name: str, figure: TableFigure) -> str:
    rows = max(map(len, figure.table.values()), default=0)
    return f"The first {MOST_ROWS} of {rows} rows; all of them are in {name}.csv" if rows > MOST_ROWS else ""


def tabular(table: Any) -> str:
    """Return the first rows of a table for booktabs, without its empty columns; nothing if no column is left."""
    columns = {name: list(values) for name, values in table.items() if not all(map(_is_empty, values))}
    if not columns:
        return ""
    shown = {name: [_cell(value) for value in values[:MOST_ROWS]] for name, values in columns.items()}
    kinds = [_kind(values, shown[name]) for name, values in columns.items()]
    head = " & ".join(tex(heading(str(name))) for name in columns)
    rows = [" & ".join(row) for row in zip(*shown.values(), strict=True)]
    return "\n".join(
        [
            # A table that is wider than the line is made as narrow as that; others keep their size.
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            rf"\begin{{tabular}}{{{''.join(kinds)}}}",
            *(r"\toprule", rf"{head} \\", r"\midrule", *(rf"{row} \\" for row in rows), r"\bottomrule"),
            r"\end{tabular}}",
        ]
    )


def _kind(values: Sequence[Any], cells: Sequence[str]) -> str:
    if all(_is_empty(value) or (isinstance(value, (int, float)) and not isinstance(value, bool)) for value in values):
        return "r"
    return "p{6cm}" if max(map(len, cells), default=0) > _LONG else "l"


def _is_empty(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _cell(value: Any) -> str:
    if _is_empty(value):
        return "--"
    if isinstance(value, bool):
        return "yes" if value else "no"
    written = tex(f"{value:.4g}" if isinstance(value, float) else value)
    return f"$-${written[1:]}" if isinstance(value, (int, float)) and value < 0 else written
