"""`layerscope specialty`"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from layerscope.cli import console
from layerscope.cli.command import Given, command
from layerscope.cli.console import FORMAT, Format, show
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
        "layerscope specialty demo:minilm --task pydocs --measures label_cca,numerical_rank",
    ],
)
def specialty(given: Given, out: Path | None = OUT, format: Format = FORMAT) -> None:
    """Recommend which layers to tune for a task, before any training: nu and probes of every layer, and l*."""
    choice = given.call("recommend")
    model, task = given["model"], given["task"]
    if choice.command:  # with the names and columns that were given
        words = ["layerscope", "tune", model, "--task", task, *given.columns, "--strategy", choice.strategy]
        choice = replace(choice, command=shlex.join(words))
    if format is Format.json:
        more = [each.frame.assign(experiment=name) for name, each in choice.experiments.items()]
        show([row for part in [choice.frame, *more] for row in part.to_dict("records")], format)
    else:
        title = f"nu of {model} on {task}; it cannot be tuned, so no strategy is advised"
        if choice.command:
            title = (
                f"nu of {model} on {task}; l*, the layer of the least nu above 0, is {choice.best}. null: median nu "
                "with permuted labels; ratio: nu over null; p: share of labellings with a nu as low in that layer"
            )
        show(choice.frame.to_dict("records"), format, title)
        if choice.strategies is not None:
            show(
                choice.strategies.frame.to_dict("records"),
                format,
                f"Strategies around l* = {choice.best}, and the recommended one; multiply-adds are per token",
            )
        for name, each in choice.experiments.items():
            show(each.settings.to_dict("records"), format, f"{name}: {_ROUGHNESS}")
        print(choice)
    title = f"Which layers of {model} to tune for {task}"
    keep(out, "specialty", title, {"specialty": choice, **choice.measures, **choice.experiments})
