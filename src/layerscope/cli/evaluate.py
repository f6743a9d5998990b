"""`layerscope evaluate`"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.cli import helptext
from layerscope.cli.options import COLUMNS, Columns, Data, Given, names, with_columns
from layerscope.cli.output import FORMAT, Format, show
from layerscope.cli.record import OUT, keep
from layerscope.errors import InputError

if TYPE_CHECKING:
    from layerscope.evaluation.score import Score

PLACE = 30  # in the help text
PANEL = helptext.LOSE


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Example:  `layerscope evaluate path/to/classifier --task sst2`  \n"
        "`layerscope evaluate path/to/language-model --task wikitext --split test --dtype bfloat16`  \n"
        "`layerscope evaluate path/to/language-model --task corpus.txt --generate 64`  \n"
        "`layerscope evaluate path/to/language-model --lm-eval hellaswag,arc_easy,my.yaml`  \n"
        "`layerscope evaluate demo:minilm --task stsb`"
    )(evaluate)


@with_columns
def evaluate(
    model: str = Given.model,
    task: str | None = typer.Option(
        None, "--task", help="A task (layerscope tasks), a file, a folder or a hub id; --lm-eval alone needs none."
    ),
    split: str | None = Data.split,
    metric: str | None = typer.Option(
        None, help="Another metric than the task's own: accuracy, f1, matthews, bits_per_byte, acc_norm, .."
    ),
    generate: int | None = typer.Option(
        None, "--generate", help="Language models on running text: continue N prompts cut out of it, greedily."
    ),
    new_tokens: int | None = typer.Option(
        None, "--new-tokens", help="With --generate: continue each prompt by N tokens; 32 if not given."
    ),
    lm_eval: str | None = typer.Option(
        None, "--lm-eval", help="Tasks of lm-evaluation-harness, separated by commas: names, or files (my.yaml)."
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
    """Score a model on a task that its head can answer, or on tasks of lm-evaluation-harness.

    Classifiers by the task's metric, beside that of always giving the most frequent class; language models by the
    perplexity of running text or the likelihood of choices; taggers by words; embedding models on scored pairs. What a
    language model generates (--generate) shows damage that choices by likelihood hide.
    """
    import layerscope as ls

    if new_tokens is not None and generate is None:
        raise InputError("--new-tokens is for a generation check; give --generate N too, or leave it out.")
    if task is None and lm_eval is None:
        raise InputError("Name a task to evaluate the model on (--task), tasks of lm-eval (--lm-eval), or both.")
    tasks = None if lm_eval is None else names(lm_eval, "task")
    check = None
    if generate is not None:
        check = {"prompts": generate, **({} if new_tokens is None else {"new_tokens": new_tokens})}
    data = None if task is None else columns.open(task)
    opened = ls.load(model, device=device, dtype=dtype)
    rows: dict[str, Any] = {"split": split, "limit": limit, "all_rows": all_rows}
    score = ls.evaluate(opened, data, **rows, max_length=max_length, metric=metric, generate=check, lm_eval=tasks)
    harness = score if data is None else score.harness
    shown = [] if data is None else [_row(score)]
    if format is Format.json:
        show([*shown, *([] if harness is None else harness.frame.to_dict("records"))], format)
    else:
        if shown:  # where there are no classes there is no most frequent one
            show([{k: v for k, v in row.items() if k != "majority" or not math.isnan(v)} for row in shown], format)
        if harness is not None:
            show(harness.frame.to_dict("records"), format, f"{model} by lm-evaluation-harness")
        for finding in (
            *score.findings(),
            *(harness.findings() if harness is not None and harness is not score else ()),
        ):
            print(finding)
    parts = {} if data is None else {"score": score}
    parts |= {} if harness is None else {"harness": harness}
    keep(out, "evaluate", f"{model} on {', '.join(filter(None, (task, lm_eval)))}", parts)


def _row(score: Score) -> dict[str, Any]:
    """Of classes the task's own metric, and no other; of tokens all there is."""
    beside = () if "nll" in score.metrics else ("accuracy", "f1", "matthews")
    return {name: value for name, value in score.row.items() if name not in beside}
