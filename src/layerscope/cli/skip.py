"""`layerscope skip`"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from layerscope.cli.options import COLUMNS, Columns, Data, Run, integers, with_columns
from layerscope.cli.output import FORMAT, Format, cut_and_save, show_scores
from layerscope.cli.record import OUT, leave, write_table
from layerscope.errors import InputError


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Example:  `layerscope skip path/to/classifier --task sst2 --map -o out`  \n"
        "`layerscope skip path/to/classifier --task sst2 --blocks 3-5 --save smaller`"
    )(skip)


@with_columns
def skip(
    model: str = Run.model,
    task: str = Data.task,
    blocks: str | None = typer.Option(None, help="Leave these blocks out: 3-5, or 2,4,7-8."),
    map: bool = typer.Option(False, "--map", help="Leave out every contiguous span in turn."),
    max_span: int | None = typer.Option(None, help="With --map: spans of at most so many blocks."),
    save: Path | None = Run.save,
    out: Path | None = OUT,
    split: str | None = Data.split,
    limit: int | None = Run.limit,
    max_length: int | None = Run.max_length,
    device: str | None = Run.device,
    columns: Columns = COLUMNS,
    format: Format = FORMAT,
) -> None:
    """Leave blocks out of a tuned model and evaluate what is left: some blocks, or the map of all spans."""
    import layerscope as ls

    if (blocks is None) != map:
        raise InputError("Give either --blocks 3-5, to leave those out, or --map, to see what every span costs.")
    if save is not None and map:
        raise InputError("--save needs --blocks: which of the map's models is to be saved?")
    if max_span is not None and not map:
        raise InputError("--max-span bounds the spans of --map; leave it out, or give --map instead of --blocks.")
    data = columns.open(task)
    opened = ls.load(model, device=device)
    options: dict[str, Any] = {"split": split, "limit": limit, "max_length": max_length}
    if not map:
        assert blocks is not None
        gone = integers(blocks)
        wrong = [b for b in gone if not 1 <= b <= opened.depth]
        if wrong:
            raise InputError(f"Block {wrong[0]} was to be left out; {model} has blocks 1..{opened.depth}.")
        plan = ls.LayerPlan([b for b in range(1, opened.depth + 1) if b not in gone])
        cut_and_save(opened, plan, data, options, save, out, format)
        return
    frame = ls.skip_map(opened, data, max_span=max_span, **options)
    show_scores(frame, format, f"{model} without blocks first..last, nothing trained")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_table(frame, out / "skip-map.csv")
        ls.plot_skip_map(frame, out / "skip-map.png")

        from layerscope.extract.run import examples_of
        from layerscope.report import pictures

        leave(
            out,
            "skip",
            f"{model} on {task}: without every span of blocks",
            pictures.skip_map(frame),
            models=[opened],
            examples=examples_of(data, split, limit),
            max_length=max_length,
        )
