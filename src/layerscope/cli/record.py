"""Keeping results: what every command that measures something does when it is given `-o`."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.errors import InputError

if TYPE_CHECKING:
    from layerscope.drawing.figure import Figure
    from layerscope.results import Record, Result


def writable(out: Path | None) -> Path | None:
    """The folder, if it can be written: found out before the work, not after it."""
    if out is None:
        return None
    there = next(place for place in (out, *out.absolute().parents) if place.exists())
    if not there.is_dir():
        raise InputError(f"{out} cannot be written: {there} is a file; give another path.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"{out} cannot be written: {there} does not allow it; give another path.")
    return out


OUT = typer.Option(
    None,
    "--out",
    "-o",
    callback=writable,
    help="Write tables, figures and a record, for `layerscope report`, into this folder.",
)
_started = time.perf_counter()


def begin() -> None:
    """Start the clock of a command."""
    global _started  # noqa: PLW0603  (one command runs in a process)
    _started = time.perf_counter()


def keep(
    out: Path | None,
    kind: str,
    title: str,
    results: Mapping[str, Result],
    *,
    findings: Sequence[str] = (),
    tables: str = "csv",
    **settings: Any,
) -> None:
    """Write every result's table and picture into OUT, and the record `OUT/KIND-record`; nothing without `-o`."""
    if out is None:
        return

    from layerscope.results import write_record

    out.mkdir(parents=True, exist_ok=True)
    for name, result in results.items():
        write_result(out, name, result, tables)
    folder = out / f"{kind}-record"
    replaced = ", in place of the one before" if folder.exists() else ""
    write_record(folder, recorded(kind, title, results, findings=findings, **settings))
    look = shlex.join(["layerscope", "report", str(out)])
    print(f"The record is {folder}{replaced}; to look at it: {look}", file=sys.stderr)


def write_result(out: Path, name: str, result: Result, tables: str = "csv") -> None:
    """A result's table, as CSV or Parquet, and its picture, if its first figure is one."""
    from layerscope.store import write_text

    if tables == "parquet":
        result.save(out / f"{name}.parquet")
    elif tables == "csv":
        write_text(out / f"{name}.csv", result.frame.to_csv(index=False))
    if tables and result.figures()[0].kind != "table":
        result.plot(out / f"{name}.png")


def recorded(
    kind: str,
    title: str,
    results: Mapping[str, Result],
    *,
    findings: Sequence[str] = (),
    figures: Sequence[Figure] | None = None,
    seconds: float | None = None,
    data: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Record:
    """The record of what a command measured. Settings that were not given are left out."""
    from layerscope.results import Record

    return Record.of(
        kind,
        title,
        results,
        findings=findings,
        figures=figures,
        data=data,
        settings=settings,
        command=shlex.join(["layerscope", *sys.argv[1:]]),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(time.perf_counter() - _started if seconds is None else seconds, 1),
    )
