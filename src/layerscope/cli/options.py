"""Options that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from layerscope.errors import InputError

if TYPE_CHECKING:
    from layerscope.data import Task


class Data:
    """What names a data set on the command line."""

    task = typer.Option(..., "--task", help="A task of the registry (layerscope tasks), a file, a folder or a hub id.")
    split = typer.Option(None, "--split", help="validation if there is one, else the only split.")
    text = typer.Option(None, "--text", help="The column with the text.")
    text_pair = typer.Option(None, "--text-pair", help="The column with the second text.")
    label = typer.Option(None, "--label", help="The column with the label.")
    choices = typer.Option(None, "--choices", help="The column with a list of choices, or several, with commas.")
    config = typer.Option(None, "--config", help="The configuration of a hub data set.")
    skip_bad = typer.Option(False, "--skip-bad", help="Leave bad rows out and count them instead of stopping.")


class Run:
    """Which model, on how much data, where."""

    model = typer.Argument(help="A classifier checkpoint: a folder, a hub id or id@revision.")
    any_model = typer.Argument(
        help="A checkpoint: a folder, a hub id, id@revision, garden:<name> or random:<any of these>."
    )
    limit = typer.Option(None, "--limit", help="Only the first so many examples.")
    max_length = typer.Option(None, "--max-length", help="Longest text in tokens; the model's limit, at most 512.")
    device = typer.Option(None, "--device", help="cpu, cuda or cuda:1; the first GPU where there is one.")
    save = typer.Option(None, "--save", help="Save the smaller model in this folder, reopened and compared.")


def open_task(
    source: str,
    text: str | None,
    text_pair: str | None,
    label: str | None,
    choices: str | None,
    config: str | None,
    skip_bad: bool,
) -> Task:
    """The task that the options of `Data` name."""
    import layerscope as ls

    columns = choices.split(",") if choices and "," in choices else choices
    return ls.task(
        source, text=text, text_pair=text_pair, label=label, choices=columns, config=config, skip_bad=skip_bad
    )


def shares(text: str) -> list[float]:
    """`0.5,0.25,0.1`."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{text!r} is not a list of shares; write 0.5,0.25,0.1.") from None


def integers(text: str) -> list[int]:
    """`0,3,6` or `0-6` (inclusive) or both."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise InputError(f"{text!r} is not a list of numbers; write 0,3,6 or 0-6.")
        if dash and int(last) < int(first):
            raise InputError(f"{part.strip()!r} runs backwards; write {last}-{first}.")
        found += range(int(first), int(last if dash else first) + 1)
    return found
