"""`layerscope truncate`"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from layerscope.cli.options import COLUMNS, Columns, Data, Run, with_columns
from layerscope.cli.output import FORMAT, Format, cut_and_save, show_scores
from layerscope.cli.record import OUT, leave, write_table
from layerscope.errors import InputError


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Example:  `layerscope truncate path/to/classifier --task sst2 --curve -o out`  \n"
        "`layerscope truncate path/to/classifier --task sst2 --keep 8 --save smaller`"
    )(truncate)


@with_columns
def truncate(
    model: str = Run.model,
    task: str = Data.task,
    keep: int | None = typer.Option(None, help="Keep the first so many blocks; the head reads the last of them."),
    curve: bool = typer.Option(False, "--curve", help="Put the head on every layer in turn."),
    save: Path | None = Run.save,
    out: Path | None = OUT,
    split: str | None = Data.split,
    limit: int | None = Run.limit,
    max_length: int | None = Run.max_length,
    device: str | None = Run.device,
    columns: Columns = COLUMNS,
    format: Format = FORMAT,
) -> None:
    """Cut the top blocks off a tuned model and evaluate what is left: one depth, or the curve of all."""
    import layerscope as ls

    if (keep is None) != curve:
        raise InputError("Give either --keep K, to cut there, or --curve, to see what every cut costs.")
    if save is not None and curve:
        raise InputError("--save needs --keep K: which of the curve's models is to be saved?")
    data = columns.open(task)
    opened = ls.load(model, device=device)
    options: dict[str, Any] = {"split": split, "limit": limit, "max_length": max_length}
    if not curve:
        assert keep is not None
        cut_and_save(opened, ls.LayerPlan.truncated(opened.depth, keep), data, options, save, out, format)
        return
    frame = ls.truncation_curve(opened, data, **options)
    show_scores(frame, format, f"The head of {model} on every layer, nothing trained")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_table(frame, out / "truncation.csv")
        ls.plot_truncation(frame, out / "truncation.png")

        from layerscope.extract.run import examples_of
        from layerscope.report import pictures

        leave(
            out,
            "truncate",
            f"{model} on {task}: the head on every layer",
            pictures.truncation(frame),
            models=[opened],
            examples=examples_of(data, split, limit),
            max_length=max_length,
        )
