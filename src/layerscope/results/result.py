"""A result: a table, its figures, and where it comes from. Everything else about it is made of these."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.drawing.painting import draw, markup
from layerscope.errors import DataError, InputError
from layerscope.results.cards import ResultCard
from layerscope.results.spreadsheet import csv_text
from layerscope.store import json_text, parse_json, shaped, whole_file, write_text
from layerscope.store.parquet import MOST_TEXT, MOST_VALUES, read_parquet

if TYPE_CHECKING:
    import numpy as np
    import pandas
    from matplotlib.axes import Axes

    from layerscope.drawing.figure import Figure

FORMAT = 2  # of the Parquet files; raise it when an older program would misread what is written
_OTHERS = (".tsv", ".json", ".jsonl", ".xlsx", ".txt", ".html", ".png", ".pdf", ".svg")  # what a file is not called
_ROWS_SHOWN = 12  # of a table in a notebook
_COLUMNS_SHOWN = 12


class Result(ABC):
    """What a function that measures returns.

    `frame` is the table, `figures()` what is drawn of it, `provenance` the models (with hashes), data, settings and
    versions that it rests on. `plot`, `save`, the notebook's view, records and the report are made of these three.

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

    def findings(self) -> list[str]:
        """What came out, in sentences; none where the figures say it all."""
        return []

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
        path.parent.mkdir(parents=True, exist_ok=True)
        if ending == ".csv":
            write_text(path, csv_text(self.frame))
            return path
        with whole_file(path) as temporary:
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


def view(name: str, findings: Sequence[str], figures: Sequence[Figure], frame: pandas.DataFrame | None) -> str:
    """A result as HTML for notebooks: its first picture, and the first and last rows of its table."""
    pictures = [markup(figure) for figure in figures if figure.kind != "table"][:1]
    table = (
        [] if frame is None else [frame.to_html(max_rows=_ROWS_SHOWN, max_cols=_COLUMNS_SHOWN, index=False, border=0)]
    )
    said = [f"<p>{escape(sentence)}</p>" for sentence in findings]
    inside = "".join([f"<p><b>{escape(name)}</b></p>", *said, *pictures, *table])
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
    """The table and the card of a Parquet file that `Result.save` wrote."""
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
