"""`layerscope measures`"""

from __future__ import annotations

from layerscope.cli import console
from layerscope.cli.command import Given, command
from layerscope.cli.console import FORMAT, Format, show


@command("measures", panel=console.REST, examples=["layerscope measures --format json"])
def measures(given: Given, format: Format = FORMAT) -> None:
    """List the measures that `compare` knows: range, invariances, what each needs, and its source."""
    show(given.call("measures").to_dict("records"), format)
