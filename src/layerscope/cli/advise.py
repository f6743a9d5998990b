"""`layerscope advise`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from layerscope.cli.cutting import check_save, saved
from layerscope.cli.options import COLUMNS, Columns, Data, Given, with_columns
from layerscope.cli.output import FORMAT, Format, show
from layerscope.cli.record import OUT, keep

if TYPE_CHECKING:
    from pandas import DataFrame

    from layerscope.cutting.advice_results import Advice

PLACE = 60  # in the help text
_SCORES = ("blocks", "chosen_on", "change_low", "score", "low", "high")
_COSTS = ("parameters", "macs", "latency_1_ms", "latency_32_ms", "chosen")


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  `layerscope advise path/to/classifier --task sst2 --tolerance 0.01 --save smaller`")(
        advise
    )


@with_columns
def advise(
    model: str = Given.model,
    task: str = Data.task,
    tolerance: str = typer.Option(
        "0.01", help="How much of the metric may be lost; 5% is a share, as it always is of perplexity."
    ),
    confidence: float = typer.Option(0.9, help="How sure that must be; 0 takes what looks to be enough, and warns."),
    max_span: int | None = typer.Option(None, help="Skip spans of at most so many blocks."),
    evaluations: int = typer.Option(60, help="Most evaluations of the greedy search."),
    save: Path | None = Given.save,
    print_as: str | None = typer.Option(
        None, "--print-as", help="Print the chosen plan as another tool takes it: mergekit or llama.cpp."
    ),
    out: Path | None = OUT,
    all: bool = typer.Option(False, "--all", help="Print every candidate, not only the Pareto front."),
    seed: int = typer.Option(0, help="Decides which rows pick, confirm and score."),
    split: str | None = Data.split,
    limit: int | None = Given.limit,
    max_length: int | None = Given.max_length,
    all_rows: bool = Given.all_rows,
    device: str | None = Given.device,
    dtype: str = Given.dtype,
    columns: Columns = COLUMNS,
    format: Format = FORMAT,
) -> None:
    """Which blocks a model can lose within a tolerance: chosen on half of the rows, scored on the other half.

    Of the half that chooses, a quarter picks a candidate of each size and the rest confirms the picks, so that the
    confidence holds after the choice.
    """
    import layerscope as ls
    from layerscope.cutting.exports import PRINTERS, printed_as
    from layerscope.errors import choose

    if print_as is not None:
        choose("tool", print_as, PRINTERS)
    opened = ls.load(model, device=device, dtype=dtype)
    check_save(save, opened)
    advice = ls.advise(
        opened,
        columns.open(task),
        tolerance=tolerance,
        confidence=confidence,
        split=split,
        limit=limit,
        max_span=max_span,
        evaluations=evaluations,
        max_length=max_length,
        seed=seed,
        all_rows=all_rows,
    )
    title = f"What {model} can lose on {task}"
    show(_table(advice, all, format).to_dict("records"), format, title)
    if format is Format.table:
        print(advice)
    if print_as is not None:
        print(
            printed_as(print_as, advice.choice, model, opened.depth), file=sys.stderr if format is Format.json else None
        )
    keep(out, "advise", title, {"advice": advice})
    if save is not None:
        ls.save(advice.model, save, scores=advice.score)
        saved(save, format)


def _table(advice: Advice, all: bool, format: Format) -> DataFrame:
    """The whole model, the front, what was tested and what was chosen; or every candidate."""
    frame = advice.frame
    shown = frame["front"] | frame["chosen"] | frame["change"].notna() | (frame["removed"] == 0)
    if not all:
        frame = frame[shown]
    frame = frame.sort_values("macs")
    if format is Format.table:
        frame = frame.assign(blocks=frame["blocks"].where(frame["removed"] > 0, frame["blocks"] + " (whole model)"))
    return frame[[*_SCORES, *_COSTS]]
