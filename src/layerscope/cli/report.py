"""`layerscope report` and `layerscope figures`"""

from __future__ import annotations

from pathlib import Path

import typer

from layerscope.cli import helptext

PLACE = 110  # in the help text
PANEL = helptext.REST


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Example:  `layerscope compare demo:minilm --task pydocs --measure cka,mutual_knn -o out`  \n"
        "`layerscope report out -o report.html`"
    )(report)
    app.command(epilog="Example:  `layerscope figures out --format pdf --width 6.75in -o figures`")(figures)


def report(
    records: list[Path] = typer.Argument(help="Records, or folders that hold some: what commands wrote with -o."),
    out: Path = typer.Option(Path("report.html"), "--out", "-o", help="The HTML file to write."),
    title: str = typer.Option("layerscope report", help="The heading of the page."),
) -> None:
    """Write records into one HTML page that needs no network: open it in a browser, or send it to a colleague."""
    import layerscope as ls

    written = ls.report(records, out, title=title)
    print(f"The report is {written} ({written.stat().st_size / 1e6:.1f} MB).")


def figures(
    record: Path = typer.Argument(help="A record, or a folder that holds some: what commands wrote with -o."),
    out: Path = typer.Option(Path("figures"), "--out", "-o", help="The folder to write into."),
    format: str = typer.Option("pdf", help="pdf, svg or png, or several: pdf,png."),
    width: str = typer.Option("6.75in", help="The width of every figure: 6.75in, 8cm, 85mm or 240pt."),
    titles: bool = typer.Option(False, "--titles", help="Write each figure's title above it."),
) -> None:
    """Draw every figure of a record for a paper, in one style and of one width; tables become CSV files."""
    import layerscope as ls

    for path in ls.figures(record, out, format=format, width=width, titles=titles):
        print(path)
