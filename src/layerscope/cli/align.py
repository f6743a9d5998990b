"""`layerscope align`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.alignment.methods import METHODS
from layerscope.cli import helptext
from layerscope.cli.options import COLUMNS, Columns, Data, Given, aligner_options, integers, names, shares, with_columns
from layerscope.cli.output import FORMAT, Format, show
from layerscope.cli.record import OUT, keep
from layerscope.drawing.words import listed
from layerscope.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame

    from layerscope.alignment.synthetic import SyntheticStudy
    from layerscope.data import Task
    from layerscope.models import Model

PLACE = 90  # in the help text
PANEL = helptext.STAND


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Example:  `layerscope align path/to/a path/to/b --task sst2 --layer 8 --method inn,linear`  \n"
        "`layerscope align seed-0 seed-1 seed-2 --task sst2 --study -o out`  \n"
        "`layerscope align demo:minilm --task sst2 --synthetic --method linear,inn`"
    )(align)


@with_columns
def align(
    models: list[str] = typer.Argument(help="Two models or more; one with --against every or --synthetic."),
    task: str = Data.task,
    layer: str | None = typer.Option(None, "--layer", help="Only these layers: 8, 0,4,8 or 6-12."),
    method: str | None = typer.Option(
        None, "--method", help=f"{', '.join(METHODS)}, pwcca; several, separated by commas."
    ),
    study: bool = typer.Option(False, "--study", help="All layers, all methods, pairs of models drawn from all given."),
    synthetic: bool = typer.Option(
        False, "--synthetic", help="One model: test whether known maps of its states are found."
    ),
    truths: str | None = typer.Option(None, help="With --synthetic: linear, inn, rotated inn; all if not given."),
    noise: str | None = typer.Option(None, help="With --synthetic: noise as shares of the spread; 0,0.1 if not given."),
    repeats: int | None = typer.Option(
        None, help="With --synthetic: how many known maps of each kind; 3 if not given."
    ),
    pairs: int | None = typer.Option(None, help="With --study: how many ordered pairs of models; 8 if not given."),
    of: str = typer.Option("states", help="states, or attention (pairs of words by attention heads)."),
    against: str = typer.Option("same", help="same: layer l to layer l; every: every layer to every layer."),
    pool: str = typer.Option("mean", help="How token states become rows: mean, cls, last, words or tokens."),
    train: int = typer.Option(1600, help="Texts of the train split that aligners learn from."),
    test: int = typer.Option(1600, help="Texts of the other split that they are scored on."),
    start: str = typer.Option("linear", help="For inn and mlp: linear starts from the linear map, plain from nothing."),
    pad: bool = typer.Option(False, "--pad", help="Pad the narrower model with zeros where a method needs one width."),
    max_length: int = typer.Option(128, help="Longest text in tokens; the rest is cut off."),
    seed: int = typer.Option(0, help="Decides folds, networks and pairs."),
    engine: str = Given.engine,
    device: str | None = Given.device,
    dtype: str = Given.dtype,
    columns: Columns = COLUMNS,
    out: Path | None = OUT,
    format: Format = FORMAT,
) -> None:
    """Test whether two models are the same up to a map, which is fitted on some texts and scored on others."""
    import layerscope as ls

    own = {"truths": truths, "noise": noise, "repeats": repeats}
    if synthetic:
        if len(models) > 1 or study or pairs is not None or of != "states" or against != "same":
            raise InputError(
                "--synthetic maps the states of one model by maps that are known; give one model, and neither --study "
                "nor --pairs, --of or --against."
            )
        chosen = None if method is None else names(method, "method")
        known = _synthetic(
            ls.load(models[0], device=device, dtype=dtype),
            columns.open(task),
            {"pool": pool, "limit": train + test, "max_length": max_length},
            layer,
            {
                **{"methods": chosen, "seed": seed, "options": aligner_options(chosen, start, pad), "engine": engine},
                **_given(own),
            },
        )
        title = f"Known maps of {models[0]} on {task}: errors of what is found"
        shown = known.frame if format is Format.json else known.summary
        show(shown.to_dict("records"), format, title)
        return keep(out, "align", title, {"synthetic": known}, start=start)
    if wrong := [f"--{name}" for name, value in own.items() if value is not None]:
        raise InputError(f"Only --synthetic has {listed(wrong)}; add it, or leave {listed(wrong)} out.")
    if len(models) > 2 and not study:
        raise InputError(
            f"{len(models)} models were given; without --study one is mapped to another. Give two, or --study."
        )
    if pairs is not None and not study:
        raise InputError("--pairs says how many pairs of models --study draws; leave it out, or give --study.")
    chosen = names(method, "method") if method is not None else None if study else ["linear", "inn"]
    options = aligner_options(chosen, start, pad)
    data = columns.open(task)
    opened = [ls.load(name, device=device, dtype=dtype) for name in models]
    result = ls.alignment_study(
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
        engine=engine,
    )
    title = f"{listed([m.name for m in opened])} on {task}: errors of maps between {of}"
    if format is Format.json:
        show(result.frame.to_dict("records"), format)
    else:
        if not study:
            show(_short(result.frame).to_dict("records"), format, title)
        if study or len(result.frame) > len(result.summary) * result.frame["split"].nunique():
            show(result.summary.to_dict("records"), format, f"{title}, mean over layers and pairs")
    tested = int(result.frame[result.frame["split"] == "test"]["n"].iloc[0])
    keep(out, "align", title, {"alignment": result}, data={"n": tested}, start=start)


def _short(frame: DataFrame) -> DataFrame:
    """The errors on test rows, without what is the same in every row."""
    rows = frame[frame["split"] == "test"]
    names = ["layer", "method", "n", *(name for name in ("mse", "relative", "similarity") if name in frame)]
    if (rows["layer"] != rows["target_layer"]).any():
        names.insert(1, "target_layer")
    if rows["source"].nunique() > 1:
        names = ["source", "target", *names]
    return rows[names]


def _given(own: dict[str, Any]) -> dict[str, Any]:
    """The options of a synthetic study that were given, as it takes them."""
    read: dict[str, Any] = {"truths": lambda text: names(text, "truth"), "noise": shares, "repeats": int}
    return {name: read[name](value) for name, value in own.items() if value is not None}


def _synthetic(
    model: Model, data: Task, reading: dict[str, Any], layer: str | None, options: dict[str, Any]
) -> SyntheticStudy:
    """The synthetic study of one layer's states over the texts to learn from."""
    import layerscope as ls

    layers = [model.depth] if layer is None else integers(layer)
    if len(layers) > 1:
        raise InputError(f"--synthetic takes one layer; --layer {layer} names {len(layers)}.")
    reps = ls.extract(model, data, split=data.resolve(None, learning=True), layers=layers, **reading)
    return ls.synthetic_study(reps, layer=layers[0], **options)
