"""`layerscope evaluate`"""

from __future__ import annotations

import math
from pathlib import Path

from layerscope.cli import console
from layerscope.cli.command import Given, command
from layerscope.cli.console import FORMAT, Format, show
from layerscope.cli.record import OUT, keep
from layerscope.errors import InputError


@command(
    "evaluate",
    panel=console.LOSE,
    examples=[
        "layerscope evaluate path/to/classifier --task sst2",
        "layerscope evaluate path/to/language-model --task wikitext --split test --dtype bfloat16",
        "layerscope evaluate path/to/language-model --task corpus.txt --generate 64",
        "layerscope evaluate path/to/language-model --lm-eval hellaswag,arc_easy,my.yaml",
        "layerscope evaluate demo:minilm --task stsb",
    ],
)
def evaluate(given: Given, out: Path | None = OUT, format: Format = FORMAT) -> None:
    """Score a model on a task that its head can answer, or on tasks of lm-evaluation-harness.

    Classifiers by the task's metric, beside that of always giving the most frequent class; language models by the
    perplexity of running text or the likelihood of choices; taggers by words; embedding models on scored pairs. What a
    language model generates (--generate) shows damage that choices by likelihood hide.
    """
    if "task" not in given and "lm_eval" not in given:
        raise InputError("Name a task to evaluate the model on (--task), tasks of lm-eval (--lm-eval), or both.")
    score = given.call("evaluate")
    alone = "task" not in given  # then the score is that of the harness
    harness = score if alone else score.harness
    # Of classes the task's own metric, and no other; of tokens all there is.
    beside = () if "nll" in score.metrics else ("accuracy", "f1", "matthews")
    rows = [] if alone else [{name: value for name, value in score.row.items() if name not in beside}]
    if format is Format.json:
        show([*rows, *([] if harness is None else harness.frame.to_dict("records"))], format)
    else:
        if rows:  # where there are no classes there is no most frequent one
            show([{k: v for k, v in row.items() if k != "majority" or not math.isnan(v)} for row in rows], format)
        if harness is not None:
            show(harness.frame.to_dict("records"), format, f"{given.label('model')} by lm-evaluation-harness")
        for result in (score, *([harness] if harness is not None and harness is not score else ())):
            for finding in result.findings():
                print(finding)
    parts = {} if alone else {"score": score}
    parts |= {} if harness is None else {"harness": harness}
    title = f"{given.label('model')} on {', '.join(filter(None, (given['task'], given['lm_eval'])))}"
    keep(out, "evaluate", title, parts)
