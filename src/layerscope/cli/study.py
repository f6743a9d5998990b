"""`layerscope study`"""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from layerscope.cli import console
from layerscope.cli.command import Given, command
from layerscope.cli.console import FORMAT, Format, show
from layerscope.cli.record import writable

_OUT = typer.Option(
    None, "--out", "-o", callback=writable, help="The folder for records and report.html; `study-MODEL` if not given."
)


@command(
    "study",
    panel=console.ALL,
    examples=[
        "layerscope study path/to/classifier --task reviews.csv --base bert-base-uncased -o out",
        "layerscope study path/to/language-model --task texts.txt --budget 30",
    ],
    left_out={"others": "it is --other, which may stand several times", "out": "it is -o"},
)
def study(
    given: Given,
    model: str = typer.Argument(help="The model to study."),
    other: list[str] | None = typer.Option(
        None, "--other", help="Another model to set beside it; may stand several times."
    ),
    folder: Path | None = _OUT,  # a study goes on where it was, so that there is nothing to overwrite
    format: Format = FORMAT,
) -> None:
    """Say everything about a model on your texts in one report: what it is, what tuning changed, what it can lose.

    It takes the minutes of --budget: parts read samples of the texts before one is left out, and the report says what
    was reduced. Its first page has five findings at most, and the commands to go on with. The same command goes on
    where it was stopped.
    """
    beside = [given.open_model(each) for each in other or ()]
    result = given.call("study", model=given.open_model(model), others=beside, out=folder)
    show(result.frame.to_dict("records"), format, f"What was studied of {model}")
    if format is Format.table:
        print("\n".join(map(str, result.findings())))
        for why, line in result.commands.items():
            print(f"{why}:\n  {line}")
    print(f"The report is {result.folder / 'report.html'}: open it in a browser.", file=sys.stderr)
