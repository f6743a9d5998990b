"""`layerscope compare`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.cli.options import COLUMNS, Columns, Data, Run, names, with_columns
from layerscope.cli.output import FORMAT, Format, show
from layerscope.cli.record import OUT, leave, listed
from layerscope.errors import InputError

if TYPE_CHECKING:
    from layerscope.measures import Similarity


_BY_HEAD = ("attention_norm", "attention_pearson", "attention_js")


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Example:  `layerscope compare demo:minilm --task pydocs --pool mean --measure cka,svcca -o out`  "
        "(attention: `--measure attention_js --heads 3,5`)"
    )(compare)


@with_columns
def compare(
    models: list[str] = typer.Argument(help="One model (its layers among themselves), two, or more (all pairs)."),
    task: str = Data.task,
    measure: str = typer.Option("cka", help="One or several measures, with commas; `layerscope measures` lists them."),
    split: str | None = Data.split,
    pool: str = typer.Option(
        "cls", help="How tokens become rows: cls, mean, last, words or tokens. Attention is between words, or tokens."
    ),
    limit: int | None = typer.Option(None, help="Only the first so many examples."),
    max_length: int = typer.Option(128, help="Longest text in tokens; the rest is cut off."),
    final_norm: bool = typer.Option(False, "--final-norm", help="The last layer after the model's final norm."),
    ci: float | None = typer.Option(None, help="Add intervals of this level to the tables, such as 0.95."),
    baseline: bool = typer.Option(False, "--baseline", help="Add what shuffled rows give to the tables."),
    blocks: bool = typer.Option(False, "--blocks", help="Split one model's layers into blocks and draw the split."),
    keep_special: bool = typer.Option(
        False, "--keep-special", help="Measures of attention: keep special tokens, which are else dropped."
    ),
    heads: str | None = typer.Option(
        None, "--heads", help="With --out, measures by attention head: draw those of two layers as well, such as 3,5."
    ),
    memory: float = typer.Option(4.0, help="GiB for cross products; where all need more, there are several passes."),
    device: str | None = Run.device,
    columns: Columns = COLUMNS,
    out: Path | None = OUT,
    format: Format = FORMAT,
) -> None:
    """How similar the layers of one or several models are, under one or several measures, in one pass."""
    import layerscope as ls
    from layerscope.team import Team

    if blocks and len(models) != 1:
        raise InputError(f"--blocks splits the layers of one model, and {len(models)} models were given.")
    if heads is not None and (out is None or heads.count(",") != 1):
        raise InputError("--heads takes two layers, such as 3,5, and needs --out, a folder for the figure.")
    named = names(measure, "measure")
    if heads is not None and not set(named) & set(_BY_HEAD):
        raise InputError(f"--heads is for measures by attention head ({', '.join(_BY_HEAD)}), and {measure} is none.")
    data = columns.open(task)
    opened = [ls.load(model, device=device) for model in models]
    first, second = (opened[0], opened[1]) if len(opened) == 2 else (opened, None)
    options: dict[str, Any] = {
        "split": split,
        "pool": pool,
        "limit": limit,
        "max_length": max_length,
        "final_norm": final_norm,
    }
    extras: dict[str, Any] = {"ci": ci, "baseline": baseline, "memory": memory, "keep_special": keep_special}
    found = ls.compare(first, second, measure=named, task=data, **options, **extras)
    if not Team.current().is_main:
        return
    cuts = {name: ls.blocks(similarity) for name, similarity in found.items()} if blocks else {}
    for name, similarity in found.items():
        if out is not None:
            similarity.save(out / f"{name}.parquet")
            cuts.get(name, similarity).plot(out / f"{name}.png")
            _draw_heads(similarity, heads, out)
        if format is Format.json:
            continue
        _show_tables(similarity, ci)
        _show_reasons(similarity, pool)
        if blocks:
            cut = cuts[name]
            print(
                f"{cut.k} blocks, cut before layer {' and '.join(cut.boundaries)}: strength {cut.strength:.2f}, "
                f"p = {cut.p_value:.3f}."
            )
    if out is not None:
        from layerscope.extract.run import examples_of
        from layerscope.report import pictures

        leave(
            out,
            "compare",
            f"Similarity of the layers of {listed(models)} on {task}",
            [pictures.similarity(s, cuts.get(name)) for name, s in found.items()],
            models=opened,
            examples=examples_of(data, split, limit),
            n=next(iter(found.values())).n,
            pool=pool,
            max_length=max_length,
            final_norm=final_norm or None,
            ci=ci,
        )
    if format is Format.json:
        show([r for s in found.values() for r in s.to_frame().to_dict("records")], format)
    elif out is not None:
        print(f"Tables and figures are in {out}.")


def _show_reasons(similarity: Similarity, pool: str) -> None:
    """Why some values are undefined, and what most often helps."""
    from layerscope.measures.registry import SAME

    for reason in dict.fromkeys(similarity.reasons.values()):
        print(f"nan: {reason}.")
    for (row, column), reason in similarity.reasons.items():
        layers = similarity.row_axis.layers[row], similarity.column_axis.layers[column]
        if pool == "cls" and "0" in layers and reason == SAME:
            print("In layer 0 the summary token is the same for every text; with --pool mean that layer has values.")
            return


def _show_tables(similarity: Similarity, ci: float | None) -> None:
    """Layers by layers: the values, and what was asked for beside them."""
    title = f"{similarity.measure} over {similarity.provenance['task']} ({similarity.n} rows)"
    one, two = ({*axis.models} for axis in (similarity.row_axis, similarity.column_axis))
    if one != two:  # else the table says it itself
        title += f", layers of {listed(sorted(one))} down, of {listed(sorted(two))} across"
    level = f"the {ci:.0%} interval" if ci else ""
    tables = {
        title: similarity.values,
        f"{title}: the lower end of {level}": similarity.low,
        f"{title}: the upper end of {level}": similarity.high,
        f"{title}: shuffled rows": similarity.baseline,
    }
    for heading, values in tables.items():
        if values is not None:
            rows = [
                {"layer": row, **{column: float(v) for column, v in zip(similarity.columns, line, strict=True)}}
                for row, line in zip(similarity.rows, values, strict=True)
            ]
            show(rows, Format.table, heading)


def _draw_heads(similarity: Similarity, layers: str | None, folder: Path) -> None:
    """The figure of `--heads`, for measures that have one."""
    if layers is None or similarity.heads is None:
        return
    row, column = (part.strip() for part in layers.split(","))
    similarity.plot_heads(row, column, folder / f"{similarity.measure}-heads.png")
