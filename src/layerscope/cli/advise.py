"""`layerscope advise`"""

from __future__ import annotations

from pathlib import Path

import typer

from layerscope.cli.cutting import check_save, saved
from layerscope.cli.options import COLUMNS, Columns, Data, Given, with_columns
from layerscope.cli.output import FORMAT, Format, show
from layerscope.cli.record import OUT, keep

PLACE = 60  # in the help text
_COLUMNS = ("blocks", "chosen_on", "score", "low", "high", "parameters", "macs", "latency_1", "latency_32", "chosen")


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  `layerscope advise path/to/classifier --task sst2 --tolerance 0.01 --save smaller`")(
        advise
    )


@with_columns
def advise(
    model: str = Given.model,
    task: str = Data.task,
    tolerance: float = typer.Option(0.01, help="How much of the metric may be lost."),
    max_span: int | None = typer.Option(None, help="Skip spans of at most so many blocks."),
    evaluations: int = typer.Option(60, help="Most evaluations of the greedy search."),
    save: Path | None = Given.save,
    out: Path | None = OUT,
    all: bool = typer.Option(False, "--all", help="Print every candidate, not only the Pareto front."),
    seed: int = typer.Option(0, help="Decides which half of the rows chooses."),
    split: str | None = Data.split,
    limit: int | None = Given.limit,
    max_length: int | None = Given.max_length,
    all_rows: bool = Given.all_rows,
    device: str | None = Given.device,
    columns: Columns = COLUMNS,
    format: Format = FORMAT,
) -> None:
    """Which blocks a tuned model can lose within a tolerance: chosen on half of the rows, scored on the other half."""
    import layerscope as ls

    opened = ls.load(model, device=device)
    check_save(save, opened)
    advice = ls.advise(
        opened,
        columns.open(task),
        tolerance=tolerance,
        split=split,
        limit=limit,
        max_span=max_span,
        evaluations=evaluations,
        max_length=max_length,
        seed=seed,
        all_rows=all_rows,
    )
    table = advice.frame if all else advice.frame[advice.frame["front"] | advice.frame["chosen"]]
    title = f"What {model} can lose on {task}"
    show(table.sort_values("macs")[list(_COLUMNS)].to_dict("records"), format, title)
    if format is Format.table:
        print(advice)
    keep(out, "advise", title, {"advice": advice})
    if save is not None:
        ls.save(advice.model, save, scores=advice.score)
        saved(save, format)
