"""`layerscope truncate`"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from layerscope.cli.cutting import checked_task, cut_and_save
from layerscope.cli.options import COLUMNS, Columns, Data, Given, with_columns
from layerscope.cli.output import FORMAT, Format, show_scores
from layerscope.cli.record import OUT, keep
from layerscope.errors import InputError

PLACE = 40  # in the help text


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Example:  `layerscope truncate path/to/classifier --task sst2 --curve -o out`  \n"
        "`layerscope truncate path/to/classifier --task sst2 --keep 8 --save smaller`  \n"
        "`layerscope truncate path/to/language-model --task wikitext --curve`"
    )(truncate)


@with_columns
def truncate(
    model: str = Given.model,
    task: str | None = Data.task_or_none,
    keep_: int | None = typer.Option(
        None, "--keep", help="Keep the first so many blocks; the head reads the last of them."
    ),
    curve: bool = typer.Option(False, "--curve", help="Put the head on every layer in turn."),
    save: Path | None = Given.save,
    out: Path | None = OUT,
    split: str | None = Data.split,
    limit: int | None = Given.limit,
    max_length: int | None = Given.max_length,
    all_rows: bool = Given.all_rows,
    device: str | None = Given.device,
    dtype: str = Given.dtype,
    columns: Columns = COLUMNS,
    format: Format = FORMAT,
) -> None:
    """Cut the top blocks off a model and evaluate what is left: one depth, or the curve of all.

    The curve of a language model is its logit lens. With --keep and --save, no task is needed.
    """
    import layerscope as ls

    if (keep_ is None) != curve:
        raise InputError("Give either --keep K, to cut there, or --curve, to see what every cut costs.")
    if save is not None and curve:
        raise InputError("--save needs --keep K: which of the curve's models is to be saved?")
    data = checked_task(task, columns, save)
    opened = ls.load(model, device=device, dtype=dtype)
    options: dict[str, Any] = {
        "split": split,
        "limit": limit,
        "max_length": max_length,
        "all_rows": all_rows,
    }
    if keep_ is not None:
        cut_and_save(opened, ls.LayerPlan.truncated(opened.depth, keep_), data, options, save, out, format)
        return
    assert data is not None
    truncation = ls.truncation_curve(opened, data, **options)
    show_scores(truncation.frame, format, f"The head of {model} on every layer, nothing trained")
    keep(out, "truncate", f"{model} on {task}: the head on every layer", {"truncation": truncation})
