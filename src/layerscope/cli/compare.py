"""`layerscope compare`"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.cli import helptext
from layerscope.cli.matrices import readable, rows_of, show_summary
from layerscope.cli.options import COLUMNS, Columns, Data, Given, names, with_columns
from layerscope.cli.output import FORMAT, Format, show, show_parts
from layerscope.cli.record import OUT, keep
from layerscope.drawing.words import listed
from layerscope.errors import InputError

if TYPE_CHECKING:
    from layerscope.similarity.similarity import Similarity

PLACE = 20  # in the help text
PANEL = helptext.ALIKE
_WORDS = ("true", "false", "none")


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Example:  `layerscope compare demo:minilm --task pydocs --pool mean --measure cka,svcca -o out`  "
        "(attention: `--measure attention_js --heads 3,5`)"
    )(compare)


@with_columns
def compare(
    models: list[str] = typer.Argument(help="One model (its layers among themselves), two, or more (all pairs)."),
    task: str = Data.task,
    measure: str = typer.Option(
        "cka", help="One or several measures, separated by commas; `layerscope measures` lists them."
    ),
    split: str | None = Data.split,
    pool: str = typer.Option(
        "cls", help="How tokens become rows: cls, mean, last, words or tokens. Attention is between words, or tokens."
    ),
    limit: int | None = typer.Option(None, help="Use only the first N examples."),
    max_length: int = typer.Option(128, help="Longest text in tokens; the rest is cut off."),
    final_norm: bool = typer.Option(False, "--final-norm", help="Read the last layer after the model's final norm."),
    ci: float | None = typer.Option(None, help="Add intervals of this level to the tables, such as 0.95."),
    baseline: int = typer.Option(
        0,
        "--baseline",
        help="Shuffle the texts N times, such as 200, and add what chance gives: mean, p-value, share above it.",
    ),
    option: list[str] = typer.Option(
        [],
        "--option",
        help="An option of the measures, such as keep=1.0, or of one of them: svcca.keep=1.0. Repeatable.",
    ),
    blocks: bool = typer.Option(
        False,
        "--blocks",
        help="Split one model's layers into blocks, test the split against gradual change, and draw it. With --ci its "
        "strength has an interval.",
    ),
    special: bool = typer.Option(
        False, "--special", help="Measures of attention: keep special tokens, which are left out by default."
    ),
    heads: str | None = typer.Option(
        None, "--heads", help="With --out, measures by attention head: draw those of two layers as well, such as 3,5."
    ),
    memory: float | None = typer.Option(
        None, help="How many GiB to use at most, on host and device each; half of what is free if not given."
    ),
    device: str | None = Given.device,
    dtype: str = Given.dtype,
    columns: Columns = COLUMNS,
    out: Path | None = OUT,
    format: Format = FORMAT,
) -> None:
    """Measure how similar the layers of one or several models are, by one or several measures in one pass."""
    import layerscope as ls
    from layerscope.team import Team

    named = names(measure, "measure")
    _check(models, named, blocks, heads, out)
    data = columns.open(task)
    opened = [ls.load(model, device=device, dtype=dtype) for model in models]
    first, second = (opened[0], opened[1]) if len(opened) == 2 else (opened, None)
    reading: dict[str, Any] = {"pool": pool, "max_length": max_length, "final_norm": final_norm}
    extras: dict[str, Any] = {"ci": ci, "baseline": baseline, "memory": memory, "special": special}
    extras |= measure_options(option, set(inspect.signature(ls.compare).parameters))
    matrices = ls.compare(first, second, measure=named, task=data, split=split, limit=limit, **reading, **extras)
    if not Team.current().is_main:
        return
    level = 0.95 if ci is None else ci
    cuts = {name: ls.blocks(similarity, ci=level) for name, similarity in matrices.items()} if blocks else {}
    if format is Format.json:
        cells = [row for similarity in matrices.values() for row in similarity.frame.to_dict("records")]
        split_up = [{"measure": name, **row} for name, cut in cuts.items() for row in cut.frame.to_dict("records")]
        if blocks:
            show_parts({"values": cells, "blocks": split_up})
        else:
            show(cells, format)
    else:
        for name, similarity in matrices.items():
            _show_tables(similarity, ci, out)
            _show_reasons(similarity, pool)
            for sentence in (*similarity.findings(), *(cuts[name].findings() if blocks else ())):
                print(sentence)
    title = f"Similarity of the layers of {listed(models)} on {task}"
    figures = [figure for name, each in matrices.items() for figure in cuts.get(name, each).figures()]
    more = [f"{name}-heads.png" for name, each in matrices.items() if heads is not None and each.heads is not None]
    results = matrices | {f"{name}-blocks": cut for name, cut in cuts.items()}
    keep(out, "compare", title, results, figures=figures, ci=ci, more=more)
    if out is not None:
        for similarity in matrices.values():
            _draw_heads(similarity, heads, out)
        if format is Format.table:
            print(f"Tables and figures are in {out}.")


def measure_options(given: Sequence[str], taken: set[str]) -> dict[str, Any]:
    """`keep=1.0`, `svcca.keep=1.0`: the options of measures, with numbers, true, false and none read as such."""
    options: dict[str, Any] = {}
    for text in given:
        name, sign, written = (part.strip() for part in text.partition("="))
        if not sign or not name or not written:
            raise InputError(f"--option {text} is not a name and a value; write --option keep=1.0.")
        if name in taken:
            raise InputError(
                f"--option {text}: {name} is not an option of a measure; layerscope compare --help lists those "
                "of the command."
            )
        if name in options:
            raise InputError(f"--option {name} was given twice.")
        try:
            options[name] = ast.literal_eval(written.capitalize() if written.lower() in _WORDS else written)
        except (ValueError, SyntaxError):
            options[name] = written
    return options


def _check(models: Sequence[str], named: Sequence[str], blocks: bool, heads: str | None, out: Path | None) -> None:
    """Raise a sentence where two options do not go together."""
    if blocks and len(models) != 1:
        raise InputError(f"--blocks splits the layers of one model, and {len(models)} models were given.")
    if heads is None:
        return
    if out is None or heads.count(",") != 1:
        raise InputError("--heads takes two layers, such as 3,5, and needs --out, a folder for the figure.")

    from layerscope.similarity.registry import registry

    by_head = [name for name, entry in registry().items() if entry.by_head]
    if not set(named) & set(by_head):
        raise InputError(
            f"--heads is for measures by attention head ({', '.join(by_head)}), and {', '.join(named)} is none."
        )


def _show_reasons(similarity: Similarity, pool: str) -> None:
    """Why some values are undefined, and what most often helps."""
    from layerscope.similarity.registry import SAME

    for reason in dict.fromkeys(similarity.reasons.values()):
        print(f"nan: {reason}.")
    for (row, column), reason in similarity.reasons.items():
        layers = similarity.row_axis.layers[row], similarity.column_axis.layers[column]
        if pool == "cls" and 0 in layers and reason == SAME:
            print("In layer 0 the summary token is the same for every text; with --pool mean that layer has values.")
            return


def _show_tables(similarity: Similarity, ci: float | None, out: Path | None) -> None:
    """Layers by layers: the values, and what was asked for beside them; of many layers a summary."""
    title = f"{similarity.measure} over {similarity.provenance['data']['task']} ({similarity.n} rows)"
    down, across = ({*axis.models} for axis in (similarity.row_axis, similarity.column_axis))
    if down != across:  # else the table says it itself
        title += f", layers of {listed(sorted(down))} down, of {listed(sorted(across))} across"
    if not readable(rows_of(similarity, similarity.values)):
        show_summary(similarity, title, out)
        return
    level = f"the {ci:.0%} interval" if ci else ""
    tables = {
        title: similarity.values,
        f"{title}: the lower end of {level}": similarity.low,
        f"{title}: the upper end of {level}": similarity.high,
        f"{title}: the bias": similarity.bias,
        f"{title}: shuffled texts": similarity.baseline,
        f"{title}: p-values": similarity.p_values,
        f"{title}: above chance": similarity.calibrated,
    }
    for heading, values in tables.items():
        if values is not None:
            show(rows_of(similarity, values), Format.table, heading)


def _draw_heads(similarity: Similarity, layers: str | None, folder: Path) -> None:
    """The figure of `--heads`, for measures that have one."""
    if layers is None or similarity.heads is None:
        return
    row, column = (part.strip() for part in layers.split(","))
    similarity.plot_heads(row, column, folder / f"{similarity.measure}-heads.png")
