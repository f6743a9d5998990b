"""`layerscope evaluate`"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from layerscope.cli.options import COLUMNS, Columns, Data, Given, with_columns
from layerscope.cli.output import FORMAT, Format, show
from layerscope.cli.record import OUT, keep

PLACE = 30  # in the help text


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  `layerscope evaluate path/to/classifier --task sst2`")(evaluate)


@with_columns
def evaluate(
    model: str = Given.model,
    task: str = Data.task,
    split: str | None = Data.split,
    metric: str | None = typer.Option(None, help="Another metric than the task's own: accuracy, f1, matthews, .."),
    limit: int | None = Given.limit,
    max_length: int | None = Given.max_length,
    all_rows: bool = Given.all_rows,
    device: str | None = Given.device,
    columns: Columns = COLUMNS,
    out: Path | None = OUT,
    format: Format = FORMAT,
) -> None:
    """The task's main metric of a model with a head, beside that of always giving the most frequent class."""
    import layerscope as ls

    opened, data = ls.load(model, device=device), columns.open(task)
    rows: dict[str, Any] = {"split": split, "limit": limit, "all_rows": all_rows}
    score = ls.evaluate(opened, data, **rows, max_length=max_length, metric=metric)
    kept = ("model", "task", "split", "n", "metric", "score", "majority")
    show([{name: score.row[name] for name in kept}], format)
    keep(out, "evaluate", f"{model} on {task}", {"score": score})
