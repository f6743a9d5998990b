"""`layerscope tune` and `layerscope strategies`"""

from __future__ import annotations

from pathlib import Path

import typer

from layerscope.cli import console
from layerscope.cli.command import Given, command
from layerscope.cli.console import FORMAT, Format, answer, show
from layerscope.cli.options import PUBLIC, PUSH_TO_HUB
from layerscope.cli.record import OUT, keep, writable
from layerscope.cli.saving import check_publishing, publish
from layerscope.errors import InputError

_COSTS = "What is trained, and what it costs in multiply-adds per token (cached: once the frozen blocks have run)"
_OUT = typer.Option(None, "--out", "-o", callback=writable, help="Put the checkpoint and a record here.")


@command(
    {"one training": "tune", "--study": "strategy_study"},
    panel=console.TUNE,
    examples=['layerscope tune demo:minilm --task pydocs --strategy "(4, 6, L)" --epochs 2 -o tuned'],
    left_out={"out": "it is -o"},
    float32=lambda given: True,
)
def tune(
    given: Given,
    study: bool = typer.Option(False, "--study", help="Every strategy of the papers instead of one."),
    out: Path | None = _OUT,
    push_to_hub: str | None = PUSH_TO_HUB,
    public: bool = PUBLIC,
    format: Format = FORMAT,
) -> None:
    """Train a model on a task: all of it, some blocks, adapters, or a head on a lower layer. Frozen blocks run once."""
    from layerscope.distributed import Team

    if study and (given["strategy"] is not None or given["size"] is not None):
        raise InputError(
            "--study trains every strategy of the papers with its methods' usual sizes; leave out --strategy "
            "and --size, or --study."
        )
    if "," in (given["method"] or ""):
        raise InputError(
            f"Several methods were given ({given['method']}), which is a study; give one, or --study and --methods."
        )
    if push_to_hub is not None and (study or given["seeds"] not in (None, "1")):
        raise InputError(
            "--push-to-hub puts one training on the hub, and several were asked for; push one with ls.push."
        )
    check_publishing(push_to_hub, public, out, "-o")
    if study:
        result = given.call("strategy_study", seeds=None if "seeds" in given else [0])
        if not Team.current().is_main:
            return
        title = f"Strategies for {given.label('model')} on {given.task.name}"
        show(result.frame.to_dict("records"), format, title)
        if format is Format.table:
            print("\n".join(map(str, result.findings())))
        keep(out, "study", title, {"strategies": result})
        return
    _train(given, out, format)
    if out is not None and Team.current().is_main:
        publish(out, push_to_hub, public, format)


def _train(given: Given, out: Path | None, format: Format) -> None:
    """Train with one seed or several, show what came out, and copy the checkpoints and a record to `out`."""
    from layerscope.distributed import Team
    from layerscope.store import atomic_folder
    from layerscope.tuning.training import Training, Trainings
    from layerscope.tuning.training_job import RESULT
    from layerscope.tuning.tune import folders_for

    if out is not None and "seeds" not in given:
        folders_for(given["model"], out)  # whether it can be written is checked before the work
    done = given.call("tune")
    if not Team.current().is_main:
        return
    trainings = Trainings([done], given["strategy"] or "full") if isinstance(done, Training) else done
    if format is Format.table:
        show(trainings.cost.frame.to_dict("records"), format, _COSTS)
    table = trainings.frame.drop(columns="metric")
    show(
        table.to_dict("records"), format, f"{given.label('model')} on {given['task']}, {trainings.metric} on validation"
    )
    if format is Format.table and len(trainings.trainings) > 1:
        print("\n".join(map(str, trainings.findings())))
    first = trainings.trainings[0].job
    settings = {"strategy": given["strategy"] or "full", "method": first.method.name, "preset": given["preset"]}
    title = f"{given.label('model')} tuned on {given['task']}, {first.strategy}"
    seeds = [training.job.seed for training in trainings.trainings]
    folders = [] if out is None else folders_for(given["model"], out, seeds if len(seeds) > 1 else None)
    if folders == [out]:
        with atomic_folder(folders[0], RESULT) as staging:  # both or neither
            trainings.trainings[0].write(staging)
            keep(staging, "tune", title, {"trainings": trainings}, tables=False, final=out, **settings)
    else:
        for training, folder in zip(trainings.trainings, folders, strict=False):
            training.copy_to(folder)
        more = [folder.name for folder in folders]
        keep(out, "tune", title, {"trainings": trainings}, more=more, **settings)
    answer().choice = {"strategy": str(first.strategy), "method": first.method.name, "seeds": seeds}
    answer().saved = {"folder": str(out), "checkpoints": [str(folder) for folder in folders]} if folders else None
    if format is Format.table:
        kept = (
            "The checkpoint is kept in the store; the same command with -o FOLDER copies it, and trains nothing again."
        )
        print(kept if out is None else f"Saved in {out}.")


@command(
    "strategies",
    panel=console.TUNE,
    examples=["layerscope strategies demo:minilm --task pydocs --specialty-layer 4"],
)
def strategies(given: Given, out: Path | None = OUT, format: Format = FORMAT) -> None:
    """List the papers' strategies for a model, with what each would train and cost; nothing is trained."""
    table = given.call("strategies")
    show(table.frame.to_dict("records"), format, f"Strategies for {given.label('model')}; multiply-adds are per token")
    keep(out, "strategies", f"Strategies for {given.label('model')} on {given['task']}", {"costs": table})
