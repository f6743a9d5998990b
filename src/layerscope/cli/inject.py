"""`layerscope inject`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.cli import helptext
from layerscope.cli.options import COLUMNS, Columns, Data, Given, aligner_options, integers, names, with_columns
from layerscope.cli.output import FORMAT, Format, show
from layerscope.cli.record import OUT, keep

if TYPE_CHECKING:
    from pandas import Series

PLACE = 100  # in the help text
PANEL = helptext.STAND


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  `layerscope inject path/to/a path/to/b --task sst2 --layer all -o out`")(inject)


@with_columns
def inject(
    source: str = typer.Argument(help="The classifier whose states are mapped."),
    target: str = typer.Argument(help="The classifier that continues from them; it must have the same tokenizer."),
    task: str = Data.task,
    layer: str | None = typer.Option(
        None, "--layer", help="The target's layers: 8, 0,4,8, 6-12 or all; the last one if not given."
    ),
    method: str | None = typer.Option(None, "--method", help="One or several methods: inn,linear; all if not given."),
    train: int = typer.Option(1600, help="Texts of the train split that aligners learn from."),
    start: str = typer.Option("linear", help="For inn and mlp: linear starts from the linear map, plain from nothing."),
    seed: int = typer.Option(0, help="Decides folds, networks and floors."),
    split: str | None = Data.split,
    limit: int | None = Given.limit,
    max_length: int | None = Given.max_length,
    all_rows: bool = Given.all_rows,
    engine: str = Given.engine,
    device: str | None = Given.device,
    dtype: str = Given.dtype,
    columns: Columns = COLUMNS,
    out: Path | None = OUT,
    format: Format = FORMAT,
) -> None:
    """Test whether one model works on another's states: replace a layer of TARGET by SOURCE's, mapped, and score it."""
    import layerscope as ls

    methods = None if method is None else names(method, "method")
    options = aligner_options(methods, start)
    data = columns.open(task)
    source_model, target_model = (ls.load(name, device=device, dtype=dtype) for name in (source, target))
    layers: Any = layer if layer in (None, "all") else integers(str(layer))
    study = ls.injection_study(
        source_model,
        target_model,
        data,
        layers=layers,
        methods=methods,
        split=split,
        limit=limit,
        train=train,
        max_length=max_length,
        seed=seed,
        options=options,
        all_rows=all_rows,
        engine=engine,
    )
    title = f"{source} in the place of {target} on {task}"
    kept = ["layer", "method", "score", "low", "high"] if format is Format.table else list(study.frame)
    show(study.frame[kept].to_dict("records"), format, title)
    if format is Format.table:
        first = study.frame.iloc[0]
        print(
            f"{first['metric']} of {source} alone {_spelled(first, 'source')}, of {target} alone "
            f"{_spelled(first, 'target')}, of the most frequent class {first['majority']:.4f} ({first['n']} texts; "
            "intervals of 95 % over texts)."
        )
    keep(out, "inject", title, {"injection": study}, start=start)


def _spelled(row: Series, side: str) -> str:
    """A score with its interval."""
    return f"{row[f'{side}_score']:.4f} ({row[f'{side}_low']:.4f} to {row[f'{side}_high']:.4f})"
