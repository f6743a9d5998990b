"""`layerscope tasks`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.cli import console
from layerscope.cli.command import NOT_OF_TASK, Given, command
from layerscope.cli.console import FORMAT, Format, show
from layerscope.drawing.captions import listed

if TYPE_CHECKING:
    from layerscope.data import Task

_SHOWN = 20  # classes in a table


@command(
    {"no name": "tasks", "a name": "task"},
    panel=console.REST,
    examples=["layerscope tasks pydocs"],
    left_out=NOT_OF_TASK,
)
def tasks(
    given: Given,
    name: str | None = typer.Argument(None, help="A task, a file, a folder or a hub id, to see its splits."),
    format: Format = FORMAT,
) -> None:
    """List the tasks that are known by name, or the splits and labels of one data set."""
    from layerscope.data.registry import registry

    if name is None:
        show(given.call("tasks").to_dict("records"), format)
        return
    task = given.open_task(name)
    rows: list[dict[str, Any]] = []
    for split in task.splits:
        if not task.is_here(split):
            rows.append(
                {"split": split, "examples": None, "skipped": None, "words": None, "labels": "not here; the hub has it"}
            )
            continue
        examples = task.split(split)
        counts = None
        if examples.labels is not None and examples.label_names:
            labels = examples.labels.tolist()
            names = examples.label_names[: None if format is Format.json else _SHOWN]
            counts = ", ".join(f"{label}: {labels.count(i)}" for i, label in enumerate(names))
            counts += f" and {more} more" if (more := len(examples.label_names) - len(names)) else ""
        words = sum(map(len, examples.words)) if examples.words else None
        rows.append(
            {
                "split": split,
                "examples": len(examples),
                "skipped": examples.skipped,
                "words": words,
                "labels": counts,
            }
        )
    if format is Format.table:  # what no split has is left out
        rows = [{key: row[key] for key in row if any(each[key] is not None for each in rows)} for row in rows]
    show(rows, format, f"{task.name}: {task.kind}, {task.metric}")
    lines = Path(name.removesuffix(".gz")).suffix in (".txt", ".conllu")  # have no columns
    if format is Format.table and name not in registry() and not lines:
        print(_read_as(task))


def _read_as(task: Task) -> str:
    """Which columns were taken for what, and how to say it otherwise."""
    columns = task.columns
    parts = {
        "text": [columns.text] if columns.text else [],
        "second text": [columns.text_pair] if columns.text_pair else [],
        "words": columns.words,
        "choices": [name for group in columns.choices for name in group],
        "tags": columns.tags,
        "label": columns.label,
    }
    read = ", ".join(f"{part} from {listed(list(names))}" for part, names in parts.items() if names)
    if task.kind == "text" or columns.label or columns.tags:
        return f"Read as: {read}."
    return f"Read as: {read}; no labels (--label names their column)."
