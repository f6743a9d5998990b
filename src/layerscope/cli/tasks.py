"""`layerscope tasks`"""

from __future__ import annotations

from typing import Any

import typer

from layerscope.cli.options import COLUMNS, Columns, with_columns
from layerscope.cli.output import FORMAT, Format, show

_SHOWN = 20  # classes in a table


PLACE = 120  # in the help text


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  `layerscope tasks pydocs`")(tasks)


@with_columns
def tasks(
    name: str | None = typer.Argument(None, help="A task, a file, a folder or a hub id, to see its splits."),
    columns: Columns = COLUMNS,
    format: Format = FORMAT,
) -> None:
    """List the tasks that are known by name, or the splits and labels of one data set."""
    import layerscope as ls

    if name is None:
        show(ls.tasks().to_dict("records"), format)
        return
    task = columns.open(name)
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
            counts = ", ".join(f"{label} {labels.count(i)}" for i, label in enumerate(names))
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
    show(rows, format, f"{task.name}: {task.kind}, {task.metric}")
