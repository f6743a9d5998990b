"""`layerscope skip`"""

from __future__ import annotations

from pathlib import Path

import typer

from layerscope.cli import console
from layerscope.cli.command import Given, command
from layerscope.cli.console import FORMAT, Format, show_scores
from layerscope.cli.options import PRINT_AS, PUBLIC, PUSH_TO_HUB, SAVE
from layerscope.cli.record import OUT, keep
from layerscope.cli.saving import check_publishing, cut_and_save
from layerscope.errors import InputError


@command(
    {"--map": "skip_map", "--blocks": "cut_study"},
    panel=console.LOSE,
    examples=[
        "layerscope skip path/to/classifier --task sst2 --map -o out",
        "layerscope skip path/to/classifier --task sst2 --blocks 3-5 --save smaller",
        "layerscope skip path/to/language-model --blocks 20-24 --save smaller --print-as mergekit",
        "layerscope skip path/to/language-model --blocks 20-24 --patch corpus.txt --save smaller",
    ],
    left_out={"plan": "it is --blocks"},
)
def skip(
    given: Given,
    blocks: str | None = typer.Option(None, "--blocks", help="Leave these blocks out: 3-5, or 2,4,7-8."),
    map: bool = typer.Option(False, "--map", help="Leave out every contiguous span in turn."),
    save: Path | None = SAVE,
    push_to_hub: str | None = PUSH_TO_HUB,
    public: bool = PUBLIC,
    print_as: str | None = PRINT_AS,
    out: Path | None = OUT,
    format: Format = FORMAT,
) -> None:
    """Leave blocks out of a model and evaluate what is left: some blocks, or the map of all spans.

    With --blocks, --save and --print-as need no task: then the checkpoint is cut on disk, and the network never built.
    """
    check_publishing(push_to_hub, public, save)
    if (blocks is None) != map:
        raise InputError("Give either --blocks 3-5, to leave those out, or --map, to see what every span costs.")
    if save is not None and map:
        raise InputError("--save needs --blocks: which of the map's models is to be saved?")
    if print_as is not None and map:
        raise InputError("--print-as needs --blocks: which of the map's plans is to be printed?")
    if "max_span" in given and not map:
        raise InputError("--max-span bounds the spans of --map; leave it out, or give --map instead of --blocks.")
    if blocks is not None:
        cut_and_save(given, f"without {blocks}", save, (push_to_hub, public), print_as, out, format)
        return
    given.require_task()
    skips = given.call("skip_map")
    show_scores(skips.frame, format, f"{given.label('model')} without blocks first..last, nothing trained")
    keep(out, "skip", f"{given.label('model')} on {given['task']}: without every span of blocks", {"skip-map": skips})
