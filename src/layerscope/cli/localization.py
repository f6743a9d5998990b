"""`layerscope localization`"""

from __future__ import annotations

from pathlib import Path

import typer

from layerscope.cli import console
from layerscope.cli.command import Given, command
from layerscope.cli.console import FORMAT, Format, show
from layerscope.cli.record import OUT, keep
from layerscope.drawing.captions import listed


@command(
    "localization",
    panel=console.ALIKE,
    examples=["layerscope localization demo:minilm --task pydocs --pool mean -o out"],
    left_out={"baseline": "the table has no column for it"},
)
def localization(
    given: Given,
    models: list[str] = typer.Argument(help="One model, or several: the other layers are then those of all of them."),
    out: Path | None = OUT,
    format: Format = FORMAT,
) -> None:
    """Measure how much of each layer sits in single neurons: mean neuron minus mean SVCCA similarity to the others."""
    from layerscope.distributed import Team
    from layerscope.models.load import labels_of

    given.require_task()
    data = given.task
    opened = given.open_models(models)
    curve = given.call("localization", models=opened, task=data)
    if not Team.current().is_main:
        return
    title = f"Localization of the layers of {listed(labels_of(opened))} on {given['task']}"
    show(curve.frame.to_dict("records"), format, title)
    keep(out, "localization", title, {"localization": curve})
