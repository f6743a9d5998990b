"""`layerscope advise`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.cli.options import COLUMNS, Columns, Data, Run, with_columns
from layerscope.cli.output import FORMAT, Format, show
from layerscope.cli.record import OUT, leave, write_table

if TYPE_CHECKING:
    from layerscope.analysis import Advice

_COLUMNS = ("blocks", "chosen_on", "score", "low", "high", "parameters", "macs", "latency_1", "latency_32", "chosen")


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  `layerscope advise path/to/classifier --task sst2 --tolerance 0.01 --save smaller`")(
        advise
    )


@with_columns
def advise(
    model: str = Run.model,
    task: str = Data.task,
    tolerance: float = typer.Option(0.01, help="How much of the metric may be lost."),
    max_span: int | None = typer.Option(None, help="Skip spans of at most so many blocks."),
    evaluations: int = typer.Option(60, help="Most evaluations of the greedy search."),
    save: Path | None = Run.save,
    out: Path | None = OUT,
    all: bool = typer.Option(False, "--all", help="Print every candidate, not only the Pareto front."),
    seed: int = typer.Option(0, help="Decides which half of the rows chooses."),
    split: str | None = Data.split,
    limit: int | None = Run.limit,
    max_length: int | None = Run.max_length,
    device: str | None = Run.device,
    columns: Columns = COLUMNS,
    format: Format = FORMAT,
) -> None:
    """Which blocks a tuned model can lose within a tolerance: chosen on half of the rows, scored on the other half."""
    import layerscope as ls
    from layerscope.store import check_free
    from layerscope.surgery.saving import RECORD

    if save is not None:
        check_free(save, RECORD)  # before the work, not after it
    data = columns.open(task)
    found = ls.advise(
        ls.load(model, device=device),
        data,
        tolerance=tolerance,
        split=split,
        limit=limit,
        max_span=max_span,
        evaluations=evaluations,
        max_length=max_length,
        seed=seed,
    )
    table = found.table if all else found.table[found.table["front"] | found.table["chosen"]]
    shown = table.sort_values("macs")[list(_COLUMNS)]
    show(shown.to_dict("records"), format, f"What {model} can lose on {task}")
    if format is Format.table:
        print(found)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_table(found.table, out / "advice.csv")
        found.plot(out / "advice.png")
        _leave(out, model, task, found, tolerance=tolerance, max_span=max_span, max_length=max_length, seed=seed)
    if save is not None:
        smaller = found.model
        ls.evaluate(smaller, data, split=split, limit=limit, max_length=max_length)  # so that its card has the score
        ls.save(smaller, save)
        if format is Format.table:
            print(f"Saved in {save}, reopened and compared.")


def _leave(out: Path, model: str, task: str, found: Advice, **settings: Any) -> None:
    from layerscope.report import pictures

    leave(
        out,
        "advise",
        f"What {model} can lose on {task}",
        pictures.advice(found),
        models=[found.exam.model],
        examples=found.exam.examples,
        findings=[str(found)],
        **settings,
    )
