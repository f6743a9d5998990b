"""`layerscope reproduce`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer

from layerscope.cli import helptext
from layerscope.cli.options import Given
from layerscope.cli.output import FORMAT, Format, show
from layerscope.cli.record import writable

PLACE = 120  # in the help text
PANEL = helptext.REST
_ENGINE = typer.Option(
    "local", "--engine", help="local, processes:N, ray (on this machine) or ray:ADDRESS (ray:auto joins a cluster)."
)
_OUT = typer.Option(
    None, "--out", "-o", callback=writable, help="The folder for records and report.html; PAPER-PROFILE if not given."
)


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  `layerscope reproduce ren2023 --only norms --profile smoke -o out`")(reproduce)


def reproduce(
    paper: str | None = typer.Argument(None, help="phang2021, wu2020, ren2023 or xie2022."),
    list_: bool = typer.Option(
        False, "--list", help="Show every experiment: where it stands, what it needs, how many jobs, about how long."
    ),
    only: str | None = typer.Option(None, "--only", help="Some experiments by the paper's numbering: fig3,table2."),
    models: str | None = typer.Option(
        None, "--models", help="Other models, separated by commas: sources, or name=source for a short name."
    ),
    tasks: str | None = typer.Option(
        None, "--tasks", help="Other tasks, separated by commas; other corpora where no experiment of --only has tasks."
    ),
    seeds: int | None = typer.Option(
        None, "--seeds", help="Use N seeds: 0, 1, .. (in experiments that run over seeds)."
    ),
    profile: str = typer.Option(
        "offline",
        "--profile",
        help="paper (its models and hyperparameters), offline (small models) or smoke (seconds).",
    ),
    engine: str = _ENGINE,
    gpus: float | None = typer.Option(None, "--gpus", help="The share of a GPU that a job takes on Ray, such as 0.25."),
    device: str | None = Given.device,
    dtype: str = Given.dtype,
    out: Path | None = _OUT,
    format: Format = FORMAT,
) -> None:
    """Run the experiments of a paper, on its models or on others, and say which of its claims hold.

    Every combination of models, tasks and seeds is a job whose result is kept: the same command goes on where it was.
    Where something is missing or a job fails, the others go on, and the command ends with an error that names it.
    """
    from layerscope.errors import InputError
    from layerscope.recipes.recipe import papers
    from layerscope.recipes.reproducing import listing
    from layerscope.recipes.reproducing import reproduce as run

    given: dict[str, Any] = {"only": only, "models": models, "tasks": tasks, "seeds": seeds, "profile": profile}
    given |= {"device": device, "dtype": dtype}
    if list_:
        show(listing(paper, **given).to_dict("records"), format, "Experiments; times are rough, for nothing done yet")
        return
    if paper is None:
        raise InputError(f"Which paper? There are {', '.join(papers())}; --list shows their experiments.")
    result = run(paper, **given, engine=engine, gpus=gpus, out=out)
    columns = ["claim", "on", "value", "low", "high", "threshold", "unit", "verdict", "note"]
    rows = result.claims if format is Format.json else result.claims[columns]
    show(rows.to_dict("records"), format, f"Claims of {paper}")
    if format is Format.table:
        print("\n".join(result.findings()))
    print(f"Records and report: {result.folder / 'report.html'}", file=sys.stderr)
    if result.missing:
        for name, reason in result.missing.items():
            print(f"missing: {name}: {reason}", file=sys.stderr)
        raise typer.Exit(1)
