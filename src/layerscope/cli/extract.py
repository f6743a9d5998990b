"""`layerscope extract`"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from layerscope.cli import console
from layerscope.cli.command import Given, command
from layerscope.cli.console import FORMAT, Format, answer, show
from layerscope.cli.record import keep

_COLUMNS = "spread: mean standard deviation of a feature; top direction: share of the variance along the largest one"
_OUT = typer.Option(None, "--out", "-o", help="Save the representations and a record (`layerscope report`) here.")


@command(
    "extract",
    panel=console.ALIKE,
    examples=["layerscope extract demo:minilm --task pydocs --pool words -o words"],
    notes="Several processes share the rows:  `accelerate launch --num_processes 2 -m layerscope extract ...` "
    "(without GPUs `torchrun --nproc_per_node 2 -m ...`)",
    left_out={"tokenizer": "a checkpoint brings its own", "store": "-o keeps a copy, and the store the rest"},
)
def extract(given: Given, out: Path | None = _OUT, format: Format = FORMAT) -> None:
    """Run a model over a data set, keep the states of every layer, and print a summary of each layer."""
    from layerscope.distributed import Team
    from layerscope.extraction.row_store import CARD
    from layerscope.store import atomic_folder, check_free

    if out is not None:
        check_free(out, CARD)  # before the work, not after it
    reps = given.call("extract")
    if not Team.current().is_main:
        return
    summary = reps.summary()
    title = f"{given.label('model')} over {reps.rows.task} ({reps.rows.split}), pool {given['pool'] or 'cls'}"
    show(summary.frame.to_dict("records"), format, f"{title}. {_COLUMNS}")
    if out is not None:
        with atomic_folder(out, CARD) as folder:  # both or neither, whoever else writes there
            reps.write(folder)
            dtype = str(given.model.network.dtype).removeprefix("torch.")
            opened: dict[str, Any] = {"dtype": dtype, "seed": given["seed"] or 0}
            keep(folder, "extract", title, {"layers": summary}, tables=False, final=out, **opened)
        answer().saved = {"folder": str(out), "how": "states of every layer"}
        if format is Format.table:
            print(f"Saved in {out}.")
