"""`layerscope evaluate`"""

from __future__ import annotations

from pathlib import Path

import typer

from layerscope.cli.options import COLUMNS, Columns, Data, Run, with_columns
from layerscope.cli.output import FORMAT, Format, show
from layerscope.cli.record import OUT, leave


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  `layerscope evaluate path/to/classifier --task sst2`")(evaluate)


@with_columns
def evaluate(
    model: str = Run.model,
    task: str = Data.task,
    split: str | None = Data.split,
    limit: int | None = Run.limit,
    max_length: int | None = Run.max_length,
    device: str | None = Run.device,
    columns: Columns = COLUMNS,
    out: Path | None = OUT,
    format: Format = FORMAT,
) -> None:
    """The task's main metric of a model with a head, beside that of always giving the most frequent class."""
    import layerscope as ls
    from layerscope.extract.exam import exam

    data = columns.open(task)
    found = exam(ls.load(model, device=device), data, split=split, limit=limit, max_length=max_length)
    row = {
        "model": model,
        "task": found.examples.task,
        "split": found.examples.split,
        "n": len(found.examples),
        "metric": found.task.metric,
        "score": found.score(found.logits()),
        "majority": found.majority,
    }
    show([row], format)
    if out is not None:
        from layerscope.report import pictures

        leave(
            out,
            "evaluate",
            f"{model} on {task}",
            pictures.score(row),
            models=[found.model],
            examples=found.examples,
            max_length=max_length,
        )
