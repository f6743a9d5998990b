"""Records: folders in which commands leave their results, as values that any later version can draw.

A record holds `record.json` (what was asked, of what, with which versions, and the figures' words and settings), each
result's table as the Parquet file that `Result.save` writes, and a Parquet file for each figure whose columns do not
stand in one of those tables. It is written whole or not at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.drawing.figure import KINDS, Columns, Figure
from layerscope.errors import DataError, InputError
from layerscope.results.result import Result
from layerscope.store import atomic_folder, is_staging, settled, write_json

if TYPE_CHECKING:
    import pandas

FORMAT = 2  # raise it when an older program would misread what is written
CARD = "record.json"
_MARK = "record_format"  # tells our record.json from other files of that name
_OLD_CARD, _OLD_MARK = "run.json", "run_format"  # what 0.1 wrote
_FILE = re.compile(r"[\w-]+\.parquet")


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a command left: its figures and tables, its findings in sentences, and everything they depend on.

    Attributes:
        kind: The command.
        title: The record's title.
        figures: What is drawn, as data.
        tables: The results' tables by name.
        findings: What came out, in sentences.
        command: The command as it was typed.
        models: The models: name, weights (a hash), revision, class, blocks.
        data: The task, its split, fingerprint and number of rows.
        settings: Pool, seed, lengths and the like.
        versions: Of layerscope and the libraries under it.
        created: When it was written.
        seconds: How long the command took.
        format: The version of the files.
        results: Where the tables come from, where that is known.
        files: What the command wrote beside the record: names of files, and of folders of trainings.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> curve = ls.Curve("nu", ["model"] * 2, [0, 1], np.array([2.0, 1.0]))
        >>> record = ls.Record.of("specialty", "Specialty", {"nu": curve})
        >>> [figure.title for figure in record.figures]
        ['nu of every layer']
    """

    kind: str  # the command
    title: str
    figures: Sequence[Figure]
    tables: Mapping[str, pandas.DataFrame] = field(default_factory=dict)  # of the results, by name
    findings: Sequence[str] = ()
    command: str = ""
    models: Sequence[Mapping[str, Any]] = ()  # name, weights (a hash), revision, class, blocks
    data: Mapping[str, Any] = field(default_factory=dict)  # task, split, fingerprint, n
    settings: Mapping[str, Any] = field(default_factory=dict)  # pool, seed, lengths ..
    versions: Mapping[str, str] = field(default_factory=dict)  # layerscope and the libraries under it
    created: str = ""
    seconds: float | None = None
    format: int = FORMAT
    results: Mapping[str, Result] = field(default_factory=dict, compare=False)  # where the tables come from, if known
    files: Sequence[str] = ()  # beside the record

    @staticmethod
    def of(kind: str, title: str, results: Mapping[str, Result], **about: Any) -> Record:
        """The record of some results: figures, findings, models, data and settings are theirs."""
        parts = list(results.values())
        known = [part.provenance for part in parts]
        models = {json.dumps(m, sort_keys=True): m for p in known for m in p.get("models", ())}
        settings = {name: value for p in reversed(known) for name, value in p.get("settings", {}).items()}
        said = [sentence for part in parts for sentence in part.findings()]
        findings = [*about.pop("findings", ()), *said]
        return Record(
            kind=kind,
            title=title,
            figures=about.pop("figures", None) or [figure for part in parts for figure in part.figures()],
            findings=findings,
            models=list(models.values()),
            data={**next((p["data"] for p in known if p.get("data")), {}), **(about.pop("data", None) or {})},
            settings={**settings, **{k: v for k, v in about.pop("settings", {}).items() if v is not None}},
            versions=next((p["versions"] for p in known if p.get("versions")), {}),
            results=results,
            **about,
        )

    def with_findings(self, findings: Sequence[str]) -> Record:
        """The same record with other sentences."""
        return replace(self, findings=list(findings))


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
        columns = {file: _read_columns(staging / file) for file in tables.values()}
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
    card = _card(folder)
    if card is None:
        raise DataError(f"{folder} is not a record: it has no {CARD}. Commands write one with -o.")
    version = card[_MARK]
    if version != FORMAT:
        raise DataError(
            f"{folder} is a record of format {version!r}, and this version of layerscope reads format {FORMAT}; "
            f"update layerscope, or run the command again: {_command(card)}."
        )

    @cache
    def columns(file: str) -> Columns:
        return _read_columns(folder / file)

    try:
        return Record(
            kind=str(card["kind"]),
            title=str(card["title"]),
            figures=tuple(_figure(folder, entry, columns) for entry in card["figures"]),
            tables={str(name): _read_frame(folder / _checked(folder, str(f))) for name, f in card["tables"].items()},
            findings=tuple(map(str, card["findings"])),
            format=version,
            **{name: card[name] for name in ("command", "models", "data", "settings", "versions", "created")},
            seconds=card["seconds"],
            files=tuple(map(str, card.get("files", ()))),
        )
    except DataError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise DataError(
            f"The record {folder} is damaged ({type(error).__name__}: {error}); run its command again."
        ) from error


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
    try:
        card = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read ({error}); run the command again.") from error
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


def _figure(folder: Path, entry: Mapping[str, Any], columns: Any) -> Figure:
    kind = str(entry["kind"])
    if kind not in KINDS:
        raise DataError(f"{folder} has a figure of an unknown kind {kind!r}; known: {', '.join(KINDS)}.")
    file = _checked(folder, str(entry["file"]))
    words = {name: entry[name] for name in ("title", "shows", "reading", "caveat", "group", "facets")}
    return KINDS[kind].restored(words, entry["settings"], columns(file))


def _checked(folder: Path, file: str) -> str:
    if not _FILE.fullmatch(file):
        raise DataError(f"{folder} names a file {file!r}; only a Parquet file beside {CARD} is read.")
    return file


def _stands_in(data: Columns, table: Columns) -> bool:
    """Whether the columns of a figure are columns of a table."""
    return bool(data) and all(name in table and repr(table[name]) == repr(values) for name, values in data.items())


def _write_columns(file: Path, columns: Columns) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), file)


def _read_columns(file: Path) -> Columns:
    return _read(file).to_pydict()


def _read_frame(file: Path) -> pandas.DataFrame:
    return _read(file).to_pandas()


def _read(file: Path) -> Any:
    import pyarrow
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_table(file)
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise DataError(f"{file} is missing or damaged; run the command again.") from error
