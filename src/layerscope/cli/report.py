"""`layerscope report` and `layerscope figures`"""

from __future__ import annotations

from pathlib import Path

import typer

from layerscope.cli import console
from layerscope.cli.command import Given, command


@command(
    "report",
    panel=console.REST,
    examples=[
        "layerscope compare demo:minilm --task pydocs --measure cka,mutual_knn -o out",
        "layerscope report out -o report.html",
    ],
    left_out={"path": "it is -o"},
)
def report(
    given: Given,
    records: list[Path] = typer.Argument(help="Records, or folders that hold some: what commands wrote with -o."),
    out: Path = typer.Option(Path("report.html"), "--out", "-o", help="The HTML file to write."),
) -> None:
    """Write records into one HTML page that needs no network: open it in a browser, or send it to a colleague."""
    written = given.call("report", records=records, path=out)
    print(f"The report is {written} ({written.stat().st_size / 1e6:.1f} MB).")


@command(
    "paper_figures",
    panel=console.REST,
    examples=["layerscope figures out --format pdf --width 6.75in -o figures"],
    left_out={"folder": "it is -o"},
)
def figures(
    given: Given,
    out: Path = typer.Option(Path("figures"), "--out", "-o", help="The folder to write into."),
) -> None:
    """Draw every figure of a record for a paper, in one style and of one width; tables become CSV files."""
    for path in given.call("paper_figures", folder=out):
        print(path)
