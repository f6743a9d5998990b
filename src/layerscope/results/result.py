"""`Result`: a table, its figures, its findings, and its provenance. Everything else about a result is made of these.

Also the schemas of a record's `record.json` and of a saved result's metadata, CSV that is safe to open in a
spreadsheet, where no text is a formula, and provenance: models with hashes, data, settings, versions.
"""

from __future__ import annotations

import importlib.metadata
import platform
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Field

from layerscope.drawing.render import draw, markup
from layerscope.errors import DataError, InputError
from layerscope.results.finding import ANSWER, DETAIL, Finding, NextStep
from layerscope.store import Saved, json_text, output_file, parse_json, shaped
from layerscope.store.validated import MOST_TEXT, MOST_VALUES, read_parquet
from layerscope.version import __version__

if TYPE_CHECKING:
    import numpy as np
    import pandas
    from matplotlib.axes import Axes

    from layerscope.drawing.figure import Figure


LONGEST = 20_000  # characters of a sentence or a name
MOST_FIGURES = 2000
Text = Annotated[str, Field(max_length=LONGEST)]
Mark = Annotated[list[Text | float | int], Field(min_length=2, max_length=2)]


class SettingsCard(Saved):
    """The settings of a figure that are not columns; each kind of figure has some of these."""

    x_name: Text | None = None
    y_name: Text | None = None
    value_name: Text | None = None
    row_name: Text | None = None
    column_name: Text | None = None
    right_name: Text | None = None
    row_names: list[Text] | None = None
    column_names: list[Text] | None = None
    references: list[Mark] | None = None
    marks: list[Mark] | None = None
    scale: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None
    shape: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2)] | None = None
    extras: list[Text] | None = None
    cuts: list[int] | None = None
    marked: list[Annotated[list[int], Field(min_length=2, max_length=2)]] | None = None
    joined: list[Text] | None = None
    stressed: list[Text] | None = None
    log: bool | None = None
    n: int | None = None


class FigureCard(Saved):
    """A figure of a record: its words, and the file with its columns."""

    kind: str
    file: str
    title: Text
    shows: Text
    reading: Text
    caveat: Text
    group: Text
    facets: dict[str, Text]
    settings: dict[str, Any]


class ModelCard(Saved):
    """A model of a record; what else is known of it stands beside its name."""

    model_config = ConfigDict(extra="allow")
    name: Text


class FindingCard(Saved):
    """A finding of a record."""

    text: Text
    evidence: Text
    sure: bool | None
    weight: Annotated[int, Field(ge=DETAIL, le=ANSWER)]


class NextCard(Saved):
    """The command that goes on from a record; see `NextStep`."""

    command: Text
    arguments: list[Text]
    why: Text
    models: list[Text]
    saved: Text | None
    again: list[Text]
    line: Text


class RecordCard(Saved):
    """The contents of `record.json`."""

    kind: Text
    title: Text
    command: Text
    created: Text
    seconds: float | None
    findings: list[FindingCard]
    next: NextCard | None = None
    models: list[ModelCard]
    data: dict[str, Any]
    settings: dict[str, Any]
    versions: dict[str, str]
    tables: dict[str, str]
    files: list[str] = Field(default_factory=list)
    figures: list[FigureCard] = Field(max_length=MOST_FIGURES)


class ResultCard(Saved):
    """The metadata of a result's Parquet file."""

    model_config = ConfigDict(extra="allow")
    format: Any
    result: str = "similarity"
    provenance: dict[str, Any] = Field(default_factory=dict)


_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a cell begins with that a spreadsheet computes


def csv_text(frame: pandas.DataFrame) -> str:
    """A table as CSV. Texts that begin like a formula get an apostrophe before them; numbers stay as they are."""
    import pandas

    safe = frame.rename(columns=_plain)
    for place, kind in enumerate(safe.dtypes):
        if not pandas.api.types.is_numeric_dtype(kind):
            safe.isetitem(place, safe.iloc[:, place].map(_plain).array)
    return safe.to_csv(index=False)


def _plain(value: Any) -> Any:
    """Return a text in a form that no spreadsheet computes and that stays in its row; other values as they are."""
    if not isinstance(value, str):
        return value
    text = f"'{value}" if value.startswith(_FORMULA) else value
    return text.replace("\r\n", "\n").replace("\r", "\n")  # by itself it would begin a row


FORMAT = 2  # of the Parquet files; raise it when an older program would misread what is written
_OTHERS = (".tsv", ".json", ".jsonl", ".xlsx", ".txt", ".html", ".png", ".pdf", ".svg")  # what a file is not called
_ROWS_SHOWN = 12  # of a table in a notebook
_COLUMNS_SHOWN = 12


class Result(ABC):
    """What a function that measures returns.

    `frame` is the table, `figures()` what is drawn of it, `provenance` the models (with hashes), data, settings and
    versions that it rests on. `findings()` say what came out, and `next_step()` which command goes on from there.
    `plot`, `save`, the notebook's view, records and the report are made of these.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> rows = np.random.default_rng(0).normal(size=(50, 4))
        >>> result = ls.compare([rows, rows**2])
        >>> isinstance(result, ls.Result), sorted(result.provenance)
        (True, ['data', 'models', 'settings', 'versions'])
        >>> result.figures()[0].n
        50
    """

    name: str  # in records and file names
    provenance: Mapping[str, Any]

    @property
    @abstractmethod
    def frame(self) -> pandas.DataFrame:
        """The result as a tidy table."""

    @abstractmethod
    def figures(self) -> list[Figure]:
        """What is drawn of the result, as data; the first one is its picture."""

    def findings(self) -> list[Finding]:
        """What came out, in sentences with their evidence; none where the figures say it all."""
        return []

    def next_step(self) -> NextStep | None:
        """The command that goes on from the result, or None where there is none."""
        return None

    def plot(self, path: str | Path | None = None, ax: Axes | None = None) -> Axes:
        """Draw the first figure: into `ax`, into a file (PNG, SVG or PDF), or into axes of its own."""
        return draw(self.figures()[0], path, ax)

    def save(self, path: str | Path) -> Path:
        """Write the table as Parquet, with everything else in its metadata, or alone as CSV where the name ends so."""
        path = Path(path)
        ending = path.suffix.lower()
        if ending in _OTHERS:
            raise InputError(
                f"A result is saved as Parquet (.parquet), or its table alone as CSV (.csv), and {path.name} ends in "
                f"{ending}; plot draws it, and .frame is a pandas table that can be written in other ways."
            )
        with output_file(path) as temporary:
            if ending == ".csv":
                temporary.write_text(csv_text(self.frame), encoding="utf-8", errors="replace", newline="")
            else:
                self.write_table(temporary)
        return path

    def write_table(self, path: Path) -> None:
        """The Parquet file that `save` and records write."""
        import pyarrow.parquet

        card = {"format": FORMAT, "result": self.name, "provenance": dict(self.provenance), **self.card()}
        table = self.arrow().replace_schema_metadata({"layerscope": json_text(card)})
        pyarrow.parquet.write_table(table, path)

    def arrow(self) -> Any:
        """The table as pyarrow has it."""
        import pyarrow

        return pyarrow.Table.from_pandas(self.frame, preserve_index=False)

    def card(self) -> dict[str, Any]:
        """What the result is beside its table, as JSON has it."""
        return {}

    def _repr_html_(self) -> str:
        """What it is, what came out, the picture and the table, for notebooks."""
        return view(repr(self), self.findings(), self.figures(), self.frame)


def view(name: str, findings: Sequence[Finding], figures: Sequence[Figure], frame: pandas.DataFrame | None) -> str:
    """Return a result as HTML for notebooks: its first picture, and the first and last rows of its table."""
    pictures = [markup(figure) for figure in figures if figure.kind != "table"][:1]
    table = (
        [] if frame is None else [frame.to_html(max_rows=_ROWS_SHOWN, max_cols=_COLUMNS_SHOWN, index=False, border=0)]
    )
    sentences = [f"<p>{escape(str(finding))}</p>" for finding in findings]
    inside = "".join([f"<p><b>{escape(name)}</b></p>", *sentences, *pictures, *table])
    return f'<div style="overflow-x: auto">{inside}</div>'


class Tabled(Result):
    """A result that is the table it is made with.

    `left_out` has what the table's numbers would be without each of some groups of texts, so that two of them can be
    compared text for text; None where that is not known.
    """

    def __init__(
        self, frame: pandas.DataFrame, provenance: Mapping[str, Any], left_out: np.ndarray | None = None
    ) -> None:
        self._frame, self.provenance, self.left_out = frame, provenance, left_out

    @property
    def frame(self) -> pandas.DataFrame:
        return self._frame


class Table(Tabled):
    """A table with the figures that were drawn of it."""

    def __init__(
        self, frame: pandas.DataFrame, figures: list[Figure], provenance: Mapping[str, Any], name: str = "table"
    ) -> None:
        super().__init__(frame, provenance)
        self._figures, self.name = figures, name

    def figures(self) -> list[Figure]:
        return self._figures

    def __repr__(self) -> str:
        return f"{self.name}: {len(self._frame)} rows, columns {', '.join(map(str, self._frame.columns))}"


def read_table(path: str | Path, result: str) -> tuple[pandas.DataFrame, dict[str, Any]]:
    """Return the table and the card of a Parquet file that `Result.save` wrote."""
    what = f"{path} is not a {result} that layerscope saved"
    try:
        table = read_parquet(Path(path), most_values=MOST_VALUES, most_text=MOST_TEXT)
        card = shaped(parse_json((table.schema.metadata or {})[b"layerscope"]), ResultCard)
    except DataError as error:
        raise DataError(f"{what}: {error}") from error
    except (KeyError, ValueError) as error:
        raise DataError(f"{what}.") from error
    if card.format != FORMAT:
        raise DataError(
            f"{path} is in format {str(card.format)[:40]}, and this version reads format {FORMAT}; make it again with "
            "the command that made it."
        )
    if card.result != result:
        raise DataError(f"{path} holds a {card.result[:40]}, not a {result}.")
    return table.to_pandas(), dict(card)


_LIBRARIES = ("torch", "transformers", "tokenizers", "peft", "datasets", "numpy", "scipy", "scikit-learn")


def provenance_of(
    models: Iterable[Any] = (), data: Any = None, settings: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return what a result rests on. `models` are Models or descriptions of such, `data` is Examples likewise.

    Settings that are None were not given and are left out.
    """
    described = [dict(m) if isinstance(m, Mapping) else m.described() for m in models]
    source = {} if data is None else dict(data) if isinstance(data, Mapping) else data.described()
    given = {name: value for name, value in (settings or {}).items() if value is not None}
    return {"models": described, "data": source, "settings": given, "versions": versions()}


@cache
def _libraries() -> tuple[tuple[str, str], ...]:
    """Return the names and versions of layerscope, Python and the libraries that are installed."""
    found = [("layerscope", __version__), ("python", platform.python_version())]
    for name in _LIBRARIES:
        try:
            found.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return tuple(found)


def versions() -> dict[str, str]:
    """Return layerscope's version and those of the libraries under it."""
    return dict(_libraries())
