"""`layerscope specialty`"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from layerscope.cli import console
from layerscope.cli.command import Given, command
from layerscope.cli.console import FORMAT, Format, answer, show
from layerscope.cli.record import OUT, keep

_ROUGHNESS = (
    "zeta is how rough nu is (the sum of squared second differences of its z-scored values over layers, 0 for a "
    "straight line), rho its correlation with the probes over layers"
)


@command(
    "recommend",
    panel=console.TUNE,
    examples=[
        "layerscope specialty demo:minilm --task pydocs --limit 500 -o out",
        "layerscope specialty demo:minilm --task pydocs --measures logme,label_cca",
    ],
)
def specialty(given: Given, out: Path | None = OUT, format: Format = FORMAT) -> None:
    """Recommend which layers to tune for a task, before any training: PRESS, nu and probes of every layer, and l*."""
    choice = given.call("recommend")
    model, task, called = given["model"], given["task"], given.label("model")
    if choice.command:  # with the names and columns that were given
        words = ["layerscope", "tune", model, "--task", task, *given.columns, "--strategy", choice.strategy]
        choice = replace(choice, command=shlex.join(words))
    picked = {"layer": choice.layer, "best": choice.best, "strategy": choice.strategy or None}
    answer().choice = {**picked, "next": choice.command or None}
    if format is Format.json:
        show(choice.frame.to_dict("records"), format)
        for name, each in choice.experiments.items():
            show(each.frame.to_dict("records"), format, name=name)
    else:
        title = (
            f"PRESS and nu of {called} on {task}. press: R² of a linear map to the labels with every text left out in "
            "turn, 0 where the layer says nothing of them"
        )
        if choice.best is not None:
            title += (
                f"; l*, the layer of the least nu above 0, is {choice.best}. null: median nu with permuted labels; "
                "ratio: nu over null; p: share of labellings with a nu as low in that layer. nu depends on how many "
                "rows there are beside the width, so compare it within this table only"
            )
        show(choice.frame.to_dict("records"), format, title)
        if choice.strategies is not None:
            show(
                choice.strategies.frame.to_dict("records"),
                format,
                f"Strategies around l* = {choice.best}, and for the recommended layer and those that tie with it; "
                "multiply-adds are per token",
            )
        for name, each in choice.experiments.items():
            show(each.settings.to_dict("records"), format, f"{name}: {_ROUGHNESS}")
        print(choice)
    title = f"Which layers of {called} to tune for {task}"
    keep(out, "specialty", title, {"specialty": choice, **choice.measures, **choice.experiments})
