"""`layerscope extract`"""

from __future__ import annotations

from pathlib import Path

import typer

from layerscope.cli import helptext
from layerscope.cli.options import COLUMNS, Columns, Data, Given, integers, with_columns
from layerscope.cli.output import FORMAT, Format, show
from layerscope.cli.record import keep

PLACE = 10  # in the help text
PANEL = helptext.ALIKE
_COLUMNS = "spread: mean standard deviation of a feature; top direction: share of the variance along the largest one"


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Example:  `layerscope extract demo:minilm --task pydocs --pool words -o words`\n\n"
        "Several processes share the rows:  `accelerate launch --num_processes 2 -m layerscope extract ...` "
        "(without GPUs `torchrun --nproc_per_node 2 -m ...`)"
    )(extract)


@with_columns
def extract(
    model: str = Given.any_model,
    task: str = Data.task,
    split: str | None = Data.split,
    pool: str = typer.Option("cls", help="How tokens become rows: cls, mean, last, words or tokens."),
    layers: str | None = typer.Option(None, help="Which layers, as 0,3,6 or 0-6; all if not given."),
    limit: int | None = typer.Option(None, help="Use only the first N examples."),
    max_length: int = typer.Option(128, help="Longest text in tokens; the rest is cut off."),
    batch_tokens: int | None = typer.Option(None, help="Tokens per batch, padding included."),
    subword: str = typer.Option("last", help="Which sub-words stand for a word: last, first or mean."),
    special: bool = typer.Option(False, "--special", help="Keep special tokens in the pools mean and tokens."),
    final_norm: bool = typer.Option(False, "--final-norm", help="Read the last layer after the model's final norm."),
    autocast: str | None = typer.Option(None, help="Compute in bfloat16 or float16 where that is safe."),
    dtype: str = Given.dtype,
    device: str | None = Given.device,
    seed: int = typer.Option(0, help="Decides the weights of random: models."),
    columns: Columns = COLUMNS,
    out: Path | None = typer.Option(
        None, "--out", "-o", help="Save the representations and a record (`layerscope report`) here."
    ),
    format: Format = FORMAT,
) -> None:
    """Run a model over a data set, keep the states of every layer, and print a summary of each layer."""
    import layerscope as ls
    from layerscope.extraction.shards import CARD
    from layerscope.store import atomic_folder, check_free
    from layerscope.team import Team

    if out is not None:
        check_free(out, CARD)  # before the work, not after it
    reps = ls.extract(
        ls.load(model, dtype=dtype, device=device, seed=seed),
        columns.open(task),
        split=split,
        pool=pool,
        layers=None if layers is None else integers(layers),
        limit=limit,
        max_length=max_length,
        batch_tokens=batch_tokens,
        subword=subword,
        special=special,
        final_norm=final_norm,
        autocast=autocast,
    )
    if not Team.current().is_main:
        return
    summary = reps.summary()
    title = f"{model} over {reps.rows.task} ({reps.rows.split}), pool {pool}"
    show(summary.frame.to_dict("records"), format, f"{title}. {_COLUMNS}")
    if out is not None:
        with atomic_folder(out, CARD) as folder:  # both or neither, whoever else writes there
            reps.write(folder)
            keep(folder, "extract", title, {"layers": summary}, tables=False, dtype=dtype, seed=seed, final=out)
        if format is Format.table:
            print(f"Saved in {out}.")
