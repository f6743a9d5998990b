"""Formulas between dollar signs become MathML, from what `docs/formulas.py` has stored; code is left alone."""

from __future__ import annotations

import re
from typing import Any

from mkdocs.exceptions import PluginError

from layerscope.reporting.page import FORMULA, formulas

_CODE = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, page: Any = None, **_: Any) -> str:
    parts = _CODE.split(markdown)
    return "".join(
        part if k % 2 else FORMULA.sub(lambda match: _mathml(match[1], page), part) for k, part in enumerate(parts)
    )


def _mathml(formula: str, page: Any) -> str:
    if formula not in formulas():
        raise PluginError(f"{page}: the formula ${formula}$ is not typeset; run python docs/formulas.py.")
    return formulas()[formula]
