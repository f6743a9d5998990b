"""Makes a notebook of every script here, runs it, and keeps what it printed and drew.

python examples/notebooks.py                 # all
python examples/notebooks.py compare cut     # some

`# %% [markdown]` begins a text cell, `# %%` a code cell. Cells run in an empty folder; notes on
stderr and bars of progress are left out.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
_CELL = re.compile(r"^# %%( \[markdown\])?$", re.MULTILINE)
_TIMEOUT = 1800  # seconds a cell may take


def cells(script: str) -> Iterator[tuple[str, str]]:
    """(kind, text) of each cell of a script."""
    parts = _CELL.split(script)[1:]
    for mark, text in zip(parts[::2], parts[1::2], strict=True):
        if mark:
            yield "markdown", "\n".join(line.removeprefix("#").removeprefix(" ") for line in text.strip().splitlines())
        else:
            yield "code", text.strip()


def notebook(script: str) -> Any:
    """The script as a notebook that has not run."""
    made = nbformat.v4.new_notebook()
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for number, (kind, text) in enumerate(cells(script)):
        cell = nbformat.v4.new_markdown_cell(text) if kind == "markdown" else nbformat.v4.new_code_cell(text)
        cell["id"] = f"cell-{number}"  # the same whenever it is made
        made.cells.append(cell)
    return made


def execute(made: Any) -> Any:
    """Run a notebook in an empty folder, and keep of its outputs what a reader wants."""
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(made, timeout=_TIMEOUT, resources={"metadata": {"path": folder}}).execute()
    for cell in made.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr" and not _gone(output)]
    made.metadata.pop("language_info", None)
    return made


def _gone(output: Any) -> bool:
    """Whether it is a bar of progress that has done its work."""
    return output.get("data", {}).get("text/html") == ""


def main(names: list[str]) -> None:
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    scripts = [path for path in sorted(HERE.glob("*.py")) if path.name != Path(__file__).name]
    for script in scripts:
        if not names or script.stem in names:
            made = execute(notebook(script.read_text(encoding="utf-8")))
            nbformat.write(made, script.with_suffix(".ipynb"))
            print(script.with_suffix(".ipynb").name)


if __name__ == "__main__":
    main(sys.argv[1:])
