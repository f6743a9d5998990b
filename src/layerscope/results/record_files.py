"""Records as folders, which any later version can draw.

A folder holds `record.json` (what was asked, of what, with which versions, and the figures' words and settings), each
result's table as the Parquet file that `Result.save` writes and as CSV, and a Parquet file for each figure whose
columns do not stand in one of those tables. It is written whole or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from layerscope.drawing.figure import KINDS, Columns, Figure
from layerscope.errors import DataError, InputError, first_line
from layerscope.results.cards import FigureCard, RecordCard, SettingsCard
from layerscope.results.record import FORMAT, Record
from layerscope.results.spreadsheet import csv_text
from layerscope.store import atomic_folder, inside, is_staging, read_value, settled, shaped, write_json, write_text
from layerscope.store.parquet import MOST_TEXT, MOST_VALUES, read_parquet

CARD = "record.json"
_MARK = "record_format"  # tells our record.json from other files of that name
_OLD_CARD, _OLD_MARK = "run.json", "run_format"  # what 0.1 wrote
_FILE = re.compile(r"[\w-]{1,200}\.parquet")
# Columns of figures that hold numbers and texts; the files of heat maps may have others of `_EXTRAS` than are drawn.
_NUMBERS = ("x", "y", "low", "high", "value", "baseline")
_TEXTS = ("series", "name", "label", "row_model", "row_layer", "column_model", "column_layer", "reason")
_EXTRAS = ("low", "high", "baseline")


def write_record(folder: str | Path, record: Record) -> Path:
    """Write a record's folder, whole or not at all.

    Args:
        folder: Where to; an earlier record of that name is replaced, anything else is left alone.
        record: The record.

    Returns:
        The folder.

    Example:
        >>> import numpy as np, tempfile, layerscope as ls
        >>> curve = ls.Curve("nu", ["model"] * 2, [0, 1], np.array([2.0, 1.0]))
        >>> record = ls.Record.of("specialty", "Specialty", {"nu": curve})
        >>> folder = ls.write_record(f"{tempfile.mkdtemp()}/record", record)
        >>> (folder / "record.json").is_file(), (folder / "nu.parquet").is_file()
        (True, True)
    """
    folder = Path(folder)
    _refuse_others(folder)
    with atomic_folder(folder, CARD) as staging:
        tables = {name: f"{name}.parquet" for name in record.results}
        for name, file in tables.items():
            record.results[name].write_table(staging / file)
            write_text(staging / f"{name}.csv", csv_text(record.results[name].frame))
        columns = {file: _read(staging, file).to_pydict() for file in tables.values()}
        entries = []
        for k, figure in enumerate(record.figures):
            data = figure.data()
            file = next((file for file, known in columns.items() if _stands_in(data, known)), "")
            if not file:
                file = f"{k + 1:03}-{figure.kind}.parquet"
                _write_columns(staging / file, data)
            entries.append({"kind": figure.kind, "file": file, **figure.words(), "settings": figure.settings()})
        card = {
            _MARK: FORMAT,
            "kind": record.kind,
            "title": record.title,
            "command": record.command,
            "created": record.created,
            "seconds": record.seconds,
            "findings": list(record.findings),
            "models": [dict(model) for model in record.models],
            "data": dict(record.data),
            "settings": dict(record.settings),
            "versions": dict(record.versions),
            "tables": tables,
            "files": list(record.files),
            "figures": entries,
        }
        write_json(staging / CARD, card)
    return folder


def read_record(folder: str | Path) -> Record:
    """Read the record in a folder.

    Args:
        folder: The folder, as a command or `ls.write_record` wrote it.

    Returns:
        The `Record`, with its tables and figures.

    Example:
        >>> import numpy as np, tempfile, layerscope as ls
        >>> curve = ls.Curve("nu", ["model"] * 2, [0, 1], np.array([2.0, 1.0]))
        >>> record = ls.Record.of("specialty", "Specialty", {"nu": curve})
        >>> ls.read_record(ls.write_record(f"{tempfile.mkdtemp()}/record", record)).tables["nu"]["nu"].tolist()
        [2.0, 1.0]
    """
    folder = settled(Path(folder))
    raw = _card(folder)
    if raw is None:
        raise DataError(f"{folder} is not a record: it has no {CARD}. Commands write one with -o.")
    version = raw[_MARK]
    if version != FORMAT or isinstance(version, bool):
        raise DataError(
            f"{folder} is a record of format {repr(version)[:40]}, and this version of layerscope reads format "
            f"{FORMAT}; update layerscope, or run the command again: {_command(raw)}."
        )

    @cache
    def columns(file: str) -> Columns:
        return _read(folder, file).to_pydict()

    try:
        _check_kinds(folder, raw)
        card = shaped(raw, RecordCard)
        figures = tuple(_figure(folder, entry, columns) for entry in card.figures)
        tables = {name: _read(folder, file).to_pandas() for name, file in card.tables.items()}
    except DataError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise DataError(f"The record {folder} is damaged ({first_line(error)}); run its command again.") from error
    plain = {name: getattr(card, name) for name in ("kind", "title", "command", "data", "settings", "created")}
    return Record(
        **plain,
        figures=figures,
        tables=tables,
        findings=tuple(card.findings),
        models=[dict(model) for model in card.models],
        versions=card.versions,
        seconds=card.seconds,
        files=tuple(card.files),
        format=FORMAT,
    )


def find_records(path: str | Path) -> list[Path]:
    """The records that a path means: itself, or those one or two folders down, in the order of their making."""
    path = settled(Path(path))
    if path.is_file():
        path = path.parent if path.name == CARD else path
    if not path.is_dir():
        raise InputError(f"There is no record {path}; commands write one with -o FOLDER.")
    if _card(path) is not None:
        return [path]
    files = [file for pattern in (f"*/{CARD}", f"*/*/{CARD}") for file in path.glob(pattern)]
    files = [file for file in files if not is_staging(file.relative_to(path))]
    cards = [(card, file.parent) for file in files if (card := _card(file.parent)) is not None]
    if not cards:
        _refuse_old(next(iter(sorted(path.glob(f"*/{_OLD_CARD}"))), path / _OLD_CARD).parent)
        raise InputError(
            f"{path} is not a record and holds none; commands write one with -o, such as "
            f"`layerscope compare MODEL --task TASK -o {path}`."
        )
    return [folder for _, folder in sorted(cards, key=lambda pair: (str(pair[0].get("created", "")), str(pair[1])))]


def _command(card: Mapping[str, Any]) -> str:
    return str(card.get("command") or card.get("kind") or "its command line is not recorded")


def _card(folder: Path) -> dict[str, Any] | None:
    """The `record.json` of a record, or None where it is missing or something else's."""
    _refuse_old(folder)
    return _json_with(folder / CARD, _MARK)


def _json_with(file: Path, mark: str) -> dict[str, Any] | None:
    if not file.exists():
        return None
    card = read_value(inside(file.parent, file.name), way_out="run the command again")
    return card if isinstance(card, dict) and mark in card else None


def _refuse_old(folder: Path) -> None:
    """Folders of 0.1 had other files and other words in them."""
    if not (folder / CARD).is_file() and (card := _json_with(folder / _OLD_CARD, _OLD_MARK)) is not None:
        raise DataError(
            f"{folder} is a run folder of layerscope 0.1, which this version does not read; run the command again: "
            f"{_command(card)}."
        )


def _refuse_others(folder: Path) -> None:
    """A folder whose `record.json` is not a record's is not overwritten."""
    if (folder / CARD).is_file() and _card(folder) is None:
        raise InputError(f"{folder} holds a {CARD} that is not a record's; give another path.")


def _check_kinds(folder: Path, raw: Mapping[str, Any]) -> None:
    """Figures that a later version may know get a sentence of their own."""
    for entry in raw.get("figures") or () if isinstance(raw.get("figures"), list) else ():
        kind = entry.get("kind") if isinstance(entry, dict) else None
        if isinstance(kind, str) and kind not in KINDS:
            raise DataError(f"{folder} has a figure of an unknown kind {kind[:40]!r}; known: {', '.join(KINDS)}.")
        _checked(folder, entry.get("file") if isinstance(entry, dict) else None)


def _figure(folder: Path, entry: FigureCard, columns: Callable[[str], Columns]) -> Figure:
    shaped(entry.settings, SettingsCard)
    data = columns(entry.file)
    if entry.kind != "table":
        unused = set(_EXTRAS) - set(entry.settings.get("extras", _EXTRAS))
        for name in data.keys() & {*_NUMBERS, *_TEXTS} - unused:
            _check_column(name, data[name])
    words = {name: getattr(entry, name) for name in ("title", "shows", "reading", "caveat", "group", "facets")}
    return KINDS[entry.kind].restored(words, entry.settings, data)


def _check_column(name: str, values: Sequence[Any]) -> None:
    """Raise unless a column of a figure holds numbers, or texts, as its name says."""
    kinds: tuple[type, ...] = (float, int) if name in _NUMBERS else (str,)
    for row, value in enumerate(values):
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise ValueError(f"row {row} of the column {name!r} holds {str(value)[:40]!r}")


def _checked(folder: Path, file: Any) -> None:
    if isinstance(file, str) and not _FILE.fullmatch(file):
        raise DataError(f"{folder} names a file {file[:60]!a}; only a Parquet file beside {CARD} is read.")


def _stands_in(data: Columns, table: Columns) -> bool:
    """Whether the columns of a figure are columns of a table."""
    return bool(data) and all(name in table and repr(table[name]) == repr(values) for name, values in data.items())


def _write_columns(file: Path, columns: Columns) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), file)


def _read(folder: Path, file: str) -> Any:
    _checked(folder, file)
    path = inside(folder, file)
    return read_parquet(path, most_values=MOST_VALUES, most_text=MOST_TEXT, way_out="run the command again")
