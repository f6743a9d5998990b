"""`layerscope tune` and `layerscope strategies`"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.cli.options import COLUMNS, Columns, Data, Run, names, with_columns
from layerscope.cli.output import FORMAT, Format, show
from layerscope.cli.record import OUT, leave, writable, write_table
from layerscope.errors import InputError, check_seed

if TYPE_CHECKING:
    from layerscope.data import Examples, Task
    from layerscope.models import Model

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
    strategy: str | None = typer.Option(
        None, help="(bottom, top, head), full (the default), head-only, top-3, freeze-bottom-6, .."
    ),
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
    from layerscope.analysis import training_costs, tuning
    from layerscope.team import Team

    _check(strategy, method, size, seed, seeds, study)
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
        settings = {"preset": preset, "seeds": chosen, "best": best}
        _study(opened, data, method, out, format, f"Strategies for {model} on {task}", settings, given)
        return
    strategy = strategy or "full"
    _check_free(out, chosen)  # before the work, not after it
    job = tuning.plan(opened, data, strategy, method, preset, best, size, options)
    if format is Format.table and Team.current().is_main:
        cost = {"strategy": str(job.strategy), **training_costs.costs(opened, data, job.strategy, job.method)}
        show([cost], format, "What is trained, and what it costs")
    found = tuning.run(job, chosen)
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


def _check(strategy: str | None, method: str, size: int | None, seed: int, seeds: int | None, study: bool) -> None:
    """Raise a sentence where two options do not go together."""
    check_seed(seed)
    if seeds is not None and seeds < 1:
        raise InputError(f"--seeds is {seeds}; at least 1 is needed.")
    if seeds is not None and seed:
        raise InputError(
            f"Both --seed {seed} and --seeds {seeds} were given; --seeds counts from 0, so give one of them."
        )
    if study and (strategy is not None or size is not None):
        raise InputError(
            "--study trains every strategy of the papers with its methods' usual sizes; leave out --strategy "
            "and --size, or --study."
        )
    if "," in method and not study:
        raise InputError(f"Several methods were given ({method}), which is a study; give one, or --study.")


def _check_free(out: Path | None, seeds: Sequence[int]) -> None:
    """Raise a sentence if the runs cannot be put where they are wanted."""
    from layerscope.store import check_free
    from layerscope.tuning.training import RESULT

    for one in [] if out is None else [out] if len(seeds) == 1 else [out / f"seed-{k}" for k in seeds]:
        check_free(one, RESULT)


def _study(
    model: Model,
    data: Task,
    method: str,
    out: Path | None,
    format: Format,
    title: str,
    settings: dict[str, Any],
    given: dict[str, Any],
) -> None:
    """Train every strategy of the papers, and show and keep what came out."""
    import layerscope as ls
    from layerscope.team import Team

    methods = names(method, "method")
    frame = ls.strategy_study(model, data, methods=methods, **settings, **given)
    if not Team.current().is_main:
        return
    show(frame.to_dict("records"), format, title)
    if out is not None:
        from layerscope.report import pictures

        out.mkdir(parents=True, exist_ok=True)
        write_table(frame, out / "strategies.csv")
        ls.plot_strategies(frame, out / "strategies.png")
        about = {"methods": methods, **settings, **given}
        leave(out, "study", title, pictures.study(frame), models=[model], examples=_training(data), **about)


def _training(data: Task) -> Examples:
    from layerscope.extract.run import examples_of

    return examples_of(data, None, None, learning=True)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{text!r} is no learning rate; write 2e-5, or several with commas.") from None
