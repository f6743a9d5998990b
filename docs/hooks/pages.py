"""Fills the lists of results and examples, and links every `ls.name` to its entry in the Python reference."""

from __future__ import annotations

import ast
import logging
import re
from functools import cache
from pathlib import Path
from typing import Any

log = logging.getLogger("mkdocs.hooks.pages")
ROOT = Path(__file__).parent.parent.parent
_NAME = re.compile(r"(?<!\[)`ls\.(\w+)([^`\n]*)`(?!\])")
_ITEM = re.compile(r"^(- |\d+\. )")
_PARAGRAPH = re.compile(r"^(?!- |\d+\. |#|\||```)\S")
_FENCE = re.compile(r"^\s*```")


def on_config(config: Any) -> Any:
    """Every page of docs/results, and every notebook, has its place in the navigation."""
    results = [f"results/{path.name}" for path in sorted((ROOT / "docs/results").glob("*.md"))]
    examples = [f"examples/{path.stem}.md" for path in sorted((ROOT / "examples").glob("*.ipynb"))]
    for section in config.nav:
        if "Background" in section:
            next(entry for entry in section["Background"] if "Results" in entry)["Results"] = results
        if "Examples" in section:
            section["Examples"] = examples
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """`ls.compare` in a sentence becomes a link; a name that layerscope does not have is a warning.

    A list that follows its paragraph without a blank line, which GitHub knows and Python-Markdown does not, gets one.
    """
    lines: list[str] = []
    fenced = False
    for line in markdown.splitlines():
        fenced ^= bool(_FENCE.match(line))
        heading = line.startswith(("#", ":::"))
        if not fenced and _ITEM.match(line) and lines and _PARAGRAPH.match(lines[-1]):
            lines.append("")
        lines.append(line if fenced or heading else _NAME.sub(lambda m: _link(m, page), line))
    return "\n".join(lines)


def _link(match: re.Match[str], page: Any) -> str:
    if match[1] not in public_names():
        log.warning("%s speaks of ls.%s, which layerscope does not have", page.file.src_uri, match[1])
        return match[0]
    return f"[{match[0]}][ls.{match[1]}]"


@cache
def public_names() -> tuple[str, ...]:
    """`layerscope.__all__`, read without importing anything."""
    tree = ast.parse((ROOT / "src/layerscope/__init__.pyi").read_text(encoding="utf-8"))
    return tuple(alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names)
