"""`layerscope specialty`"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.cli import helptext
from layerscope.cli.options import COLUMNS, Columns, Data, Given, integers, names, shares, with_columns
from layerscope.cli.output import FORMAT, Format, show
from layerscope.cli.record import OUT, keep
from layerscope.errors import InputError, choose

if TYPE_CHECKING:
    from layerscope.extraction.representations import Representations
    from layerscope.probing.robustness import Robustness
    from layerscope.results import Curve
    from layerscope.tuning.choosing import Choice

PLACE = 70  # in the help text
PANEL = helptext.TUNE
MEASURES = (
    *("label_cca", "numerical_rank", "mutual_information", "normalized_mutual_information"),
    "nuclear_norm",
)
_ROUGHNESS = (
    "zeta is how rough nu is (the sum of squared second differences of its z-scored values over layers, 0 for a "
    "straight line), rho its correlation with the probes over layers"
)


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Example:  `layerscope specialty demo:minilm --task pydocs --limit 500 -o out`  \n"
        "`layerscope specialty demo:minilm --task pydocs --measures label_cca,numerical_rank`"
    )(specialty)


@with_columns
def specialty(
    model: str = Given.any_model,
    task: str = Data.task,
    no_probe: bool = typer.Option(False, "--no-probe", help="Only nu, no probes."),
    probe: str = typer.Option("linear", "--probe", help="The kind of probe: linear, or head (the family's own head)."),
    null: int = typer.Option(100, "--null", help="How many times labels are permuted among texts, for p-values."),
    measures: str | None = typer.Option(
        None, "--measures", help=f"Also other measures of the layers against the labels: {', '.join(MEASURES)}."
    ),
    imbalance: str | None = typer.Option(
        None, help="Also nu of training sets in which the first class has these shares: 0.5,0.25,0.1,0.05."
    ),
    imbalance_size: int | None = typer.Option(
        None, help="With --imbalance: rows of each set in all; the most that all shares allow if not given."
    ),
    scarcity: str | None = typer.Option(
        None, help="Also nu of balanced training sets with these numbers of rows: 40000,20000,5000,200."
    ),
    pools: str | None = typer.Option(None, help="Also nu and probes under these pools: mean,cls."),
    tuned: str | None = typer.Option(None, help="Also nu and probes of this model, tuned on the task, beside MODEL."),
    limit: int | None = Given.limit,
    max_length: int = typer.Option(128, help="Longest text in tokens; the rest is cut off."),
    seed: int = typer.Option(0, help="Decides halves, permutations and what is drawn."),
    engine: str = typer.Option(
        "local",
        "--engine",
        help="With --pools or --tuned: where models run over the texts: local, processes:N, ray or ray:ADDRESS.",
    ),
    device: str | None = Given.device,
    dtype: str = Given.dtype,
    columns: Columns = COLUMNS,
    out: Path | None = OUT,
    format: Format = FORMAT,
) -> None:
    """Recommend which layers to tune for a task, before any training: nu and probes of every layer, and l*."""
    import layerscope as ls
    from layerscope.extraction.reading import POOLS
    from layerscope.models.own import OwnModel
    from layerscope.probing.labelled import labelled_rows, parted

    wanted_shares = None if imbalance is None else shares(imbalance)  # before the work, not after it
    wanted_sizes = None if scarcity is None else integers(scarcity)
    wanted_measures = (
        [] if measures is None else [choose("measure", name, MEASURES) for name in names(measures, "measure")]
    )
    _check(probe, imbalance, imbalance_size, engine, several=pools is not None or tuned is not None)
    wanted_pools = ["mean"] if pools is None else [choose("pool", name, POOLS) for name in names(pools, "pool")]
    data = columns.open(task)
    opened = ls.load(model, device=device, dtype=dtype)
    beside = {model: opened} | ({tuned: ls.load(tuned, device=device, dtype=dtype)} if tuned else {})
    options: dict[str, Any] = {"limit": limit, "max_length": max_length}
    train, others = None, {}
    if wanted_shares or wanted_sizes or wanted_measures:
        train = labelled_rows(opened, parted(data, (limit, limit))[0], pool="mean", max_length=max_length)
        others = {name: _measured(train, name, seed) for name in wanted_measures}  # refused first where texts are few
    if isinstance(opened, OwnModel):
        if wanted_shares or wanted_sizes or pools or tuned:
            raise InputError(
                f"--imbalance, --scarcity, --pools and --tuned are for models that can be tuned, and {model} cannot; "
                "in Python ls.imbalance, ls.scarcity and ls.specialty_study take its states."
            )
        curves = _of_states(opened, data, None if no_probe else probe, null, seed, options) | others
        show(_side_by_side(curves), format, f"nu of {model} on {task}; it cannot be tuned, so no strategy is advised")
        keep(out, "specialty", f"How the layers of {model} separate the classes of {task}", curves)
        return
    choice = ls.choose(opened, data, probes=not no_probe, kind=probe, null=null, seed=seed, **options)
    command = ["layerscope", "tune", model, "--task", task, *columns.words(), "--strategy", choice.strategy]
    choice = replace(choice, command=shlex.join(command))
    experiments: dict[str, Robustness] = {}
    if train is not None:
        if wanted_shares:
            sets: dict[str, Any] = {"size": imbalance_size, "probe": choice.probe, "seed": seed}
            experiments["imbalance"] = ls.imbalance(train, wanted_shares, **sets)
        if wanted_sizes:
            experiments["scarcity"] = ls.scarcity(train, wanted_sizes, probe=choice.probe, seed=seed)
    if pools or tuned:
        experiments["pools"] = ls.specialty_study(
            beside, data, pools=wanted_pools, kind=probe, engine=engine, **options
        )
    by_layer = choice.frame.assign(**{name: curve.values for name, curve in others.items()})
    if format is Format.json:
        more = [each.frame.assign(experiment=name) for name, each in experiments.items()]
        show([row for part in [by_layer, *more] for row in part.to_dict("records")], format)
    else:
        show(by_layer.to_dict("records"), format, _title(choice, model, task))
        show(
            choice.strategies.frame.to_dict("records"),
            format,
            f"Strategies around l* = {choice.best}, and the recommended one; multiply-adds are per token",
        )
        for name, each in experiments.items():
            show(each.settings.to_dict("records"), format, f"{name}: {_ROUGHNESS}")
        print(choice)
    title = f"Which layers of {model} to tune for {task}"
    keep(out, "specialty", title, {"specialty": choice, **others, **experiments})


def _check(probe: str, imbalance: str | None, size: int | None, engine: str, several: bool) -> None:
    """Raise a sentence where an option cannot be, or not with another."""
    from layerscope.engine import check_engine
    from layerscope.probing.probes import KINDS

    choose("kind of probe", probe, KINDS)
    check_engine(engine)
    if size is not None and imbalance is None:
        raise InputError("--imbalance-size is the size of the sets of --imbalance, which was not given.")
    if engine != "local" and not several:
        raise InputError(
            f"--engine {engine} is for several pools or models; give --pools or --tuned, or leave --engine out."
        )


def _of_states(
    opened: Any, data: Any, kind: str | None, null: int, seed: int, options: dict[str, Any]
) -> dict[str, Curve]:
    """nu of every layer, and probes, of a network of which only the states are known."""
    import layerscope as ls
    from layerscope.probing.labelled import labelled_rows, parted

    limit, reading = options["limit"], {"pool": "mean", "max_length": options["max_length"]}
    learned, scored = parted(data, (limit, limit))
    train = labelled_rows(opened, learned, **reading)
    curves = {"nu": ls.specialty(train, ci=0.95, null=null, seed=seed)}
    if kind is not None:
        held = labelled_rows(opened, scored, **reading)
        curves["probe"] = ls.probe(train, held, kind=kind, model=opened, metric=data.metric, seed=seed)
    return curves


def _side_by_side(curves: dict[str, Curve]) -> list[dict[str, Any]]:
    """One row per layer."""
    layers = next(iter(curves.values())).layers
    columns = {name: curve.values for name, curve in curves.items()}
    return [{"layer": layer, **{n: float(c[k]) for n, c in columns.items()}} for k, layer in enumerate(layers)]


def _title(choice: Choice, model: str, task: str) -> str:
    """What the columns of the table are."""
    return (
        f"nu of {model} on {task}; l*, the layer of the least nu above 0, is {choice.best}. null: median nu with "
        "permuted labels; ratio: nu over null; p: share of labellings with a nu as low in that layer"
    )


def _measured(train: Representations, name: str, seed: int) -> Curve:
    """Another measure of the layers against the labels, by its name here."""
    import layerscope as ls

    if name == "normalized_mutual_information":
        return ls.mutual_information(train, normalized=True, seed=seed)
    return {
        "label_cca": ls.label_cca,
        "numerical_rank": ls.numerical_rank,
        "mutual_information": ls.mutual_information,
        "nuclear_norm": ls.nuclear_norm,
    }[name](train, seed=seed)
