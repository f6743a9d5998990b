"""Keeping results: what every command that measures something does when it is given `-o`."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.cli.console import answer
from layerscope.distributed import Team
from layerscope.errors import InputError, log

if TYPE_CHECKING:
    from layerscope.drawing.figure import Figure
    from layerscope.results import Finding, Record, Result


def writable(out: Path | None) -> Path | None:
    """The folder, if it can be written: checked before the work, not after it."""
    if out is None:
        return None

    from layerscope.store import check_name

    check_name(out, inside=False)
    if out.suffix.lower() in _FILES and not out.is_dir():
        raise InputError(
            f"{out} is called like a file, and --out is a folder, which gets tables (CSV and Parquet) and figures; "
            f"give a folder, such as {out.with_suffix('')}."
        )
    try:
        there = next(place for place in (out, *out.absolute().parents) if place.exists())
    except OSError as error:
        raise InputError(f"{str(out)[:100]} .. cannot be written: {error.strerror}; give another path.") from error
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
_FILES = (".csv", ".tsv", ".json", ".jsonl", ".parquet", ".txt", ".html", ".png", ".pdf", ".svg")
OVERWRITE = typer.Option(False, "--overwrite", help="Replace what the same command wrote to --out before.")
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
    findings: Sequence[Finding] = (),
    tables: bool = True,
    pictures: Mapping[str, Callable[[Path], object]] | None = None,
    more: Sequence[str] = (),
    final: Path | None = None,
    **settings: Any,
) -> None:
    """Write the record `OUT/KIND-record`, and beside it links to its tables and pictures; nothing without `-o`.

    What the same command left there before goes (`claim` has asked). `pictures` are drawn beside those of the results,
    by the names of their files; `more` names what the command itself has written, and `final` the name that OUT will
    have. Without `tables` nothing stands beside the record: OUT is a checkpoint, or states.
    """
    said = [*findings, *(finding for result in results.values() for finding in result.findings())]
    answer().findings += [{"text": each.text, "evidence": each.evidence, "sure": each.sure} for each in said]
    if out is None or Team.is_helper():
        return
    answer().record = str((final or out) / f"{kind}-record")

    from layerscope.results import record_folder
    from layerscope.store import left_plain, taken

    folder, drawn = out / f"{kind}-record", dict(pictures or {})
    if tables:
        drawn |= {f"{name}.png": each.plot for name, each in results.items() if each.figures()[0].kind != "table"}
    shown = [*(f"{name}.{ending}" for name in results if tables for ending in ("parquet", "csv")), *drawn]
    before = _files_before(folder)
    plain = left_plain(folder, before)
    foreign = taken(folder, shown, plain)
    files = [*(name for name in shown if name not in foreign), *more]
    replaced = ", in place of the one before" if folder.exists() else ""
    record = recorded(kind, title, results, findings=findings, files=files, **settings)
    with record_folder(folder, record, shown, plain) as staging:
        for name, draw in drawn.items():
            draw(staging / name)
    for name in before:
        if name not in more and _is_training(out / name):
            shutil.rmtree(out / name)
    if foreign:
        log.warning(
            "%s of %s: this command did not leave that there, so it stays as it is; what was written now is in %s.",
            *(", ".join(foreign), final or out, folder),
        )
    look = shlex.join(["layerscope", "report", str(final or out)])
    print(f"The record is {(final or out) / folder.name}{replaced}; to look at it: {look}", file=sys.stderr)


def claim(command: str, given: Mapping[str, Any], overwrite: bool) -> None:
    """Raise InputError, before the work, where a command would write over what it left in OUT before."""
    out = given.get("out")
    if out is None:
        if overwrite:
            raise InputError("--overwrite replaces what an earlier command left in a folder; name that with --out.")
        return

    from layerscope.results import read_record

    folder = out / f"{_kind(command, given)}-record"
    if overwrite or not folder.exists():
        return
    try:
        earlier = read_record(folder)
        what = f"{earlier.title!r} of {earlier.created[:16].replace('T', ' ')} UTC"
    except InputError:
        what = "what it left there before"
    raise InputError(
        f"{out} holds a record of `layerscope {command}` already ({what}); give another folder with -o, or replace it "
        "and the files beside it with --overwrite."
    )


def _kind(command: str, given: Mapping[str, Any]) -> str:
    """What a command calls its record, by its options."""
    if command in ("truncate", "skip") and not (given.get("curve") or given.get("map")):
        return "cut"
    return "study" if command == "tune" and given.get("study") else command


def _files_before(folder: Path) -> list[str]:
    """What a record says that its command left beside it: plain names only."""
    from layerscope.results import read_record

    try:
        files = read_record(folder).files if folder.exists() else ()
    except InputError:  # of another version, or damaged
        return []
    return [name for name in files if name == Path(name).name and name not in ("", ".", "..")]


def _is_training(folder: Path) -> bool:
    """Whether a path is the folder of a training, and no link to one."""
    from layerscope.models.sources import TRAINING

    return (folder / TRAINING).is_file() and not folder.is_symlink()


def recorded(
    kind: str,
    title: str,
    results: Mapping[str, Result],
    *,
    findings: Sequence[Finding] = (),
    figures: Sequence[Figure] | None = None,
    seconds: float | None = None,
    data: Mapping[str, Any] | None = None,
    files: Sequence[str] = (),
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
        files=files,
        settings=settings,
        command=shlex.join(["layerscope", *sys.argv[1:]]),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(time.perf_counter() - _started if seconds is None else seconds, 1),
    )
