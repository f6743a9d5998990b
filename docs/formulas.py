"""Typesets the formulas of pages and reports: python docs/formulas.py (needs latex2mathml, of the docs extra).

Collects every formula between dollar signs in docs/*.md and in the texts of the source, and writes its MathML into
src/layerscope/reporting/web/formulas.json, from which the site and the report take it.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from layerscope.reporting.page import FORMULA
from layerscope.similarity.registry import CALIBRATED, CALIBRATED_DISTANCE, FORMULAS

ROOT = Path(__file__).resolve().parent.parent
STORED = ROOT / "src" / "layerscope" / "reporting" / "web" / "formulas.json"
COMMAND = re.compile(r"\\(frac|lVert|sum|sqrt|tau|rho|max|bar)\b")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def of_page(markdown: str) -> list[str]:
    """The formulas of a page, code left out."""
    return FORMULA.findall(CODE.sub("", markdown))


def of_source(source: str) -> Iterator[str]:
    """The formulas in the texts of a Python file: what is between dollar signs and has a command of LaTeX in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (formula for formula in FORMULA.findall(node.value) if COMMAND.search(formula))


def all_formulas() -> list[str]:
    """Every formula that a page or a report shows, in alphabetical order."""
    pages = [formula for page in (ROOT / "docs").rglob("*.md") for formula in of_page(page.read_text(encoding="utf-8"))]
    source = (ROOT / "src").rglob("*.py")
    texts = [formula for file in source for formula in of_source(file.read_text(encoding="utf-8"))]
    return sorted({*pages, *texts, *FORMULAS.values(), CALIBRATED, CALIBRATED_DISTANCE})


def main() -> None:
    from latex2mathml.converter import convert

    made = {formula: convert(formula) for formula in all_formulas()}
    STORED.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(made)} formulas")


if __name__ == "__main__":
    main()
