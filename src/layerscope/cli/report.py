"""`layerscope report` and `layerscope figures`"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from layerscope.cli import console
from layerscope.cli.command import Given, command, option_of
from layerscope.cli.console import FORMAT, Format, answer, asks_for_json, given_formats, show

_PICTURES: Any = option_of("paper_figures", "format")
_PICTURES.help += " With json among them (`json`, or `svg,json`) the answer is one JSON object, as everywhere."


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
    format: Format = FORMAT,
) -> None:
    """Write records into one HTML page that needs no network: open it in a browser, or send it to a colleague."""
    written = given.call("report", records=records, path=out)
    megabytes = written.stat().st_size / 1e6
    answer().saved = {"file": str(written), "how": "one page that needs no network"}
    if format is Format.json:
        show([{"file": str(written), "megabytes": round(megabytes, 1)}], format)
    else:
        print(f"The report is {written} ({megabytes:.1f} MB).")


@command(
    "paper_figures",
    panel=console.REST,
    examples=["layerscope figures out --format pdf --width 6.75in -o figures"],
    left_out={"folder": "it is -o"},
)
def figures(
    given: Given,
    out: Path = typer.Option(Path("figures"), "--out", "-o", help="The folder to write into."),
    format: str | None = _PICTURES,
) -> None:
    """Draw every figure of a record for a paper, in one style and of one width; tables become CSV files."""
    pictures = [part for part in given_formats(format) if part != Format.json]
    files = given.call("paper_figures", folder=out, format=",".join(pictures) or None)
    answer().saved = {"folder": str(out), "how": "links to the files of this run"}
    if asks_for_json(format):
        show([{"file": str(path), "format": path.suffix[1:]} for path in files], Format.json)
    else:
        print(*files, sep="\n")
