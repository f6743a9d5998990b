"""`layerscope tune` and `layerscope strategies`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.cli import helptext
from layerscope.cli.options import COLUMNS, Columns, Data, Given, Publishing, names, with_columns
from layerscope.cli.output import FORMAT, Format, show
from layerscope.cli.publishing import check_publishing, publish
from layerscope.cli.record import OUT, keep, writable
from layerscope.errors import InputError, check_seed, log
from layerscope.tuning.registry import METHODS

if TYPE_CHECKING:
    from layerscope.data import Task
    from layerscope.models import Model
    from layerscope.tuning.training import Trainings

PLACE = 80  # in the help text
PANEL = helptext.TUNE
_COSTS = "What is trained, and what it costs in multiply-adds per token (cached: once the frozen blocks have run)"
_BEST = typer.Option(
    None, "--best", help="l*, the layer of the task's specialty; if not given, a pass over the training split finds it."
)
_METHOD = typer.Option("finetune", help=f"{', '.join(METHODS)}; several, separated by commas, for a study.")
_OUT = typer.Option(None, "--out", "-o", callback=writable, help="Put the checkpoint and a record here.")


def register(app: typer.Typer) -> None:
    app.command(
        epilog='Example:  `layerscope tune demo:minilm --task pydocs --strategy "(4, 6, L)" --epochs 2 -o tuned`'
    )(tune)
    app.command(epilog="Example:  `layerscope strategies demo:minilm --task pydocs --best 4`")(strategies)


@with_columns
def tune(
    model: str = Given.any_model,
    task: str = Data.task,
    strategy: str | None = typer.Option(
        None, help="(bottom, top, head), full (the default), head-only, top-3, freeze-bottom-6, .."
    ),
    method: str = _METHOD,
    preset: str | None = typer.Option(None, help="phang2021, wu2020 or xie2022: the papers' hyperparameters."),
    best: int | None = _BEST,
    size: int | None = typer.Option(None, help="Adapter width, LoRA rank, or number of virtual tokens."),
    metric: str | None = typer.Option(None, help="Another metric than the task's own: accuracy, f1, matthews, .."),
    seed: int = typer.Option(0, help="Decides the new head, the order of rows and dropout."),
    seeds: int | None = typer.Option(
        None, help="Train with N seeds (0, 1, ..); gives the mean and its standard error."
    ),
    learning_rate: str | None = typer.Option(
        None, help="One, or several (1e-5,3e-5): the one with the best mean over seeds is kept."
    ),
    epochs: float | None = typer.Option(None, help="Passes over the training split."),
    max_steps: int | None = typer.Option(None, help="How many steps, instead of epochs."),
    batch: int | None = typer.Option(None, help="Texts per step."),
    accumulate: int | None = typer.Option(None, help="Add up the gradients of N steps."),
    warmup: float | None = typer.Option(None, help="Warm-up: a share of the steps, or a number of steps."),
    max_length: int | None = typer.Option(None, help="Longest text in tokens."),
    patience: int | None = typer.Option(None, help="Stop after N epochs without a better score."),
    bf16: bool = typer.Option(False, "--bf16", help="Mixed precision."),
    no_cache: bool = typer.Option(False, "--no-cache", help="Run frozen blocks in every epoch."),
    train_limit: int | None = typer.Option(None, help="Use only the first N training examples."),
    validation_limit: int | None = typer.Option(None, help="Use only the first N validation examples."),
    study: bool = typer.Option(False, "--study", help="Every strategy of the papers instead of one."),
    engine: str = typer.Option(
        "local", "--engine", help="Where several trainings run, each a job: local, processes:N, ray or ray:ADDRESS."
    ),
    device: str | None = Given.device,
    dtype: str = Given.dtype,
    columns: Columns = COLUMNS,
    out: Path | None = _OUT,
    push_to_hub: str | None = Publishing.push_to_hub,
    public: bool = Publishing.public,
    format: Format = FORMAT,
) -> None:
    """Train a model on a task: all of it, some blocks, adapters, or a head on a lower layer. Frozen blocks run once."""
    import layerscope as ls
    from layerscope.engine import check_engine
    from layerscope.store import atomic_folder
    from layerscope.team import Team
    from layerscope.tuning.cards import RESULT
    from layerscope.tuning.tuning import folders_for, plan_tuning

    _check(strategy, method, size, seed, seeds, study)
    if push_to_hub is not None and (study or (seeds or 1) > 1):
        raise InputError(
            "--push-to-hub puts one training on the hub, and several were asked for; push one with ls.push."
        )
    check_publishing(push_to_hub, public, out, "-o")
    check_engine(engine)
    if engine != "local" and not study and (seeds or 1) == 1 and "," not in (learning_rate or ""):
        raise InputError(
            f"--engine {engine} spreads several trainings, and this is one; give --study, --seeds or several learning "
            "rates, or leave --engine out."
        )
    options: dict[str, Any] = {
        "learning_rate": None if learning_rate is None else [_number(part) for part in learning_rate.split(",")],
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
    data = columns.open(task).with_metric(metric)
    opened = ls.load(model, device=device, dtype=dtype)
    chosen = list(range(seeds)) if seeds is not None else [seed]
    if study:
        _study(
            opened,
            data,
            names(method, "method"),
            out,
            format,
            preset=preset,
            seeds=chosen,
            best=best,
            engine=engine,
            **given,
        )
        return
    folders = [] if out is None else folders_for(out, chosen if len(chosen) > 1 else None)  # before the work
    about: dict[str, Any] = {"strategy": strategy or "full", "method": method, "preset": preset}
    plan = plan_tuning(opened, data, **about, best=best, size=size, **given)
    if format is Format.table and Team.current().is_main:
        show(plan.cost.frame.to_dict("records"), format, _COSTS)
    trainings = plan.produce(chosen, engine)
    if not Team.current().is_main:
        return
    table = trainings.frame.drop(columns="metric")
    show(table.to_dict("records"), format, f"{model} on {task}, {trainings.metric} on validation")
    _note_floor(trainings)
    if format is Format.table and len(chosen) > 1:
        print(trainings.findings()[0])
    title = f"{model} tuned on {task}, {plan.strategy}"
    if folders == [out]:
        with atomic_folder(folders[0], RESULT) as staging:  # both or neither
            trainings.trainings[0].write(staging)
            keep(staging, "tune", title, {"trainings": trainings}, tables=False, final=out, **about)
    else:
        for training, folder in zip(trainings.trainings, folders, strict=False):
            training.copy_to(folder)
        more = [folder.name for folder in folders]
        keep(out, "tune", title, {"trainings": trainings}, more=more, **about)
    if format is Format.table:
        kept = (
            "The checkpoint is kept in the store; the same command with -o FOLDER copies it, and trains nothing again."
        )
        print(kept if out is None else f"Saved in {out}.")
    if out is not None:
        publish(out, push_to_hub, public, format)


@with_columns
def strategies(
    model: str = Given.any_model,
    task: str = Data.task,
    best: int | None = _BEST,
    method: str = _METHOD,
    device: str | None = Given.device,
    dtype: str = Given.dtype,
    columns: Columns = COLUMNS,
    out: Path | None = OUT,
    format: Format = FORMAT,
) -> None:
    """List the papers' strategies for a model, with what each would train and cost; nothing is trained."""
    import layerscope as ls

    table = ls.strategies(ls.load(model, device=device, dtype=dtype), columns.open(task), best=best, method=method)
    show(table.frame.to_dict("records"), format, f"Strategies for {model}; multiply-adds are per token")
    keep(out, "strategies", f"Strategies for {model} on {task}", {"costs": table})


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


def _note_floor(trainings: Trainings) -> None:
    """Say where a training has learned nothing that its score shows, before its model is cut or compared."""
    guess = trainings.trainings[0].majority
    if trainings.mean <= guess:
        log.warning(
            "%s is %.4f, no better than always giving the most frequent class (%.4f): train on more texts or for "
            "longer, or try other learning rates.",
            *(trainings.metric, trainings.mean, guess),
        )


def _study(model: Model, data: Task, methods: list[str], out: Path | None, format: Format, **settings: Any) -> None:
    """Train every strategy of the papers, and show and keep what came out."""
    import layerscope as ls
    from layerscope.team import Team

    result = ls.strategy_study(model, data, methods=methods, **settings)
    if not Team.current().is_main:
        return
    title = f"Strategies for {model.name} on {data.name}"
    show(result.frame.to_dict("records"), format, title)
    if format is Format.table:
        print("\n".join(result.findings()))
    keep(out, "study", title, {"strategies": result})


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{text!r} is not a learning rate; write 2e-5, or several with commas.") from None
