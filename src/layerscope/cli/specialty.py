"""`layerscope specialty`"""

from __future__ import annotations

from pathlib import Path

import typer

from layerscope.cli.options import Data, Run, open_task
from layerscope.cli.output import FORMAT, Format, show
from layerscope.cli.record import OUT, leave


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  `layerscope specialty demo:minilm --task pydocs --limit 500 -o out`")(specialty)


def specialty(
    model: str = Run.any_model,
    task: str = Data.task,
    no_probe: bool = typer.Option(False, "--no-probe", help="Only nu, no probes."),
    limit: int | None = Run.limit,
    max_length: int = typer.Option(128, help="Longest text in tokens; the rest is cut off."),
    seed: int = typer.Option(0, help="Decides the subsamples."),
    device: str | None = Run.device,
    text: str | None = Data.text,
    text_pair: str | None = Data.text_pair,
    label: str | None = Data.label,
    choices: str | None = Data.choices,
    config: str | None = Data.config,
    skip_bad: bool = Data.skip_bad,
    out: Path | None = OUT,
    format: Format = FORMAT,
) -> None:
    """Which layers to tune for a task, before anything is trained: nu of every layer, probes, l*, a recommendation."""
    import layerscope as ls

    data = open_task(task, text, text_pair, label, choices, config, skip_bad)
    opened = ls.load(model, device=device)
    found = ls.choose(opened, data, probes=not no_probe, limit=limit, max_length=max_length, seed=seed)
    frame = found.nu.to_frame().drop(columns="model")
    if found.probe is not None:
        frame["probe"] = found.probe.values
    show(frame.to_dict("records"), format, f"nu of {model} on {task}: the least is l*")
    if format is Format.table:
        show(found.table.to_dict("records"), format, "Strategies around it; multiply-adds are a token's")
        print(found)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        frame.to_csv(out / "specialty.csv", index=False)
        found.plot(out / "specialty.png")

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
