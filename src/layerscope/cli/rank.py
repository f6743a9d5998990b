"""`layerscope rank`"""

from __future__ import annotations

from pathlib import Path

from layerscope.cli import console
from layerscope.cli.command import Given, command
from layerscope.cli.console import FORMAT, Format, show
from layerscope.cli.record import OUT, keep


@command(
    "rank",
    panel=console.TUNE,
    examples=["layerscope rank demo:minilm garden:bert-s0 --task pydocs --limit 500"],
)
def rank(given: Given, out: Path | None = OUT, format: Format = FORMAT) -> None:
    """Rank models by how well a task's labels can be told from their best layer, before any training."""
    given.require_task()
    ranking = given.call("rank")
    title = (
        f"PRESS of the best layer of each model on {given['task']}: R² of a linear map to the labels with every text "
        f"left out in turn. equal_width: the same on {ranking.axes} principal axes; ties: whether it cannot be told "
        "apart from the best model"
    )
    show(ranking.frame.to_dict("records"), format, title)
    if format is Format.table:
        print("\n".join(map(str, ranking.findings())))
    keep(out, "rank", f"Which model to begin from for {given['task']}", {"ranking": ranking})
