"""`layerscope demo`"""

from __future__ import annotations

from pathlib import Path

import typer

from layerscope.cli.output import FORMAT, Format, show


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  `layerscope demo`")(demo)


def demo(
    out: Path = typer.Option(Path("demo-output"), "--out", "-o", help="Where the figure goes."),
    format: Format = FORMAT,
) -> None:
    """A real small model over real text, offline: the layers of MiniLM over Python's own documentation."""
    import layerscope as ls

    reps = ls.extract("demo:minilm", "pydocs", pool="mean")
    title = f"The layers of MiniLM over {len(reps)} sentences of {reps.rows.task} ({reps.rows.split}), mean of tokens"
    show(reps.summary().to_dict("records"), format, title)
    similarity = ls.compare(ls.extract("demo:minilm", "pydocs", pool="words"), measure="cka", names=["MiniLM"])
    split = ls.blocks(similarity)
    figure = out / "cka-words.png"
    split.plot(figure)
    if format is Format.table:
        print(f"CKA of every pair of layers over {similarity.n} words: {figure}")
        print(
            f"Its best split into blocks is at layer {' and '.join(split.boundaries)} "
            f"(strength {split.strength:.2f}, p = {split.p_value:.3f} against the same fall-off without blocks)."
        )
        print("Next, on your own model and data:")
        print("  layerscope compare path/to/model --task reviews.csv --pool cls --measure cka,svcca -o out")
        print("  layerscope extract path/to/model --task reviews.csv --pool cls -o rows")
        print("  layerscope models path/to/model")
