"""Records: what commands leave behind, as values and as folders that any later version can draw.

A folder holds `record.json` (what was asked, of what, with which versions, and the figures' words and settings), each
result's table as the Parquet file that `Result.save` writes and as CSV, and a Parquet file for each figure whose
columns do not stand in one of those tables. Commands add pictures. It is written whole or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.drawing.figure import Columns, Figure
from layerscope.errors import DataError, InputError, first_line
from layerscope.registry import FIGURES
from layerscope.results.finding import Finding, NextStep
from layerscope.results.result import (
    FigureCard,
    RecordCard,
    Result,
    ResultCard,
    SettingsCard,
    csv_text,
    view,
)
from layerscope.store import (
    inside,
    is_staging,
    json_text,
    linked_folder,
    parse_json,
    read_value,
    settled,
    shaped,
    write_json,
    write_text,
)
from layerscope.store.validated import MOST_TEXT, MOST_VALUES, read_parquet

if TYPE_CHECKING:
    import pandas


FORMAT = 3  # raise it when an older program would misread what is written
_PLAIN = 2  # the format before, in which findings were sentences alone; it is still read


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a command left: its figures and tables, its findings, and everything they depend on.

    Attributes:
        kind: The command.
        title: The record's title.
        figures: What is drawn, as data.
        tables: The results' tables by name.
        findings: What came out: sentences, each with its evidence, how sure it is and how much it answers.
        next: The command that goes on from there, or None.
        command: The command as it was typed.
        models: The models: name, weights (a hash), revision, class, blocks.
        data: The task, its split, fingerprint and number of rows.
        settings: Pool, seed, lengths and the like.
        versions: Of layerscope and the libraries under it.
        created: When it was written.
        seconds: How long the command took.
        format: The version of the files.
        results: Where the tables come from, where that is known.
        kinds: Which result each table is of, by the table's name, such as `advice` or `truncation`.
        files: What the command shows beside the record: names of files, and of folders of trainings.

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
    findings: Sequence[Finding] = ()
    next: NextStep | None = None
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
    kinds: Mapping[str, str] = field(default_factory=dict, compare=False)  # the results' names, by those of the tables

    @staticmethod
    def of(kind: str, title: str, results: Mapping[str, Result], **about: Any) -> Record:
        """The record of some results: figures, findings, models, data and settings are theirs.

        The last result that leads on to another command says which.
        """
        parts = list(results.values())
        provenances = [part.provenance for part in parts]
        models = {json_text(m, sort_keys=True): m for p in provenances for m in p.get("models", ())}
        settings = {name: value for p in reversed(provenances) for name, value in p.get("settings", {}).items()}
        findings = [*about.pop("findings", ()), *(finding for part in parts for finding in part.findings())]
        steps = [step for part in reversed(parts) if (step := part.next_step()) is not None]
        return Record(
            kind=kind,
            title=title,
            figures=about.pop("figures", None) or [figure for part in parts for figure in part.figures()],
            findings=findings,
            next=about.pop("next", None) or next(iter(steps), None),
            models=list(models.values()),
            data={**next((p["data"] for p in provenances if p.get("data")), {}), **(about.pop("data", None) or {})},
            settings={**settings, **{k: v for k, v in about.pop("settings", {}).items() if v is not None}},
            versions=next((p["versions"] for p in provenances if p.get("versions")), {}),
            results=results,
            kinds={name: result.name for name, result in results.items()},
            **about,
        )

    def frames(self, *kinds: str) -> list[pandas.DataFrame]:
        """The tables of results of some kinds, by what `kinds` says of them; a table of no known kind has its name."""
        frames = {**{name: result.frame for name, result in self.results.items()}, **self.tables}
        return [frame for name, frame in frames.items() if self.kinds.get(name, name) in kinds]

    def _repr_html_(self) -> str:
        """The findings, the first picture and the first table, for notebooks."""
        frames = [*self.tables.values(), *(result.frame for result in self.results.values())]
        return view(self.title, self.findings, self.figures, frames[0] if frames else None)


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
    with record_folder(Path(folder), record):
        return Path(folder)


@contextmanager
def record_folder(
    folder: Path, record: Record, shown: Collection[str] = (), plain: Collection[str] = ()
) -> Iterator[Path]:
    """Give a folder with a record's files, to add others to; it becomes `folder` when the block ends without an error.

    What is `shown` stands beside the folder as links, in the place of what an earlier run left `plain`.
    """
    if (folder / CARD).is_file() and _card(folder) is None:
        raise InputError(f"{folder} holds a {CARD} that is not a record's; give another path.")
    with linked_folder(folder, CARD, shown, plain=plain) as staging:
        tables = {name: f"{name}.parquet" for name in record.results}
        for name, file in tables.items():
            record.results[name].write_table(staging / file)
            write_text(staging / f"{name}.csv", csv_text(record.results[name].frame))
        columns = {file: _read(staging, file).to_pydict() for file in tables.values()}
        entries = []
        for k, figure in enumerate(record.figures):
            data = figure.data()
            file = next((file for file, existing in columns.items() if _stands_in(data, existing)), "")
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
            "findings": [asdict(finding) for finding in record.findings],
            "next": None if record.next is None else asdict(record.next),
            "models": [dict(model) for model in record.models],
            "data": dict(record.data),
            "settings": dict(record.settings),
            "versions": dict(record.versions),
            "tables": tables,
            "files": list(record.files),
            "figures": entries,
        }
        write_json(staging / CARD, card)
        yield staging


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
    if version not in (FORMAT, _PLAIN) or isinstance(version, bool):
        raise DataError(
            f"{folder} is a record of format {repr(version)[:40]}, and this version of layerscope reads format "
            f"{FORMAT}; update layerscope, or run the command again: {_command(raw)}."
        )

    @cache
    def columns(file: str) -> Columns:
        return _read(folder, file).to_pydict()

    try:
        _check_kinds(folder, raw)
        card = shaped(_with_findings(raw) if version == _PLAIN else raw, RecordCard)
        figures = tuple(_figure(folder, entry, columns) for entry in card.figures)
        tables = {name: _read(folder, file) for name, file in card.tables.items()}
        kinds = {name: _result_of(table) or name for name, table in tables.items()}
    except DataError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise DataError(f"The record {folder} is damaged ({first_line(error)}); run its command again.") from error
    step = None
    if card.next is not None:  # JSON has lists where a step has tuples
        parts: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in card.next}
        step = NextStep(**parts)
    plain = {name: getattr(card, name) for name in ("kind", "title", "command", "data", "settings", "created")}
    return Record(
        **plain,
        figures=figures,
        tables={name: table.to_pandas() for name, table in tables.items()},
        kinds=kinds,
        findings=tuple(Finding(**dict(finding)) for finding in card.findings),
        next=step,
        models=[dict(model) for model in card.models],
        versions=card.versions,
        seconds=card.seconds,
        files=tuple(card.files),
        format=version,
    )


def _with_findings(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a card of the format before with its sentences as findings of which nothing more is known."""
    findings = raw.get("findings")
    if not isinstance(findings, list):
        return dict(raw)
    return {**raw, "findings": [asdict(Finding(each)) if isinstance(each, str) else each for each in findings]}


def _result_of(table: Any) -> str:
    """Return the name of the result that wrote a pyarrow table, from its metadata; an empty text where they lack it."""
    try:
        return shaped(parse_json((table.schema.metadata or {})[b"layerscope"]), ResultCard).result
    except (KeyError, ValueError):
        return ""


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
    """Return the `record.json` of a record, or None where it is missing or something else's."""
    _refuse_old(folder)
    return _json_with(folder / CARD, _MARK)


def _json_with(file: Path, mark: str) -> dict[str, Any] | None:
    """Return the object in a JSON file, or None where there is no such file or it lacks the mark."""
    if not file.exists():
        return None
    card = read_value(inside(file.parent, file.name), way_out="run the command again")
    return card if isinstance(card, dict) and mark in card else None


def _refuse_old(folder: Path) -> None:
    """Raise DataError for a folder of 0.1, which had other files and other words in them."""
    if not (folder / CARD).is_file() and (card := _json_with(folder / _OLD_CARD, _OLD_MARK)) is not None:
        raise DataError(
            f"{folder} is a run folder of layerscope 0.1, which this version does not read; run the command again: "
            f"{_command(card)}."
        )


def _check_kinds(folder: Path, raw: Mapping[str, Any]) -> None:
    """Raise DataError about a figure of a kind that only a later version may know."""
    for entry in raw.get("figures") or () if isinstance(raw.get("figures"), list) else ():
        kind = entry.get("kind") if isinstance(entry, dict) else None
        if isinstance(kind, str) and kind not in FIGURES:
            raise DataError(f"{folder} has a figure of an unknown kind {kind[:40]!r}; known: {', '.join(FIGURES)}.")
        _checked(folder, entry.get("file") if isinstance(entry, dict) else None)


def _figure(folder: Path, entry: FigureCard, columns: Callable[[str], Columns]) -> Figure:
    """Return a figure from its entry in the card and the columns of its file; raise where these do not fit."""
    shaped(entry.settings, SettingsCard)
    data = columns(entry.file)
    if entry.kind != "table":
        unused = set(_EXTRAS) - set(entry.settings.get("extras", _EXTRAS))
        for name in data.keys() & {*_NUMBERS, *_TEXTS} - unused:
            _check_column(name, data[name])
    words = {name: getattr(entry, name) for name in ("title", "shows", "reading", "caveat", "group", "facets")}
    return FIGURES[entry.kind].restored(words, entry.settings, data)


def _check_column(name: str, values: Sequence[Any]) -> None:
    """Raise ValueError unless a column of a figure holds numbers, or texts, as its name says."""
    kinds: tuple[type, ...] = (float, int) if name in _NUMBERS else (str,)
    for row, value in enumerate(values):
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise ValueError(f"row {row} of the column {name!r} holds {str(value)[:40]!r}")


def _checked(folder: Path, file: Any) -> None:
    """Raise DataError unless a card names a plain Parquet file beside it."""
    if isinstance(file, str) and not _FILE.fullmatch(file):
        raise DataError(f"{folder} names a file {file[:60]!a}; only a Parquet file beside {CARD} is read.")


def _stands_in(data: Columns, table: Columns) -> bool:
    """Return whether the columns of a figure are columns of a table."""
    return bool(data) and all(name in table and repr(table[name]) == repr(values) for name, values in data.items())


def _write_columns(file: Path, columns: Columns) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), file)


def _read(folder: Path, file: str) -> Any:
    _checked(folder, file)
    path = inside(folder, file)
    return read_parquet(path, most_values=MOST_VALUES, most_text=MOST_TEXT, way_out="run the command again")
