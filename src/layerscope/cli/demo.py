"""`layerscope demo`"""

from __future__ import annotations

import typer

from layerscope.cli.output import FORMAT, Format, show


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  `layerscope demo`")(demo)


def demo(format: Format = FORMAT) -> None:
    """A real small model over real text, offline: the layers of MiniLM over Python's own documentation."""
    import layerscope as ls

    reps = ls.extract("demo:minilm", "pydocs", pool="mean")
    title = f"The layers of MiniLM over {len(reps)} sentences of {reps.rows.task} ({reps.rows.split}), mean of tokens"
    show(reps.summary().to_dict("records"), format, title)
    if format is Format.table:
        print("Next, on your own model and data:")
        print("  layerscope extract path/to/model --task reviews.csv --pool cls -o rows")
        print("  layerscope tasks reviews.csv")
        print("  layerscope models path/to/model")
