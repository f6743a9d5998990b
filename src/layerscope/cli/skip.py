"""`layerscope skip`"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from layerscope.cli.cutting import checked_task, cut_and_save
from layerscope.cli.options import COLUMNS, Columns, Data, Given, integers, with_columns
from layerscope.cli.output import FORMAT, Format, show_scores
from layerscope.cli.record import OUT, keep
from layerscope.errors import InputError

PLACE = 50  # in the help text


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Example:  `layerscope skip path/to/classifier --task sst2 --map -o out`  \n"
        "`layerscope skip path/to/classifier --task sst2 --blocks 3-5 --save smaller`"
    )(skip)


@with_columns
def skip(
    model: str = Given.model,
    task: str | None = Data.task_or_none,
    blocks: str | None = typer.Option(None, help="Leave these blocks out: 3-5, or 2,4,7-8."),
    map: bool = typer.Option(False, "--map", help="Leave out every contiguous span in turn."),
    max_span: int | None = typer.Option(None, help="With --map: spans of at most so many blocks."),
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
    """Leave blocks out of a model and evaluate what is left: some blocks, or the map of all spans.

    With --blocks and --save, no task is needed.
    """
    import layerscope as ls

    if (blocks is None) != map:
        raise InputError("Give either --blocks 3-5, to leave those out, or --map, to see what every span costs.")
    if save is not None and map:
        raise InputError("--save needs --blocks: which of the map's models is to be saved?")
    if max_span is not None and not map:
        raise InputError("--max-span bounds the spans of --map; leave it out, or give --map instead of --blocks.")
    data = checked_task(task, columns, save)
    opened = ls.load(model, device=device, dtype=dtype)
    options: dict[str, Any] = {
        "split": split,
        "limit": limit,
        "max_length": max_length,
        "all_rows": all_rows,
    }
    if blocks is not None:
        gone = integers(blocks)
        wrong = [b for b in gone if not 1 <= b <= opened.depth]
        if wrong:
            raise InputError(f"Block {wrong[0]} was to be left out; {model} has blocks 1..{opened.depth}.")
        plan = ls.LayerPlan([b for b in range(1, opened.depth + 1) if b not in gone])
        cut_and_save(opened, plan, data, options, save, out, format)
        return
    assert data is not None
    skips = ls.skip_map(opened, data, max_span=max_span, **options)
    show_scores(skips.frame, format, f"{model} without blocks first..last, nothing trained")
    keep(out, "skip", f"{model} on {task}: without every span of blocks", {"skip-map": skips})
