"""`layerscope tune` and `layerscope strategies`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.cli.options import COLUMNS, Columns, Data, Run, with_columns
from layerscope.cli.output import FORMAT, Format, show
from layerscope.cli.record import OUT, leave, writable
from layerscope.errors import InputError

if TYPE_CHECKING:
    from layerscope.data import Examples, Task

_BEST = typer.Option(
    None, "--best", help="l*, the layer of the task's specialty; else a pass over the training split finds it."
)
_METHOD = typer.Option("finetune", help="finetune, adapter, lora or prefix; several with commas for a study.")

_OUT = typer.Option(
    None, "--out", "-o", callback=writable, help="Put the checkpoint, its record and a run folder here."
)


def register(app: typer.Typer) -> None:
    app.command(
        epilog='Example:  `layerscope tune demo:minilm --task pydocs --strategy "(4, 6, L)" --epochs 2 -o tuned`'
    )(tune)
    app.command(epilog="Example:  `layerscope strategies demo:minilm --task pydocs --best 4`")(strategies)


@with_columns
def tune(
    model: str = Run.any_model,
    task: str = Data.task,
    strategy: str = typer.Option("full", help="(bottom, top, head), full, head-only, top-3, freeze-bottom-6, .."),
    method: str = _METHOD,
    preset: str | None = typer.Option(None, help="phang2021, wu2020 or xie2022: the papers' hyperparameters."),
    best: int | None = _BEST,
    size: int | None = typer.Option(None, help="Adapter width, LoRA rank, or number of virtual tokens."),
    seed: int = typer.Option(0, help="Decides the new head, the order of rows and dropout."),
    seeds: int | None = typer.Option(None, help="So many runs, with seeds 0, 1, ..: mean and standard error."),
    learning_rate: str | None = typer.Option(None, help="One, or several with commas: the best on validation is kept."),
    epochs: float | None = typer.Option(None, help="Passes over the training split."),
    max_steps: int | None = typer.Option(None, help="Steps, instead of epochs."),
    batch: int | None = typer.Option(None, help="Texts a step."),
    accumulate: int | None = typer.Option(None, help="Steps whose gradients are added up."),
    warmup: float | None = typer.Option(None, help="A share of the steps, or their number."),
    max_length: int | None = typer.Option(None, help="Longest text in tokens."),
    patience: int | None = typer.Option(None, help="Stop after so many epochs without a better score."),
    bf16: bool = typer.Option(False, "--bf16", help="Mixed precision."),
    no_cache: bool = typer.Option(False, "--no-cache", help="Run frozen blocks in every epoch."),
    train_limit: int | None = typer.Option(None, help="Only the first so many training examples."),
    validation_limit: int | None = typer.Option(None, help="Only the first so many validation examples."),
    study: bool = typer.Option(False, "--study", help="Every strategy of the papers instead of one."),
    device: str | None = Run.device,
    columns: Columns = COLUMNS,
    out: Path | None = _OUT,
    format: Format = FORMAT,
) -> None:
    """Train a model on a task under a strategy: only some blocks, a moved head, adapters; frozen blocks run once."""
    import layerscope as ls
    from layerscope.team import Team

    rates = None if learning_rate is None else [_number(part) for part in learning_rate.split(",")]
    options: dict[str, Any] = {
        "learning_rate": rates,
        "epochs": epochs,
        "max_steps": max_steps,
        "batch": batch,
        "accumulate": accumulate,
        "warmup": warmup,
        "max_length": max_length,
        "patience": patience,
        "bf16": bf16 or None,
        "cache": False if no_cache else None,
        "train_limit": train_limit,
        "validation_limit": validation_limit,
    }
    given = {name: value for name, value in options.items() if value is not None}
    data = columns.open(task)
    opened = ls.load(model, device=device)
    chosen = list(range(seeds)) if seeds is not None else [seed]
    if study:
        methods = [part.strip() for part in method.split(",")]
        frame = ls.strategy_study(opened, data, methods=methods, seeds=chosen, best=best, preset=preset, **options)
        if Team.current().is_main:
            show(frame.to_dict("records"), format, f"Strategies for {model} on {task}")
            if out is not None:
                out.mkdir(parents=True, exist_ok=True)
                frame.to_csv(out / "strategies.csv", index=False)
                ls.plot_strategies(frame, out / "strategies.png")

                from layerscope.report import pictures

                title = f"Strategies for {model} on {task}"
                settings = {"preset": preset, "methods": methods, "seeds": chosen, "best": best, **given}
                leave(out, "study", title, pictures.study(frame), models=[opened], examples=_training(data), **settings)
        return
    if format is Format.table and Team.current().is_main:
        show(
            [ls.training_cost(opened, data, strategy, method, best=best)], format, "What is trained, and what it costs"
        )
    found = ls.tune(
        opened, data, strategy=strategy, method=method, preset=preset, seeds=chosen, best=best, size=size, **options
    )
    if not Team.current().is_main:
        return
    rows = [
        {
            "seed": run.job.seed,
            "strategy": str(run.job.strategy),
            "method": run.job.method.name,
            "learning_rate": run.job.training.rates[0],
            "tried": run.tried,
            "score": run.score,
            "majority": run.result["majority"],
            "best_epoch": run.result["best_epoch"],
            "trained": run.trainable,
            "parameters": run.result["parameters"],
            "seconds": run.seconds,
        }
        for run in found.runs
    ]
    show(rows, format, f"{model} on {task}, {found.runs[0].result['metric']} on validation")
    if format is Format.table and len(chosen) > 1:
        print(f"Mean {found.mean:.4f}, standard error {found.error:.4f} over {len(chosen)} seeds.")
    if out is not None:
        for run in found.runs:
            ls.copy_run(run, out if len(chosen) == 1 else out / f"seed-{run.job.seed}")

        from layerscope.report import pictures

        title = f"{model} tuned on {task}, {found.runs[0].job.strategy}"
        figures = pictures.tuned(found, rows)
        said = []
        if len(chosen) > 1:
            said = [f"Mean {found.mean:.4f}, standard error {found.error:.4f} over {len(chosen)} seeds."]
        settings = {"strategy": strategy, "method": method, "preset": preset, "seeds": chosen, **given}
        leave(out, "tune", title, figures, models=[opened], examples=found.runs[0].job.train, findings=said, **settings)
        if format is Format.table:
            print(f"Saved in {out}.")
    elif format is Format.table:
        print("The store keeps the checkpoint; the same command with -o FOLDER copies it there, nothing trained again.")


@with_columns
def strategies(
    model: str = Run.any_model,
    task: str = Data.task,
    best: int | None = _BEST,
    method: str = _METHOD,
    columns: Columns = COLUMNS,
    out: Path | None = OUT,
    format: Format = FORMAT,
) -> None:
    """The papers' strategies for a model: what each would train and cost, before anything is trained."""
    import layerscope as ls

    data = columns.open(task)
    opened = ls.load(model)
    frame = ls.strategies(opened, data, best=best, method=method)
    show(frame.to_dict("records"), format, f"Strategies for {model}; multiply-adds are a token's")
    if out is not None:
        from layerscope.report import pictures

        title = f"Strategies for {model} on {task}"
        leave(out, "strategies", title, pictures.strategies(frame), models=[opened], best=best, method=method)


def _training(data: Task) -> Examples:
    from layerscope.extract.run import examples_of

    return examples_of(data, None, None, learning=True)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{text!r} is no learning rate; write 2e-5, or several with commas.") from None
