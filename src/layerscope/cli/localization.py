"""`layerscope localization`"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from layerscope.cli import helptext
from layerscope.cli.options import COLUMNS, Columns, Data, Given, with_columns
from layerscope.cli.output import FORMAT, Format, show
from layerscope.cli.record import OUT, keep
from layerscope.drawing.words import listed

PLACE = 25  # in the help text
PANEL = helptext.ALIKE


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  `layerscope localization demo:minilm --task pydocs --pool mean -o out`")(localization)


@with_columns
def localization(
    models: list[str] = typer.Argument(help="One model, or several: the other layers are then those of all of them."),
    task: str = Data.task,
    standardize: bool = typer.Option(
        False,
        "--standardize",
        help="Bring both means to mean 0 and standard deviation 1 first, as the authors' code does.",
    ),
    split: str | None = Data.split,
    pool: str = typer.Option("mean", help="How tokens become rows: cls, mean, last, words or tokens."),
    limit: int | None = Given.limit,
    max_length: int = typer.Option(128, help="Longest text in tokens; the rest is cut off."),
    device: str | None = Given.device,
    dtype: str = Given.dtype,
    columns: Columns = COLUMNS,
    out: Path | None = OUT,
    format: Format = FORMAT,
) -> None:
    """Measure how much of each layer sits in single neurons: mean neuron minus mean SVCCA similarity to the others."""
    import layerscope as ls
    from layerscope.team import Team

    data = columns.open(task)
    opened = [ls.load(model, device=device, dtype=dtype) for model in models]
    reading: dict[str, Any] = {"pool": pool, "limit": limit, "max_length": max_length}
    curve = ls.localization(opened, standardize=standardize, task=data, split=split, names=models, **reading)
    if not Team.current().is_main:
        return
    show(curve.frame.to_dict("records"), format, f"Localization of the layers of {listed(models)} on {task}")
    keep(out, "localization", f"Localization of the layers of {listed(models)} on {task}", {"localization": curve})
