"""`layerscope specialty`"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.cli.options import COLUMNS, Columns, Data, Given, integers, names, shares, with_columns
from layerscope.cli.output import FORMAT, Format, show
from layerscope.cli.record import OUT, keep
from layerscope.errors import choose

if TYPE_CHECKING:
    from layerscope.probing.robustness import Robustness

PLACE = 70  # in the help text


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  `layerscope specialty demo:minilm --task pydocs --limit 500 -o out`")(specialty)


@with_columns
def specialty(
    model: str = Given.any_model,
    task: str = Data.task,
    no_probe: bool = typer.Option(False, "--no-probe", help="Only nu, no probes."),
    imbalance: str | None = typer.Option(
        None, help="Also nu of training sets in which the first class has these shares: 0.5,0.25,0.1,0.05."
    ),
    scarcity: str | None = typer.Option(None, help="Also nu of balanced training sets of these sizes: 5000,1000,200."),
    pools: str | None = typer.Option(None, help="Also nu and probes under these pools: mean,cls."),
    tuned: str | None = typer.Option(None, help="Also nu and probes of this model, tuned on the task, beside MODEL."),
    limit: int | None = Given.limit,
    max_length: int = typer.Option(128, help="Longest text in tokens; the rest is cut off."),
    seed: int = typer.Option(0, help="Decides the subsamples."),
    device: str | None = Given.device,
    dtype: str = Given.dtype,
    columns: Columns = COLUMNS,
    out: Path | None = OUT,
    format: Format = FORMAT,
) -> None:
    """Which layers to tune for a task, before anything is trained: nu of every layer, probes, l*, a recommendation."""
    import layerscope as ls
    from layerscope.extraction.reading import POOLS

    wanted_shares = None if imbalance is None else shares(imbalance)  # before the work, not after it
    wanted_sizes = None if scarcity is None else integers(scarcity)
    wanted_pools = ["mean"] if pools is None else [choose("pool", name, POOLS) for name in names(pools, "pool")]
    data = columns.open(task)
    opened = ls.load(model, device=device, dtype=dtype)
    beside = {model: opened} | ({tuned: ls.load(tuned, device=device, dtype=dtype)} if tuned else {})
    options: dict[str, Any] = {"limit": limit, "max_length": max_length}
    choice = ls.choose(opened, data, probes=not no_probe, seed=seed, **options)
    command = ["layerscope", "tune", model, "--task", task, *columns.words(), "--strategy", choice.strategy]
    choice = replace(choice, command=shlex.join(command))
    experiments: dict[str, Robustness] = {}
    if wanted_shares or wanted_sizes:
        train = ls.extract(opened, data, split=data.resolve(None, learning=True), pool="mean", **options)
        if wanted_shares:
            experiments["imbalance"] = ls.imbalance(train, wanted_shares, probe=choice.probe, seed=seed)
        if wanted_sizes:
            experiments["scarcity"] = ls.scarcity(train, wanted_sizes, probe=choice.probe, seed=seed)
    if pools or tuned:
        experiments["pools"] = ls.specialty_study(beside, data, pools=wanted_pools, **options)
    if format is Format.json:
        more = [each.frame.assign(experiment=name) for name, each in experiments.items()]
        show([row for part in [choice.frame, *more] for row in part.to_dict("records")], format)
    else:
        show(choice.frame.to_dict("records"), format, f"nu of {model} on {task}: the least is l*")
        show(choice.strategies.frame.to_dict("records"), format, "Strategies around it; multiply-adds are per token")
        for name, each in experiments.items():
            heading = f"{name}: smoothness of nu, and its correlation with probes"
            show(each.settings.to_dict("records"), format, heading)
        print(choice)
    keep(out, "specialty", f"Which layers of {model} to tune for {task}", {"specialty": choice, **experiments})
