"""`layerscope align`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from layerscope.cli import console
from layerscope.cli.command import Given, command, names
from layerscope.cli.console import FORMAT, Format, show
from layerscope.cli.options import START, aligner_options
from layerscope.cli.record import OUT, keep
from layerscope.drawing.captions import listed
from layerscope.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame


@command(
    {"two models or more": "alignment_study", "--synthetic": "synthetic_study"},
    panel=console.STAND,
    examples=[
        "layerscope align path/to/a path/to/b --task sst2 --layers 8 --methods inn,linear",
        "layerscope align seed-0 seed-1 seed-2 --task sst2 --study -o out",
        "layerscope align demo:minilm --task sst2 --synthetic --methods linear,inn",
    ],
    left_out={
        "source": "it is the one model that is given",
        "layer": "it is --layers",
        "options": "--start and --pad are those that are usual",
    },
)
def align(
    given: Given,
    models: list[str] = typer.Argument(help="Two models or more; one with --target-layers every or --synthetic."),
    study: bool = typer.Option(False, "--study", help="All layers, all methods, pairs of models drawn from all given."),
    synthetic: bool = typer.Option(
        False, "--synthetic", help="One model: test whether known maps of its states are found."
    ),
    start: str = START,
    pad: bool = typer.Option(False, "--pad", help="Pad the narrower model with zeros where a method needs one width."),
    out: Path | None = OUT,
    format: Format = FORMAT,
) -> None:
    """Test whether two models are the same up to a map, which is fitted on some texts and scored on others."""
    from layerscope.models.load import labels_of

    methods = None if given["methods"] is None else names(given["methods"], "method")
    if synthetic:
        _synthetic(given, models, study, methods, (start, pad), out, format)
        return
    if len(models) > 2 and not study:
        raise InputError(
            f"{len(models)} models were given; without --study one is mapped to another. Give two, or --study."
        )
    if "pairs" in given and not study:
        raise InputError("--pairs says how many pairs of models --study draws; leave it out, or give --study.")
    chosen = methods if methods is not None else None if study else ["linear", "inn"]
    options = aligner_options(chosen, start, pad)
    given.require_task()
    given.check("alignment_study")
    data, opened = given.task, given.open_models(models)
    pairs = None if study else 1
    result = given.call("alignment_study", models=opened, task=data, methods=chosen, pairs=pairs, options=options)
    of = given["representation"] or "states"
    title = f"{listed(labels_of(opened))} on {given['task']}: errors of maps between {of}"
    if format is Format.json:
        show(result.frame.to_dict("records"), format)
    else:
        if not study:
            show(_short(result.frame).to_dict("records"), format, title)
        if study or len(result.frame) > len(result.summary) * result.frame["split"].nunique():
            show(result.summary.to_dict("records"), format, f"{title}, mean over layers and pairs")
    tested = int(result.frame[result.frame["split"] == "test"]["n"].iloc[0])
    keep(out, "align", title, {"alignment": result}, data={"n": tested}, start=start)


def _synthetic(
    given: Given,
    models: list[str],
    study: bool,
    methods: list[str] | None,
    fits: tuple[str, bool],
    out: Path | None,
    format: Format,
) -> None:
    """Map the states of one model by known maps, and show how well each method finds them."""
    if len(models) > 1 or study or any(name in given for name in ("pairs", "representation", "target_layers")):
        raise InputError(
            "--synthetic maps the states of one model by maps that are known; give one model, and neither --study nor "
            "--pairs, --representation or --target-layers."
        )
    layers = given.value("layers")
    if layers is not None and len(layers) > 1:
        raise InputError(f"--synthetic takes one layer; --layers {given['layers']} names {len(layers)}.")
    given.require_task()
    options = aligner_options(methods, *fits)
    layer = None if layers is None else layers[0]
    model = given.open_models(models)[0]
    result = given.call("synthetic_study", source=model, methods=methods, layer=layer, layers=None, options=options)
    title = f"Known maps of {model.label} on {given['task']}: errors of what is found"
    shown = result.frame if format is Format.json else result.summary
    show(shown.to_dict("records"), format, title)
    keep(out, "align", title, {"synthetic": result}, start=fits[0])


def _short(frame: DataFrame) -> DataFrame:
    """The errors on test rows, without what is the same in every row."""
    rows = frame[frame["split"] == "test"]
    names = ["layer", "method", "n", *(name for name in ("mse", "relative", "similarity") if name in frame)]
    if (rows["layer"] != rows["target_layer"]).any():
        names.insert(1, "target_layer")
    if rows["source"].nunique() > 1:
        names = ["source", "target", *names]
    return rows[names]
