"""Docstrings say `Example:` of one example; the reader of docstrings knows only `Examples:`, so it is given that."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Makes every example a block of code, and not a paragraph in which brackets become links."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
