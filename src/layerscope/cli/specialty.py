"""`layerscope specialty`"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.cli.options import COLUMNS, Columns, Data, Run, integers, names, shares, with_columns
from layerscope.cli.output import FORMAT, Format, show
from layerscope.cli.record import OUT, leave, write_table
from layerscope.errors import choose

if TYPE_CHECKING:
    from pandas import DataFrame


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  `layerscope specialty demo:minilm --task pydocs --limit 500 -o out`")(specialty)


@with_columns
def specialty(
    model: str = Run.any_model,
    task: str = Data.task,
    no_probe: bool = typer.Option(False, "--no-probe", help="Only nu, no probes."),
    imbalance: str | None = typer.Option(
        None, help="Also nu of training sets in which the first class has these shares: 0.5,0.25,0.1,0.05."
    ),
    scarcity: str | None = typer.Option(None, help="Also nu of balanced training sets of these sizes: 5000,1000,200."),
    pools: str | None = typer.Option(None, help="Also nu and probes under these pools: mean,cls."),
    tuned: str | None = typer.Option(None, help="Also nu and probes of this model, tuned on the task, beside MODEL."),
    limit: int | None = Run.limit,
    max_length: int = typer.Option(128, help="Longest text in tokens; the rest is cut off."),
    seed: int = typer.Option(0, help="Decides the subsamples."),
    device: str | None = Run.device,
    columns: Columns = COLUMNS,
    out: Path | None = OUT,
    format: Format = FORMAT,
) -> None:
    """Which layers to tune for a task, before anything is trained: nu of every layer, probes, l*, a recommendation."""
    import layerscope as ls
    from layerscope.extract.reading import POOLS

    wanted_shares = None if imbalance is None else shares(imbalance)  # before the work, not after it
    wanted_sizes = None if scarcity is None else integers(scarcity)
    wanted_pools = ["mean"] if pools is None else [choose("pool", name, POOLS) for name in names(pools, "pool")]
    data = columns.open(task)
    opened = ls.load(model, device=device)
    beside = {model: opened} | ({tuned: ls.load(tuned, device=device)} if tuned else {})
    options: dict[str, Any] = {"limit": limit, "max_length": max_length}
    found = ls.choose(opened, data, probes=not no_probe, seed=seed, **options)
    command = ["layerscope", "tune", model, "--task", task, *columns.words(), "--strategy", found.strategy]
    found = replace(found, command=shlex.join(command))
    frame = found.nu.to_frame().drop(columns="model")
    if found.probe is not None:
        frame["probe"] = found.probe.values
    experiments: dict[str, DataFrame] = {}
    if wanted_shares or wanted_sizes:
        train = ls.extract(opened, data, split=data.resolve(None, learning=True), pool="mean", **options)
        if wanted_shares:
            experiments["imbalance"] = ls.imbalance(train, wanted_shares, probe=found.probe, seed=seed)
        if wanted_sizes:
            experiments["scarcity"] = ls.scarcity(train, wanted_sizes, probe=found.probe, seed=seed)
    if pools or tuned:
        experiments["pools"] = ls.specialty_study(beside, data, pools=wanted_pools, **options)
    if format is Format.json:
        more = [table.assign(experiment=name) for name, table in experiments.items()]
        show([row for part in [frame, *more] for row in part.to_dict("records")], format)
    else:
        show(frame.to_dict("records"), format, f"nu of {model} on {task}: the least is l*")
        show(found.table.to_dict("records"), format, "Strategies around it; multiply-adds are a token's")
        for name, table in experiments.items():
            each = table.drop(columns=["layer", "nu", "nu_rows", "score"], errors="ignore").drop_duplicates()
            show(each.to_dict("records"), format, f"{name}: smoothness of nu, and its correlation with probes")
        print(found)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_table(frame, out / "specialty.csv")
        found.plot(out / "specialty.png")
        for name, table in experiments.items():
            write_table(table, out / f"{name}.csv")
            ls.plot_robustness(table, out / f"{name}.png")

        from layerscope.extract.run import examples_of
        from layerscope.report import pictures

        leave(
            out,
            "specialty",
            f"Which layers of {model} to tune for {task}",
            pictures.choice(found),
            models=[opened],
            examples=examples_of(data, None, limit, learning=True),
            findings=[found.reason, f"Next: {found.command}"],
            pool="mean",
            max_length=max_length,
            seed=seed,
        )
