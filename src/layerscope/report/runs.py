"""Run folders: what a command computed, kept as values that any later version can draw.

A run folder holds `run.json` (what was run, on what, with which versions, and the figures' words and settings) and one
Parquet file a figure. It is written whole or not at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layerscope.errors import DataError, InputError
from layerscope.report.values import KINDS, Columns, Figure
from layerscope.store import atomic_folder, write_json

FORMAT = 1  # raise it when an older program would misread what is written
CARD = "run.json"
_MARK = "run_format"  # tells our run.json from other files of that name


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What one command computed: its figures, its findings in sentences, and everything they depend on."""

    kind: str  # the command
    title: str
    figures: Sequence[Figure]
    findings: Sequence[str] = ()
    command: str = ""
    models: Sequence[Mapping[str, Any]] = ()  # name, weights (a hash), revision, class, blocks
    data: Mapping[str, Any] = field(default_factory=dict)  # task, split, fingerprint, n, metric
    settings: Mapping[str, Any] = field(default_factory=dict)  # pool, seed, lengths ..
    versions: Mapping[str, str] = field(default_factory=dict)  # layerscope and the libraries under it
    created: str = ""
    seconds: float | None = None
    format: int = FORMAT


def write_run(folder: str | Path, run: RunRecord) -> Path:
    """Write a run folder; an earlier run folder of that name is replaced, anything else is left alone."""
    folder = Path(folder)
    _refuse_others(folder)
    with atomic_folder(folder, CARD) as staging:
        entries = []
        for k, figure in enumerate(run.figures):
            file = f"{k + 1:03}-{figure.kind}.parquet"
            _write_columns(staging / file, figure.data())
            entries.append({"kind": figure.kind, "file": file, **figure.words(), "settings": figure.settings()})
        card = {
            _MARK: FORMAT,
            "kind": run.kind,
            "title": run.title,
            "command": run.command,
            "created": run.created,
            "seconds": run.seconds,
            "findings": list(run.findings),
            "models": [dict(model) for model in run.models],
            "data": dict(run.data),
            "settings": dict(run.settings),
            "versions": dict(run.versions),
            "figures": entries,
        }
        write_json(staging / CARD, card)
    return folder


def read_run(folder: str | Path) -> RunRecord:
    """The run in a run folder; a sentence where it cannot be read."""
    folder = Path(folder)
    card = _card(folder)
    if card is None:
        raise DataError(f"{folder} is not a run folder: it has no {CARD} of a run. Commands write one with -o.")
    version = card[_MARK]
    if not isinstance(version, int) or not 1 <= version <= FORMAT:
        raise DataError(
            f"{folder} is a run folder of format {version!r}, and this version of layerscope reads 1 to {FORMAT}; "
            "update layerscope, or run the command again: "
            f"{card.get('command') or card.get('kind') or 'its command line is not recorded'}."
        )
    try:
        return RunRecord(
            kind=str(card["kind"]),
            title=str(card["title"]),
            figures=tuple(_figure(folder, entry) for entry in card["figures"]),
            findings=tuple(map(str, card["findings"])),
            format=version,
            **{name: card[name] for name in ("command", "models", "data", "settings", "versions", "created")},
            seconds=card["seconds"],
        )
    except DataError:
        raise
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(
            f"The run folder {folder} is damaged ({type(error).__name__}: {error}); run its command again."
        ) from error


def find_runs(path: str | Path) -> list[Path]:
    """The run folders that a path means: itself, or those one or two folders down, in the order of their making."""
    path = Path(path)
    if path.is_file():
        path = path.parent if path.name == CARD else path
    if not path.is_dir():
        raise InputError(f"There is no run folder {path}; commands write one with -o FOLDER.")
    if _card(path) is not None:
        return [path]
    files = [file for pattern in (f"*/{CARD}", f"*/*/{CARD}") for file in path.glob(pattern)]
    found = [(card, file.parent) for file in files if (card := _card(file.parent)) is not None]
    if not found:
        raise InputError(
            f"{path} is no run folder and holds none; commands write one with -o, such as "
            f"`layerscope compare MODEL --task TASK -o {path}`."
        )
    return [folder for _, folder in sorted(found, key=lambda pair: (str(pair[0].get("created", "")), str(pair[1])))]


def _card(folder: Path) -> dict[str, Any] | None:
    """The `run.json` of a run folder, or None where it is missing or something else's."""
    file = folder / CARD
    try:
        card = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read ({error}); run the command again.") from error
    return card if isinstance(card, dict) and _MARK in card else None


def _refuse_others(folder: Path) -> None:
    """A training run has a `run.json` too: such a folder holds a checkpoint and is not overwritten."""
    if (folder / CARD).is_file() and _card(folder) is None:
        raise InputError(f"{folder} holds a {CARD} that is not a run folder's; give another path.")


def _figure(folder: Path, entry: Mapping[str, Any]) -> Figure:
    kind, file = entry["kind"], str(entry["file"])
    if kind not in KINDS:
        raise DataError(f"{folder} has a figure of an unknown kind {kind!r}; known: {', '.join(sorted(KINDS))}.")
    if not re.fullmatch(r"[\w-]+\.parquet", file):
        raise DataError(f"{folder} names a file {file!r} for a figure; only a Parquet file beside {CARD} is read.")
    words = {name: entry[name] for name in ("title", "shows", "reading", "caveat", "group", "facets")}
    return KINDS[kind].restored(words, entry["settings"], _read_columns(folder / file))


def _write_columns(file: Path, columns: Columns) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), file)


def _read_columns(file: Path) -> Columns:
    import pyarrow
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_table(file).to_pydict()
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise DataError(f"{file} is missing or damaged; run the command again.") from error
