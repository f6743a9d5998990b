"""`layerscope compare`. A matrix of layers is printed whole where it can be read, else as a summary."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.cli import console
from layerscope.cli.command import Given, command, names
from layerscope.cli.console import FORMAT, Column, Format, fits, show
from layerscope.cli.record import OUT, keep
from layerscope.cli.signature import function
from layerscope.drawing.captions import listed
from layerscope.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from layerscope.drawing.figures.heatmap import HeatmapFigure
    from layerscope.similarity.result import Similarity

MOST_COLUMNS = 12  # layers across; of more a line cannot be read
MOST_ROWS = 48  # layers down, of a summary


def readable(rows: Sequence[dict[str, Any]]) -> bool:
    """Whether a matrix is narrow enough to be printed whole."""
    if len(rows[0]) - 1 > MOST_COLUMNS:
        return False
    return not sys.stdout.isatty() or fits([Column(name, [row[name] for row in rows]) for name in rows[0]])


def rows_of(similarity: Similarity, values: np.ndarray) -> list[dict[str, Any]]:
    """Layers by layers, one row per layer."""
    return [
        {"layer": row, **{column: float(v) for column, v in zip(similarity.columns, line, strict=True)}}
        for row, line in zip(similarity.rows, values, strict=True)
    ]


def summary(similarity: Similarity) -> list[dict[str, Any]]:
    """One row per layer: which layer across is most alike and which least, and the mean. A layer is not set beside
    itself. Undefined values are left out; a row without any has none."""
    import numpy as np

    values = np.asarray(similarity.values, dtype=float).copy()
    if similarity.row_axis == similarity.column_axis:
        np.fill_diagonal(values, np.nan)
    rows = []
    for k, name in enumerate(similarity.rows):
        line = values[k]
        row: dict[str, Any] = {"layer": name, "most alike": None, "value": None, "least alike": None}
        row |= {"least": None, "mean": None, "undefined": int(np.isnan(np.asarray(similarity.values)[k]).sum())}
        if np.isfinite(line).any():
            low, high = int(np.nanargmin(line)), int(np.nanargmax(line))
            near, far = (low, high) if similarity.distance else (high, low)
            row |= {"most alike": similarity.columns[near], "value": float(line[near])}
            row |= {"least alike": similarity.columns[far], "least": float(line[far]), "mean": float(np.nanmean(line))}
        rows.append(row)
    if not any(row["undefined"] for row in rows):
        rows = [{name: value for name, value in row.items() if name != "undefined"} for row in rows]
    return rows


def chosen_rows(count: int, most: int = MOST_ROWS) -> list[int]:
    """Which rows of many are printed: the first, the last, and as many between at even distances."""
    if count <= most:
        return list(range(count))
    return sorted({round(k * (count - 1) / (most - 1)) for k in range(most)})


def show_summary(similarity: Similarity, title: str, out: Path | None) -> None:
    """Print the summary, and where every value is."""
    rows = summary(similarity)
    shown = chosen_rows(len(rows))
    heading = f"{title}; a summary, one row per layer"
    if len(shown) < len(rows):
        heading += f", {len(shown)} of {len(rows)} layers"
    show([rows[k] for k in shown], Format.table, heading)
    count = f"{similarity.values.size:,}"
    name = similarity.measure
    if out is None:
        where = f"-o FOLDER writes all {count} values as {name}.csv and {name}.parquet, --format json prints them"
    else:
        where = f"all {count} values are in {out / f'{name}.csv'} and {name}.parquet"
    print(f"{where[0].upper()}{where[1:]}.")


_WORDS = ("true", "false", "none")


@command(
    "compare",
    panel=console.ALIKE,
    examples=["layerscope compare demo:minilm --task pydocs --pool mean --measure cka,svcca -o out"],
    notes="Attention:  `--measure attention_js --heads 3,5`",
    left_out={
        "a": "the models are the arguments",
        "b": "the models are the arguments",
    },
)
def compare(
    given: Given,
    models: list[str] = typer.Argument(help="One model (its layers among themselves), two, or more (all pairs)."),
    option: list[str] = typer.Option(
        [],
        "--option",
        help="An option of the measures, such as keep=1.0, or of one of them: svcca.keep=1.0. Repeatable.",
    ),
    blocks: bool = typer.Option(
        False,
        "--blocks",
        help="Split one model's layers into blocks, test the split against gradual change, and draw it "
        "(`ls.layer_blocks`). With --ci its strength has an interval.",
    ),
    heads: str | None = typer.Option(
        None,
        "--heads",
        help="With --out, measures by attention head: draw those of two layers as well, such as 3,5; the figure is "
        "part of the record, the report and `figures`.",
    ),
    out: Path | None = OUT,
    format: Format = FORMAT,
) -> None:
    """Measure how similar the layers of one or several models are, by one or several measures in one pass."""
    import layerscope as ls
    from layerscope.distributed import Team
    from layerscope.drawing.render import draw
    from layerscope.models.load import labels_of

    named = names(given["measure"] or "cka", "measure")
    _check(models, named, blocks, heads, out)
    given.require_task()
    options = measure_options(option, set(function("compare").parameters))
    data = given.task
    opened = given.open_models(models)
    first, second = (opened[0], opened[1]) if len(opened) == 2 else (opened, None)
    matrices = ls.compare(**given.arguments("compare", a=first, b=second, measure=named, task=data), **options)
    if not Team.current().is_main:
        return
    ci, pool = given["ci"], given["pool"] or "cls"
    level = 0.95 if ci is None else ci
    cuts = {name: ls.layer_blocks(similarity, ci=level) for name, similarity in matrices.items()} if blocks else {}
    if format is Format.json:
        cells = [row for similarity in matrices.values() for row in similarity.frame.to_dict("records")]
        split_up = [{"measure": name, **row} for name, cut in cuts.items() for row in cut.frame.to_dict("records")]
        show(cells, format)
        if blocks:
            show(split_up, format, name="blocks")
    else:
        for name, similarity in matrices.items():
            _show_tables(similarity, ci, out)
            _show_reasons(similarity, pool)
            for finding in (*similarity.findings(), *(cuts[name].findings() if blocks else ())):
                print(finding)
    title = f"Similarity of the layers of {listed(labels_of(opened))} on {given['task']}"
    figures = [figure for name, each in matrices.items() for figure in cuts.get(name, each).figures()]
    by_head = {} if heads is None else _heads_of(matrices, heads)
    pictures = {f"{name}-heads.png": partial(draw, figure) for name, figure in by_head.items()}
    results = matrices | {f"{name}-blocks": cut for name, cut in cuts.items()}
    keep(out, "compare", title, results, figures=[*figures, *by_head.values()], ci=ci, pictures=pictures)
    if out is not None and format is Format.table:
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
    """Raise InputError where two options do not go together."""
    if blocks and len(models) != 1:
        raise InputError(f"--blocks splits the layers of one model, and {len(models)} models were given.")
    if heads is None:
        return
    if out is None or heads.count(",") != 1:
        raise InputError("--heads takes two layers, such as 3,5, and needs --out, a folder for the figure.")

    from layerscope.registry import MEASURES

    by_head = [name for name, entry in MEASURES.items() if entry.by_head]
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


def _heads_of(matrices: Mapping[str, Similarity], layers: str) -> dict[str, HeatmapFigure]:
    """The figures of `--heads`, of measures that have one, by the names of the measures."""
    row, column = (part.strip() for part in layers.split(","))
    return {name: each.head_heatmap(row, column) for name, each in matrices.items() if each.heads is not None}
