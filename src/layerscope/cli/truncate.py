"""`layerscope truncate`"""

from __future__ import annotations

from pathlib import Path

import typer

from layerscope.cli import console
from layerscope.cli.command import Given, command
from layerscope.cli.console import FORMAT, Format, show_scores
from layerscope.cli.options import PRINT_AS, PUBLIC, PUSH_TO_HUB, SAVE
from layerscope.cli.record import OUT, keep
from layerscope.cli.saving import check_publishing, cut_and_save
from layerscope.errors import InputError, choose

_TITLES = {
    "untuned": "The head of {model} on every layer, nothing trained",
    "patched": "The head of {model} on every layer, nothing trained, what each cut takes away solved for",
    "tuned": "The head of {model}, trained further on every layer",
    "tunedorig": "A new head, trained on every layer of {base}",
}


@command(
    {"--curve": "truncation_curve", "--keep": "cut_study"},
    panel=console.LOSE,
    examples=[
        "layerscope truncate path/to/classifier --task sst2 --curve -o out",
        "layerscope truncate path/to/classifier --task sst2 --curve --mode tunedorig --base path/to/untuned",
        "layerscope truncate path/to/classifier --task sst2 --keep 8 --save smaller",
        "layerscope truncate path/to/classifier --task sst2 --keep 8 --patch texts.txt --save smaller",
        "layerscope truncate path/to/classifier --task sst2 --curve --mode untuned,patched,tuned -o out",
        "layerscope truncate path/to/language-model --task wikitext --curve",
    ],
    left_out={"plan": "it is --keep"},
)
def truncate(
    given: Given,
    keep_: int | None = typer.Option(None, "--keep", help="Keep the first N blocks; the head reads the last of them."),
    curve: bool = typer.Option(False, "--curve", help="Put the head on every layer in turn."),
    save: Path | None = SAVE,
    push_to_hub: str | None = PUSH_TO_HUB,
    public: bool = PUBLIC,
    print_as: str | None = PRINT_AS,
    out: Path | None = OUT,
    format: Format = FORMAT,
) -> None:
    """Cut the top blocks off a model and evaluate what is left: one depth, or the curve of all.

    The curve of a language model is its logit lens. With --keep, --save and --print-as need no task: then the
    checkpoint is cut on disk, and the network never built.
    """
    check_publishing(push_to_hub, public, save)
    if (keep_ is None) != curve:
        raise InputError("Give either --keep K, to cut there, or --curve, to see what every cut costs.")
    if save is not None and curve:
        raise InputError("--save needs --keep K: which of the curve's models is to be saved?")
    if print_as is not None and curve:
        raise InputError("--print-as needs --keep K: which of the curve's plans is to be printed?")
    mode, base = given["mode"] or "untuned", given["base"]
    modes = [name.strip() for name in mode.split(",")]
    for name in modes:
        choose("mode", name, _TITLES)
    if mode == "patched" and not curve:
        raise InputError("--mode patched is a curve; give --curve, or, to patch this one cut, --patch TEXTS.")
    if mode != "untuned" and not curve:
        raise InputError(f"--mode {mode} trains a head on every layer, which is a curve; give --curve, not --keep.")
    if (base is not None) != ("tunedorig" in modes):
        raise InputError("--base, the untuned model, belongs to --mode tunedorig, which needs it.")
    if keep_ is not None:
        cut_and_save(given, f"first {keep_}", save, (push_to_hub, public), print_as, out, format)
        return
    for name in ("learning_rate", "epochs", "max_steps", "batch", "warmup", "seed", "train_limit"):
        if name in given and not {"tuned", "tunedorig"} & set(modes):
            option = f"--{name.replace('_', '-')}"
            raise InputError(
                f"{option} is for heads that are trained (--mode tuned or tunedorig); {mode} trains nothing."
            )
    given.require_task()
    truncation = given.call("truncation_curve")
    shown = _TITLES[mode] if len(modes) == 1 else "The head of {model} on every layer, in several ways"
    show_scores(truncation.frame, format, shown.format(model=given.label("model"), base=given.label("base")))
    title = f"{given.label('model')} on {given['task']}: the head on every layer ({mode})"
    keep(out, "truncate", title, {"truncation": truncation})
