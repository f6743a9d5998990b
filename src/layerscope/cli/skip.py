"""`layerscope skip`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.cli import helptext
from layerscope.cli.cutting import DTYPE, FLOAT, PRINT_AS, checked_task, cut_and_save, cut_without_task
from layerscope.cli.options import COLUMNS, Columns, Data, Given, Publishing, integers, with_columns
from layerscope.cli.output import FORMAT, Format, show_scores
from layerscope.cli.publishing import check_publishing
from layerscope.cli.record import OUT, keep
from layerscope.errors import InputError

if TYPE_CHECKING:
    from layerscope.cutting.plan import LayerPlan

PLACE = 50  # in the help text
PANEL = helptext.LOSE


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Example:  `layerscope skip path/to/classifier --task sst2 --map -o out`  \n"
        "`layerscope skip path/to/classifier --task sst2 --blocks 3-5 --save smaller`  \n"
        "`layerscope skip path/to/language-model --blocks 20-24 --save smaller --print-as mergekit`"
    )(skip)


@with_columns
def skip(
    model: str = Given.model,
    task: str | None = Data.task_or_none,
    blocks: str | None = typer.Option(None, help="Leave these blocks out: 3-5, or 2,4,7-8."),
    map: bool = typer.Option(False, "--map", help="Leave out every contiguous span in turn."),
    max_span: int | None = typer.Option(None, help="With --map: the longest span, in blocks."),
    save: Path | None = Given.save,
    push_to_hub: str | None = Publishing.push_to_hub,
    public: bool = Publishing.public,
    print_as: str | None = PRINT_AS,
    out: Path | None = OUT,
    split: str | None = Data.split,
    limit: int | None = Given.limit,
    max_length: int | None = Given.max_length,
    all_rows: bool = Given.all_rows,
    device: str | None = Given.device,
    dtype: str | None = DTYPE,
    columns: Columns = COLUMNS,
    format: Format = FORMAT,
) -> None:
    """Leave blocks out of a model and evaluate what is left: some blocks, or the map of all spans.

    With --blocks, --save and --print-as need no task: then the checkpoint is cut on disk, and the network never built.
    """
    import layerscope as ls

    check_publishing(push_to_hub, public, save)
    if (blocks is None) != map:
        raise InputError("Give either --blocks 3-5, to leave those out, or --map, to see what every span costs.")
    if save is not None and map:
        raise InputError("--save needs --blocks: which of the map's models is to be saved?")
    if print_as is not None and map:
        raise InputError("--print-as needs --blocks: which of the map's plans is to be printed?")
    if max_span is not None and not map:
        raise InputError("--max-span bounds the spans of --map; leave it out, or give --map instead of --blocks.")
    data, place = checked_task(task, columns, save, print_as), (save, push_to_hub, public)

    def plan_of(depth: int) -> LayerPlan:
        gone = integers(blocks or "")
        wrong = [b for b in gone if not 1 <= b <= depth]
        if wrong:
            raise InputError(f"Block {wrong[0]} was to be left out; {model} has blocks 1..{depth}.")
        return ls.LayerPlan([b for b in range(1, depth + 1) if b not in gone])

    if data is None and blocks is not None:
        about: dict[str, Any] = {"place": place, "out": out, "print_as": print_as, "format": format}
        cut_without_task(model, plan_of, device=device, dtype=dtype, **about)
        return
    opened = ls.load(model, device=device, dtype=dtype or FLOAT)
    options: dict[str, Any] = {
        "split": split,
        "limit": limit,
        "max_length": max_length,
        "all_rows": all_rows,
    }
    if data is not None and blocks is not None:
        cut_and_save(opened, plan_of(opened.depth), data, options, place, out, format, model, print_as)
        return
    assert data is not None
    skips = ls.skip_map(opened, data, max_span=max_span, **options)
    show_scores(skips.frame, format, f"{model} without blocks first..last, nothing trained")
    keep(out, "skip", f"{model} on {task}: without every span of blocks", {"skip-map": skips})
