"""`layerscope align`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from layerscope.cli.options import COLUMNS, Columns, Data, Run, integers, names, network_options, with_columns
from layerscope.cli.output import FORMAT, Format, show
from layerscope.cli.record import OUT, leave, listed, write_table
from layerscope.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Example:  `layerscope align path/to/a path/to/b --task sst2 --layer 8 --method inn,linear`  \n"
        "`layerscope align seed-0 seed-1 seed-2 --task sst2 --study -o out`"
    )(align)


@with_columns
def align(
    models: list[str] = typer.Argument(help="Two models or more; one with --against every."),
    task: str = Data.task,
    layer: str | None = typer.Option(None, "--layer", help="Only these layers: 8, 0,4,8 or 6-12."),
    method: str | None = typer.Option(
        None, "--method", help="identity, mean, linear, procrustes, cca, svcca, pwcca, inn, mlp; several with commas."
    ),
    study: bool = typer.Option(False, "--study", help="All layers, all methods, pairs of models drawn from all given."),
    pairs: int | None = typer.Option(None, help="With --study: how many ordered pairs of models; 8 if not given."),
    of: str = typer.Option("states", help="states, or attention (pairs of words by attention heads)."),
    against: str = typer.Option("same", help="same: layer l to layer l; every: every layer to every layer."),
    pool: str = typer.Option("mean", help="How token states become rows: mean, cls, last, words or tokens."),
    train: int = typer.Option(1600, help="Texts of the train split that aligners learn from."),
    test: int = typer.Option(1600, help="Texts of the other split that they are scored on."),
    start: str = typer.Option("plain", help="Of inn and mlp: plain, or linear to start from the ridge solution."),
    pad: bool = typer.Option(False, "--pad", help="Pad the narrower model with zeros where a method needs one width."),
    max_length: int = typer.Option(128, help="Longest text in tokens; the rest is cut off."),
    seed: int = typer.Option(0, help="Decides folds, networks and pairs."),
    device: str | None = Run.device,
    columns: Columns = COLUMNS,
    out: Path | None = OUT,
    format: Format = FORMAT,
) -> None:
    """Are two models the same up to a map? Maps fitted on some texts and scored on others, layer by layer."""
    import layerscope as ls
    from layerscope.extract.run import examples_of

    if len(models) > 2 and not study:
        raise InputError(
            f"{len(models)} models were given; without --study one is mapped to another. Give two, or --study."
        )
    if pairs is not None and not study:
        raise InputError("--pairs says how many pairs of models --study draws; leave it out, or give --study.")
    chosen = names(method, "method") if method is not None else None if study else ["linear", "inn"]
    options = network_options(start, chosen)
    if pad:
        padded = [name for name in ("identity", "procrustes", "inn") if chosen is None or name in chosen]
        if not padded:
            raise InputError(f"--pad is for identity, procrustes and inn, and only {method} was asked for.")
        options |= {name: {**options.get(name, {}), "pad": True} for name in padded}
    data = columns.open(task)
    opened = [ls.load(name, device=device) for name in models]
    frame = ls.alignment_study(
        opened,
        data,
        layers=integers(layer) if layer else None,
        methods=chosen,
        pairs=1 if not study else 8 if pairs is None else pairs,
        of=of,
        against=against,
        pool=pool,
        train=train,
        test=test,
        max_length=max_length,
        seed=seed,
        options=options,
    )
    table = ls.alignment_table(frame)
    title = f"{listed([m.name for m in opened])} on {task}: errors of maps between {of}"
    if format is Format.json:
        show(frame.to_dict("records"), format)
    else:
        if not study:
            show(_short(frame).to_dict("records"), format, title)
        if study or len(frame) > len(table) * frame["split"].nunique():  # else there is nothing to average
            show(table.to_dict("records"), format, f"{title}, mean over layers and pairs")
    if out is not None:
        from layerscope.report import pictures

        out.mkdir(parents=True, exist_ok=True)
        write_table(frame, out / "alignment.csv")
        if "relative" in frame and frame[frame["split"] == "test"]["relative"].notna().any():
            ls.plot_alignment(frame, out / "alignment.png")
        leave(
            out,
            "align",
            title,
            pictures.alignment(frame, table),
            models=opened,
            examples=examples_of(data, None, test),
            n=int(frame[frame["split"] == "test"]["n"].iloc[0]),
            pool=pool if of == "states" else None,
            of=of,
            train=train,
            start=start,
            max_length=max_length,
            seed=seed,
        )


def _short(frame: DataFrame) -> DataFrame:
    """The errors on test rows, without what is the same in every row."""
    rows = frame[frame["split"] == "test"]
    names = ["layer", "method", "n", *(name for name in ("mse", "relative", "similarity") if name in frame)]
    if (rows["layer"] != rows["target_layer"]).any():
        names.insert(1, "target_layer")
    if rows["source"].nunique() > 1:
        names = ["source", "target", *names]
    return rows[names]
