"""`layerscope influence`"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from layerscope.cli import helptext
from layerscope.cli.options import COLUMNS, Columns, Data, Given, with_columns
from layerscope.cli.output import FORMAT, Format, show
from layerscope.cli.record import OUT, keep

PLACE = 26  # in the help text
PANEL = helptext.LOSE


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  `layerscope influence demo:minilm --task pydocs --limit 500 -o out`")(influence)


@with_columns
def influence(
    model: str = Given.any_model,
    task: str = Data.task,
    split: str | None = Data.split,
    limit: int | None = Given.limit,
    max_length: int = typer.Option(128, help="Longest text in tokens; the rest is cut off."),
    batch_tokens: int | None = typer.Option(None, help="Tokens per batch, padding included."),
    special: bool = typer.Option(False, "--special", help="Count special tokens too, as ShortGPT does."),
    ci: float | None = typer.Option(None, "--ci", help="Add an interval of this level, such as 0.95."),
    seed: int = typer.Option(0, help="Decides the groups of texts of an interval."),
    device: str | None = Given.device,
    dtype: str = Given.dtype,
    columns: Columns = COLUMNS,
    out: Path | None = OUT,
    format: Format = FORMAT,
) -> None:
    """Measure how much each block changes what goes through it: 1 - mean cosine of input and output (ShortGPT)."""
    import layerscope as ls
    from layerscope.similarity.influence import least_first
    from layerscope.team import Team

    data = columns.open(task)
    opened = ls.load(model, device=device, dtype=dtype)
    reading: dict[str, Any] = {
        "limit": limit,
        "max_length": max_length,
        "batch_tokens": batch_tokens,
        "special": special,
    }
    curve = ls.block_influence(opened, data, split=split, ci=ci, seed=seed, **reading)
    if not Team.current().is_main:
        return
    title = f"Influence of the blocks of {model} on {task}"
    rows = curve.frame.rename(columns={"layer": "block"}).to_dict("records")
    show(rows, format, f"{title}, over {curve.provenance['data']['n']:,} tokens")
    if format is Format.table:
        print(f"Blocks by influence, the least first: {', '.join(map(str, least_first(curve)))}.")
    keep(out, "influence", title, {"influence": curve})
