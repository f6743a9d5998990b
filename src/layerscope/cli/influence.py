"""`layerscope influence`"""

from __future__ import annotations

from pathlib import Path

from layerscope.cli import console
from layerscope.cli.command import Given, command
from layerscope.cli.console import FORMAT, Format, show
from layerscope.cli.record import OUT, keep


@command(
    "block_influence",
    panel=console.LOSE,
    examples=["layerscope influence demo:minilm --task pydocs --limit 500 -o out"],
)
def influence(given: Given, out: Path | None = OUT, format: Format = FORMAT) -> None:
    """Measure how much each block changes what goes through it: 1 - mean cosine of input and output (ShortGPT)."""
    from layerscope.distributed import Team
    from layerscope.similarity.influence import least_first

    curve = given.call("block_influence")
    if not Team.current().is_main:
        return
    title = f"Influence of the blocks of {given.label('model')} on {given['task']}"
    rows = curve.frame.rename(columns={"layer": "block"}).to_dict("records")
    show(rows, format, f"{title}, over {curve.provenance['data']['n']:,} tokens")
    if format is Format.table:
        print(f"Blocks by influence, the least first: {', '.join(map(str, least_first(curve)))}.")
    keep(out, "influence", title, {"influence": curve})
