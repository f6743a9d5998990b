"""Leaving a run folder: what every command that computes something does when it is given `-o`."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame

    from layerscope.data import Examples
    from layerscope.report.runs import RunRecord
    from layerscope.report.values import Figure


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
    help="Write tables, figures and a run folder, for `layerscope report`, into this folder.",
)
_LIBRARIES = ("torch", "transformers", "tokenizers", "peft", "datasets", "numpy", "scipy", "scikit-learn")
_started = time.perf_counter()


def begin() -> None:
    """Start the clock of a command."""
    global _started  # noqa: PLW0603  (one command runs in a process)
    _started = time.perf_counter()


def leave(
    out: Path | None, kind: str, title: str, figures: Sequence[Figure], *, models: Sequence[Any] = (), **about: Any
) -> None:
    """Write the run folder `OUT/KIND-run` of what `recorded` takes; nothing without `-o`."""
    if out is None:
        return

    from layerscope.report.runs import write_run

    folder = out / f"{kind}-run"
    replaced = ", in place of the one before" if folder.exists() else ""
    write_run(folder, recorded(kind, title, figures, models=models, **about))
    look = shlex.join(["layerscope", "report", str(out)])
    print(f"The run is kept in {folder}{replaced}; to look at it: {look}", file=sys.stderr)


def write_table(frame: DataFrame, path: Path) -> None:
    """A table as CSV, whole or not at all."""
    from layerscope.store import write_text

    write_text(path, frame.to_csv(index=False))


def recorded(
    kind: str,
    title: str,
    figures: Sequence[Figure],
    *,
    models: Sequence[Any] = (),
    examples: Examples | None = None,
    n: int | None = None,
    findings: Sequence[str] = (),
    seconds: float | None = None,
    **settings: Any,
) -> RunRecord:
    """What a command computed, with all that it depends on. Settings that were not given are left out."""
    from layerscope.report.runs import RunRecord

    data = {} if examples is None else _data(examples)
    if n is not None:
        data["n"] = n
    return RunRecord(
        kind=kind,
        title=title,
        figures=figures,
        findings=findings,
        command=shlex.join(["layerscope", *sys.argv[1:]]),
        models=[_model(model) for model in models],
        data=data,
        settings={name: value for name, value in settings.items() if value is not None},
        versions=_versions(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(time.perf_counter() - _started if seconds is None else seconds, 1),
    )


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, or `a, b and c`; each once."""
    *others, last = dict.fromkeys(names)
    return f"{', '.join(others)} and {last}" if others else last


def _model(model: Any) -> dict[str, Any]:
    """What a model is: its name and its weights' hash, and the revision where it came from the hub."""
    from layerscope.models.identity import fingerprint

    found = {
        "name": model.name,
        "class": type(model.network).__name__,
        "blocks": model.depth,
        "width": model.width,
        "weights": fingerprint(model),
        "revision": getattr(model.network.config, "_commit_hash", None),
    }
    return {name: value for name, value in found.items() if value is not None}


def _data(examples: Examples) -> dict[str, Any]:
    return {
        "task": examples.task,
        "split": examples.split,
        "fingerprint": examples.fingerprint,
        "n": len(examples),
        "skipped": examples.skipped,
    }


def _versions() -> dict[str, str]:
    from layerscope.version import __version__

    found = {"layerscope": __version__, "python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
