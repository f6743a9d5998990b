"""How commands print: a table for people or JSON for programs, on stdout."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import typer


class Format(StrEnum):
    table = "table"
    json = "json"


FORMAT = typer.Option(Format.table, "--format", help="How to print: a table, or JSON for programs.")


def show(rows: Sequence[Mapping[Any, Any]], format: Format, title: str = "") -> None:
    """Print records as a table, or as a JSON list."""
    if format is Format.json:
        print(json.dumps([{k: _plain(v) for k, v in row.items()} for row in rows], indent=1, ensure_ascii=False))
        return

    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    columns = list(rows[0]) if rows else []
    for name in columns:
        numeric = all(isinstance(row[name], (int, float)) for row in rows)
        table.add_column(name.replace("_", " "), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_spell(row[name])) for name in columns))
    console = Console(width=None if sys.stdout.isatty() else 5000)  # a pipe has no width: nothing is folded there
    if title:
        console.print(Text(title, style="bold"), soft_wrap=True)
    console.print(table)


def cut_and_save(
    model: Any, plan: Any, task: Any, options: dict[str, Any], folder: Path | None, out: Path | None, format: Format
) -> None:
    """Cut a model, print what is left of it beside the whole, and save it if a folder is given."""
    import layerscope as ls
    from layerscope.store import check_free
    from layerscope.surgery.saving import RECORD

    if folder is not None:
        check_free(folder, RECORD)  # before the work, not after it
    smaller = ls.cut(model, plan)
    rows = [
        {
            "blocks": spans,
            "score": ls.evaluate(one, task, **options),
            "parameters": sum(p.numel() for p in getattr(one, "network", one).parameters()),
        }
        for spans, one in ((f"1-{model.depth}", model), (str(plan), smaller))
    ]
    show(rows, format, f"{model.name} on {task.name}, nothing trained")
    if out is not None:
        from layerscope.cli.record import leave
        from layerscope.extract.run import examples_of
        from layerscope.report import pictures

        leave(
            out,
            "cut",
            f"{model.name} on {task.name} with blocks {plan}",
            pictures.cut_model(rows),
            models=[model],
            examples=examples_of(task, options["split"], options["limit"]),
            max_length=options["max_length"],
        )
    if folder is not None:
        ls.save(smaller, folder)
        if format is Format.table:
            print(f"Saved in {folder}, reopened and compared.")


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _spell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
