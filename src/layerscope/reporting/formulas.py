"""Formulas typeset as MathML, which browsers draw themselves: no script, no font, no network.

`web/formulas.json` holds the MathML of every formula that pages show, by its LaTeX; `docs/formulas.py` makes it.
"""

from __future__ import annotations

import json
import re
from functools import cache
from html import escape
from importlib import resources

FORMULA = re.compile(r"\$(?=\S)([^$\n]+?)(?<=\S)\$")


@cache
def known() -> dict[str, str]:
    """The MathML of every formula, by its LaTeX."""
    file = resources.files("layerscope.reporting").joinpath("web", "formulas.json")
    return dict(json.loads(file.read_text(encoding="utf-8")))


def typeset(text: str) -> str:
    """A text as HTML: formulas between dollar signs as MathML, all else escaped. Unknown ones stay text."""
    parts, end = [], 0
    for match in FORMULA.finditer(text):
        if match.group(1) in known():
            parts += [escape(text[end : match.start()]), known()[match.group(1)]]
            end = match.end()
    return "".join([*parts, escape(text[end:])])
