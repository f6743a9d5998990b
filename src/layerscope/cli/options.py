"""Options of the terminal that several commands share: what to save, where to publish it, how to print a plan."""

from __future__ import annotations

from typing import Any

import typer

from layerscope.drawing.captions import listed
from layerscope.errors import InputError

SAVE = typer.Option(None, "--save", help="Save the smaller model in this folder, reopened and compared.")
PUSH_TO_HUB = typer.Option(
    None, "--push-to-hub", help="Upload what is saved to this repository on the hub (org/name), private by default."
)
PUBLIC = typer.Option(False, "--public", help="With --push-to-hub: everyone may read it.")
PRINT_AS = typer.Option(None, "--print-as", help="Print the plan in the format of another tool: mergekit or llama.cpp.")
START = typer.Option(
    "linear", "--start", help="For inn and mlp: linear starts from the linear map, plain from nothing."
)


def aligner_options(methods: list[str] | None, start: str, pad: bool = False) -> dict[str, dict[str, Any]]:
    """The options of alignment methods that `--start` and `--pad` stand for; an error where no method has them."""
    wanted: dict[str, Any] = ({"start": start} if start != "linear" else {}) | ({"pad": True} if pad else {})
    if not wanted:
        return {}

    from layerscope.alignment.aligner import with_option

    options: dict[str, dict[str, Any]] = {}
    for option, value in wanted.items():
        able = with_option(option)
        chosen = [name for name in able if methods is None or name in methods]
        if not chosen:
            given = f"--{option}" if value is True else f"--{option} {value}"
            raise InputError(f"{given} is for {listed(able)}, and only {listed(methods or ())} was asked for.")
        for name in chosen:
            options.setdefault(name, {})[option] = value
    return options
