"""`layerscope measures`"""

from __future__ import annotations

import typer

from layerscope.cli import helptext
from layerscope.cli.output import FORMAT, Format, show

PLACE = 140  # in the help text
PANEL = helptext.REST


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  `layerscope measures --format json`")(measures)


def measures(format: Format = FORMAT) -> None:
    """List the measures that `compare` knows: range, invariances, what each needs, and its source."""
    import layerscope as ls

    show(ls.measures().to_dict("records"), format)
