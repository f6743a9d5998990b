"""`layerscope truncate`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.cli import helptext
from layerscope.cli.cutting import DTYPE, FLOAT, PRINT_AS, checked_task, cut_and_save, cut_without_task
from layerscope.cli.options import COLUMNS, Columns, Data, Given, Publishing, with_columns
from layerscope.cli.output import FORMAT, Format, show_scores
from layerscope.cli.publishing import check_publishing
from layerscope.cli.record import OUT, keep
from layerscope.errors import InputError, choose

if TYPE_CHECKING:
    from layerscope.cutting.plan import LayerPlan

PLACE = 40  # in the help text
PANEL = helptext.LOSE
_TITLES = {
    "untuned": "The head of {model} on every layer, nothing trained",
    "tuned": "The head of {model}, trained further on every layer",
    "tunedorig": "A new head, trained on every layer of {base}",
}


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Example:  `layerscope truncate path/to/classifier --task sst2 --curve -o out`  \n"
        "`layerscope truncate path/to/classifier --task sst2 --curve --mode tunedorig --base path/to/untuned`  \n"
        "`layerscope truncate path/to/classifier --task sst2 --keep 8 --save smaller`  \n"
        "`layerscope truncate path/to/language-model --task wikitext --curve`"
    )(truncate)


@with_columns
def truncate(
    model: str = Given.model,
    task: str | None = Data.task_or_none,
    keep_: int | None = typer.Option(None, "--keep", help="Keep the first N blocks; the head reads the last of them."),
    curve: bool = typer.Option(False, "--curve", help="Put the head on every layer in turn."),
    mode: str = typer.Option(
        "untuned", help="With --curve: untuned, tuned (the head trained further on each layer), tunedorig (a new one)."
    ),
    base: str | None = typer.Option(None, "--base", help="For tunedorig: the untuned model, whose layers are read."),
    train_limit: int | None = typer.Option(
        None, help="Where heads are trained: use only the first N training examples."
    ),
    learning_rate: float | None = typer.Option(None, help="Where heads are trained: 1e-3 if not given."),
    epochs: int | None = typer.Option(None, help="Where heads are trained: 10 if not given."),
    batch: int | None = typer.Option(None, help="Where heads are trained: texts per step; 32 if not given."),
    seed: int | None = typer.Option(None, help="Where heads are trained: decides new heads and the order of rows."),
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
    """Cut the top blocks off a model and evaluate what is left: one depth, or the curve of all.

    The curve of a language model is its logit lens. With --keep, --save and --print-as need no task: then the
    checkpoint is cut on disk, and the network never built.
    """
    import layerscope as ls

    check_publishing(push_to_hub, public, save)
    if (keep_ is None) != curve:
        raise InputError("Give either --keep K, to cut there, or --curve, to see what every cut costs.")
    if save is not None and curve:
        raise InputError("--save needs --keep K: which of the curve's models is to be saved?")
    if print_as is not None and curve:
        raise InputError("--print-as needs --keep K: which of the curve's plans is to be printed?")
    given = {"learning_rate": learning_rate, "epochs": epochs, "batch": batch, "seed": seed, "train_limit": train_limit}
    training: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    _check(mode, base, training, curve)
    data, place = checked_task(task, columns, save, print_as), (save, push_to_hub, public)

    def plan_of(depth: int) -> LayerPlan:
        return ls.LayerPlan.truncated(depth, keep_ or 0)

    if data is None and keep_ is not None:
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
    if data is not None and keep_ is not None:
        cut_and_save(opened, plan_of(opened.depth), data, options, place, out, format, model, print_as)
        return
    assert data is not None
    untuned = None if base is None else ls.load(base, device=device, dtype=dtype or FLOAT)
    truncation = ls.truncation_curve(opened, data, mode=mode, base=untuned, **training, **options)
    show_scores(truncation.frame, format, _TITLES[mode].format(model=model, base=base))
    keep(out, "truncate", f"{model} on {task}: the head on every layer ({mode})", {"truncation": truncation})


def _check(mode: str, base: str | None, training: dict[str, Any], curve: bool) -> None:
    """Raise a sentence where options do not go together, before anything is opened."""
    choose("mode", mode, _TITLES)
    if mode != "untuned" and not curve:
        raise InputError(f"--mode {mode} trains a head on every layer, which is a curve; give --curve, not --keep.")
    if (base is not None) != (mode == "tunedorig"):
        raise InputError("--base, the untuned model, belongs to --mode tunedorig, which needs it.")
    if training and mode == "untuned":
        option = next(iter(training)).replace("_", "-")
        raise InputError(
            f"--{option} is for heads that are trained (--mode tuned or tunedorig); untuned trains nothing."
        )
