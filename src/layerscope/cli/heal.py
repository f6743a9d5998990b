"""`layerscope heal`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.cli import helptext
from layerscope.cli.options import COLUMNS, Columns, Data, Given, integers, with_columns
from layerscope.cli.output import FORMAT, Format, show
from layerscope.cli.record import keep, writable
from layerscope.errors import InputError
from layerscope.tuning.registry import METHODS

if TYPE_CHECKING:
    from layerscope.cutting.plan import LayerPlan
    from layerscope.models import Model

PLACE = 65  # in the help text
PANEL = helptext.LOSE
_OUT = typer.Option(None, "--out", "-o", callback=writable, help="Put the healed checkpoint and a record here.")


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Example:  `layerscope heal path/to/llama --without 13-19,27 --task corpus.txt -o healed`  \n"
        "`layerscope heal path/to/classifier --without 4-6 --task sst2 --distill -o healed`"
    )(heal)


@with_columns
def heal(
    model: str = Given.any_model,
    without: str | None = typer.Option(
        None, "--without", help="The blocks to leave out: 13-19,27. If not given, the model is one that was cut before."
    ),
    task: str = Data.task,
    method: str = typer.Option("lora", help=f"{', '.join(METHODS)}; those that cannot be merged are refused."),
    strategy: str | None = typer.Option(
        None, help='Which of the blocks that are left are trained: all, or "(L-2, L, L)", top-3, ..'
    ),
    size: int | None = typer.Option(None, help="The rank of LoRA; 16 if not given."),
    distill: bool = typer.Option(False, "--distill", help="Learn from the uncut model's whole distribution too."),
    teacher: str | None = typer.Option(None, help="A model to learn from in place of the uncut one."),
    mix: float | None = typer.Option(
        None, help="The teacher's share of the loss, above 0 and at most 1; 0.5 if not given."
    ),
    distance: str = typer.Option("cosine", help="How far embeddings are from the uncut model's: cosine or mse."),
    keep_teacher: int | None = typer.Option(
        None, help="Run the teacher once and keep its N likeliest outputs at every token."
    ),
    steps: int | None = typer.Option(None, help="How many steps; 300 on running text, else three epochs."),
    epochs: float | None = typer.Option(None, help="Passes over the texts, instead of steps."),
    learning_rate: float | None = typer.Option(None, help="1e-3 for LoRA and 2e-4 for finetune on running text."),
    batch: int | None = typer.Option(None, help="Texts or windows per step; 16 if not given."),
    accumulate: int | None = typer.Option(None, help="Add up the gradients of N steps."),
    warmup: float | None = typer.Option(None, help="Warm-up: a share of the steps, or a number of steps."),
    schedule: str | None = typer.Option(None, help="linear, cosine, constant or constant_with_warmup."),
    weight_decay: float | None = typer.Option(None, help="Weight decay of the optimizer."),
    max_length: int | None = typer.Option(None, help="Tokens of a window or text: 512 of running text, else 128."),
    evaluate_every: int | None = typer.Option(None, help="Evaluate on held-out texts every N steps."),
    bf16: bool | None = typer.Option(
        None, "--bf16/--no-bf16", help="Mixed precision; on by default where a GPU has it."
    ),
    checkpointing: bool = typer.Option(
        False, "--checkpointing", help="Gradient checkpointing: less memory, more time."
    ),
    no_cache: bool = typer.Option(False, "--no-cache", help="Run frozen blocks in every epoch."),
    report_to: str | None = typer.Option(
        None,
        "--report-to",
        help="The Trainer's trackers: tensorboard, wandb, trackio, mlflow; several, separated by commas.",
    ),
    train_limit: int | None = typer.Option(None, help="Use only the first N texts, or windows of running text."),
    validation_limit: int | None = typer.Option(
        None, help="Use only the first N held-out texts; 64 windows of running text if not given."
    ),
    metric: str | None = typer.Option(None, help="Another metric than the task's own."),
    seed: int = typer.Option(0, help="Decides LoRA's initial weights, the order of rows and dropout."),
    device: str | None = Given.device,
    dtype: str = Given.dtype,
    columns: Columns = COLUMNS,
    out: Path | None = _OUT,
    format: Format = FORMAT,
) -> None:
    """Cut a model, train what is left for a short while, save it, and show its score before and after.

    A language model learns from running text, a classifier from labels or from the uncut model's answers, an embedding
    model from the uncut model's embeddings.
    """
    import layerscope as ls
    from layerscope.models.lineage import RECORD
    from layerscope.store import atomic_folder, check_free
    from layerscope.team import Team
    from layerscope.tuning.healing import plan_healing

    if out is not None:
        check_free(out, RECORD)
    data = columns.open(task)
    opened = ls.load(model, device=device, dtype=dtype)
    taught = None if teacher is None else ls.load(teacher, device=device, dtype=dtype)
    options: dict[str, Any] = {
        "learning_rate": learning_rate,
        "epochs": epochs,
        "batch": batch,
        "accumulate": accumulate,
        "warmup": warmup,
        "schedule": schedule,
        "weight_decay": weight_decay,
        "max_length": max_length,
        "evaluate_every": evaluate_every,
        "bf16": bf16,
        "checkpointing": checkpointing or None,
        "cache": False if no_cache else None,
        "report_to": report_to,
        "train_limit": train_limit,
        "validation_limit": validation_limit,
    }
    healing = plan_healing(
        opened,
        None if without is None else plan_without(opened, without),
        data,
        method=method,
        strategy=strategy,
        size=size,
        teacher=taught,
        distill=distill,
        mix=mix,
        distance=distance,
        keep_teacher=keep_teacher,
        steps=steps,
        metric=metric,
        seed=seed,
        **{name: value for name, value in options.items() if value is not None},
    ).produce()
    if not Team.current().is_main:
        return
    title = f"{healing.outcome['model']} healed on {task}"
    show(healing.frame.to_dict("records"), format, f"{title}, {healing.metric} on held-out texts")
    if format is Format.table:
        print("\n".join(healing.findings()))
    if out is not None:
        with atomic_folder(out, RECORD) as staging:  # both or neither
            healing.write(staging)
            about: dict[str, Any] = {
                "without": without,
                "method": method,
                "strategy": strategy,
                "distill": distill or None,
            }
            keep(staging, "heal", title, {"healing": healing}, tables=False, final=out, **about)
    if format is Format.table:
        kept = (
            "The checkpoint is kept in the store; the same command with -o FOLDER copies it, and trains nothing again."
        )
        print(kept if out is None else f"Saved in {out}, reopened and compared.")


def plan_without(model: Model, blocks: str) -> LayerPlan:
    """The plan that leaves some blocks out."""
    from layerscope.cutting.plan import LayerPlan

    gone = integers(blocks)
    if wrong := [block for block in gone if not 1 <= block <= model.depth]:
        raise InputError(f"Block {wrong[0]} was to be left out; {model.name} has blocks 1..{model.depth}.")
    return LayerPlan([block for block in range(1, model.depth + 1) if block not in gone])
