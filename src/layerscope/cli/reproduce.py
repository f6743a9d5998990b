"""`layerscope reproduce`"""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from layerscope.cli import console
from layerscope.cli.command import Given, command
from layerscope.cli.console import FORMAT, Format, show
from layerscope.cli.record import writable
from layerscope.errors import InputError

_OUT = typer.Option(
    None, "--out", "-o", callback=writable, help="The folder for records and report.html; PAPER-PROFILE if not given."
)


@command(
    {"a paper": "reproduce", "--list": "experiments"},
    panel=console.REST,
    examples=["layerscope reproduce ren2023 --only norms --profile smoke -o out"],
)
def reproduce(
    given: Given,
    paper: str | None = typer.Argument(None, help="phang2021, wu2020, ren2023, xie2022 or resi2025."),
    list_: bool = typer.Option(
        False, "--list", help="Show every experiment: where it stands, what it needs, how many jobs, about how long."
    ),
    out: Path | None = _OUT,
    format: Format = FORMAT,
) -> None:
    """Run the experiments of a paper, on its models or on others, and say which of its claims hold.

    Every combination of models, tasks and seeds is a job whose result is kept: the same command goes on where it was.
    Where something is missing or a job fails, the others go on, and the command ends with an error that names it.
    """
    from layerscope.recipes.recipe import papers

    if list_:
        listed = given.call("experiments", paper=paper)
        show(listed.to_dict("records"), format, "Experiments; times are rough, for nothing done yet")
        return
    if paper is None:
        raise InputError(f"Which paper? There are {', '.join(papers())}; --list shows their experiments.")
    result = given.call("reproduce", paper=paper, out=out)
    columns = ["claim", "on", "value", "low", "high", "threshold", "unit", "verdict", "note"]
    rows = result.claims if format is Format.json else result.claims[columns]
    show(rows.to_dict("records"), format, f"Claims of {paper}")
    if format is Format.table:
        print("\n".join(map(str, result.findings())))
    print(f"The paper's figures and tables: {result.folder / 'index.html'}", file=sys.stderr)
    print(f"Records and report: {result.folder / 'report.html'}", file=sys.stderr)
    if result.missing:
        for name, reason in result.missing.items():
            print(f"missing: {name}: {reason}", file=sys.stderr)
        raise typer.Exit(1)
