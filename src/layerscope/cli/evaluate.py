"""`layerscope evaluate`"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from layerscope.cli.options import COLUMNS, Columns, Data, Given, with_columns
from layerscope.cli.output import FORMAT, Format, show
from layerscope.cli.record import OUT, keep

PLACE = 30  # in the help text


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Example:  `layerscope evaluate path/to/classifier --task sst2`  \n"
        "`layerscope evaluate path/to/language-model --task wikitext --split test --dtype bfloat16`  \n"
        "`layerscope evaluate demo:minilm --task stsb`"
    )(evaluate)


@with_columns
def evaluate(
    model: str = Given.model,
    task: str = Data.task,
    split: str | None = Data.split,
    metric: str | None = typer.Option(
        None, help="Another metric than the task's own: accuracy, f1, matthews, bits_per_byte, acc_norm, .."
    ),
    limit: int | None = Given.limit,
    max_length: int | None = Given.max_length,
    all_rows: bool = Given.all_rows,
    device: str | None = Given.device,
    dtype: str = Given.dtype,
    columns: Columns = COLUMNS,
    out: Path | None = OUT,
    format: Format = FORMAT,
) -> None:
    """The score of a model on a task that goes with its head.

    Classifiers by the task's metric, beside that of always giving the most frequent class; language models by the
    perplexity of running text or the likelihood of choices; taggers by words; embedding models on scored pairs.
    """
    import layerscope as ls

    opened, data = ls.load(model, device=device, dtype=dtype), columns.open(task)
    rows: dict[str, Any] = {"split": split, "limit": limit, "all_rows": all_rows}
    score = ls.evaluate(opened, data, **rows, max_length=max_length, metric=metric)
    # Of classes the task's own metric is shown, and no other; of tokens all there is.
    beside = () if "nll" in score.metrics else ("accuracy", "f1", "matthews")
    kept = {name: value for name, value in score.row.items() if name not in beside}
    show([kept], format)
    keep(out, "evaluate", f"{model} on {task}", {"score": score})
