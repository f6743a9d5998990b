"""How commands print: a table for people or JSON for programs, on stdout."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import typer

_FRAME = 3  # around a cell: a space on each side, and the line between columns


class Format(StrEnum):
    table = "table"
    json = "json"


FORMAT = typer.Option(Format.table, "--format", help="How to print: a table, or JSON for programs.")


def show(rows: Sequence[Mapping[Any, Any]], format: Format, title: str = "") -> None:
    """Print records as a table, or as a JSON list."""
    if format is Format.json:
        plain = [{k: _plain(v) for k, v in row.items()} for row in rows]
        print(json.dumps(plain, indent=1, ensure_ascii="utf" not in (sys.stdout.encoding or "").lower()))
        return

    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 5000)  # a pipe has no width: nothing is folded there
    if title:
        console.print(Text(title, style="bold"), soft_wrap=True)
    columns = [_Column.of(name, [row[name] for row in rows]) for name in (rows[0] if rows else ())]
    for part in _beside(columns, console.width) or [[]]:
        table = Table(box=box.SIMPLE_HEAD)
        for column, width in part:
            justify: Any = "right" if column.numeric else "left"
            table.add_column(column.title, justify=justify, overflow="fold", width=width)
        for cells in zip(*(column.cells for column, _ in part), strict=True):
            table.add_row(*map(Text, cells))
        console.print(table)


@dataclass
class _Column:
    """What a column of a table shows, and the room it wants."""

    title: str
    cells: list[str]
    numeric: bool

    @staticmethod
    def of(name: Any, values: Sequence[Any]) -> _Column:
        numeric = all(isinstance(value, (int, float)) for value in values)
        return _Column(str(name).replace("_", " "), [_spell(value) for value in values], numeric)

    @property
    def natural(self) -> int:
        return max(_cells(text) for text in (self.title, *self.cells))

    @property
    def least(self) -> int:
        """The width below which a number or a word would be broken in two."""
        whole = self.cells if self.numeric else [word for cell in self.cells for word in cell.split()]
        return max(_cells(text) for text in (*self.title.split(), *whole, ""))


def _beside(columns: Sequence[_Column], width: int) -> list[list[tuple[_Column, int]]]:
    """The columns with their widths, in as many tables as it takes to break no number; each begins with the first."""
    if not columns:
        return []
    most = max(width // 2 - _FRAME, 1)
    need = [min(column.least, most) for column in columns]
    parts: list[list[int]] = [[0]]
    for k in range(1, len(columns)):
        if sum(need[i] + _FRAME for i in (*parts[-1], k)) + 1 > width and len(parts[-1]) > 1:
            parts.append([0])
        parts[-1].append(k)
    found = []
    for part in parts:
        spare = width - 1 - sum(need[i] + _FRAME for i in part)
        widths = {}
        for i in sorted(part, key=lambda i: columns[i].natural):  # the narrow ones first: most are then whole
            more = max(0, min(columns[i].natural - need[i], spare))
            widths[i], spare = need[i] + more, spare - more
        found.append([(columns[i], widths[i]) for i in part])
    return found


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


def _cells(text: str) -> int:
    """How many columns of a terminal a text takes."""
    from rich.cells import cell_len

    return cell_len(text)


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _spell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
