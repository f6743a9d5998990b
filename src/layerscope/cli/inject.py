"""`layerscope inject`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from layerscope.cli import console
from layerscope.cli.command import Given, command, names
from layerscope.cli.console import FORMAT, Format, show
from layerscope.cli.options import START, aligner_options
from layerscope.cli.record import OUT, keep

if TYPE_CHECKING:
    from pandas import Series


@command(
    "injection_study",
    panel=console.STAND,
    examples=["layerscope inject path/to/a path/to/b --task sst2 --layers all -o out"],
    left_out={"options": "--start is the one that is usual"},
)
def inject(given: Given, start: str = START, out: Path | None = OUT, format: Format = FORMAT) -> None:
    """Test whether one model works on another's states: replace a layer of TARGET by SOURCE's, mapped, and score it."""
    methods = None if given["methods"] is None else names(given["methods"], "method")
    study = given.call("injection_study", methods=methods, options=aligner_options(methods, start))
    source, target = given.label("source"), given.label("target")
    title = f"{source} in the place of {target} on {given['task']}"
    kept = ["layer", "method", "score", "low", "high"] if format is Format.table else list(study.frame)
    show(study.frame[kept].to_dict("records"), format, title)
    if format is Format.table:
        first = study.frame.iloc[0]
        print(
            f"{first['metric']} of {source} alone {_spelled(first, 'source')}, of {target} alone "
            f"{_spelled(first, 'target')}, of the most frequent class {first['majority']:.4f} ({first['n']} texts; "
            "intervals of 95 % over texts)."
        )
    keep(out, "inject", title, {"injection": study}, start=start)


def _spelled(row: Series, side: str) -> str:
    """A score with its interval."""
    return f"{row[f'{side}_score']:.4f} ({row[f'{side}_low']:.4f} to {row[f'{side}_high']:.4f})"
