"""`ls.paper_figures`: every figure of a record as a file of its own, in one style and of one width."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from layerscope.drawing.figure import Figure
from layerscope.drawing.figures.table import TableFigure
from layerscope.drawing.render import FORMATS, draw
from layerscope.errors import InputError, choose
from layerscope.reporting import latex
from layerscope.results import Record, csv_text, find_records, read_record
from layerscope.store import check_name, linked_folder, write_text

_FOLDER, _MARKER = "paper-figures", "about.txt"  # what the files lie in, and by what it is known
_ABOUT = "The figures that `layerscope figures` drew. The files beside this folder are links into it.\n"
TEX, _TEX_FILE = "tex", "figures.tex"
WIDTH = "6.75in"  # two columns of most conferences
_INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}


def paper_figures(
    record: str | Path | Record,
    folder: str | Path = "figures",
    *,
    format: str = "pdf",
    width: str | float = WIDTH,
    titles: bool = False,
) -> list[Path]:
    """Draw every figure of a record (or of the records in a folder) as a file; tables become CSV files.

    The files are links into the folder `paper-figures` beside them, which is exchanged as a whole, so that they are of
    one run whenever they are looked at. Files of the same names are replaced, others stay. A file is called after the
    folders between the one that was given and its record, the kind of record, its place in that and its title.

    Args:
        record: A record's folder, a folder that holds some, or a `Record`.
        folder: Where to write.
        format: pdf, svg, png or tex, or several with commas. tex writes `figures.tex` beside the figures in PDF: each
            with its caption, and the first rows of each table for the package booktabs, without its empty columns.
        width: In inches, or a text with its unit: 6.75in, 8cm, 85mm, 240pt.
        titles: Write each figure's title above it.

    Returns:
        The files.

    Example:
        >>> import tempfile, numpy as np, layerscope as ls
        >>> record = ls.Record.of("compare", "Two layers", {"cka": ls.compare([np.eye(4), np.eye(4) ** 2])})
        >>> [path.name for path in ls.paper_figures(record, tempfile.mkdtemp(), format="png")]
        ['compare-01-similarity-of-layers-cka.png']
    """
    import pandas

    wanted = dict.fromkeys(part.strip() for part in format.split(","))
    formats = [choose("figure format", part, (*FORMATS, TEX)) for part in wanted]
    with_tex = TEX in formats
    drawn = [ending for ending in dict.fromkeys(["pdf", *formats] if with_tex else formats) if ending != TEX]
    inches = inches_of(width)
    folder = Path(folder)
    check_name(folder)
    if os.path.isfile(folder):
        raise InputError(f"{folder} is a file; figures need a folder.")
    named = list(_named(_records(record)))
    files: dict[str, Figure] = {}
    for name, figure in named:
        endings = ["csv"] if isinstance(figure, TableFigure) else drawn
        files |= {f"{name}.{ending}": figure for ending in endings}
    names = [*files, *([_TEX_FILE] if with_tex else [])]
    try:
        with linked_folder(folder / _FOLDER, _MARKER, names, plain=names, adding=True) as staging:
            write_text(staging / _MARKER, _ABOUT)
            if with_tex:
                write_text(staging / _TEX_FILE, latex.floats(named))
            for name, figure in files.items():
                if isinstance(figure, TableFigure):
                    write_text(staging / name, csv_text(pandas.DataFrame(dict(figure.table))))
                else:
                    draw(figure, staging / name, width=inches, title=titles)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}; give another folder.") from error
    return [folder / name for name in names]


def _records(source: str | Path | Record) -> list[tuple[str, Record]]:
    """Return records with what tells each from others of its kind: its folders below the one that was given."""
    if isinstance(source, Record):
        return [("", source)]
    found = []
    for folder in find_records(source):
        record = read_record(folder)
        below = folder.relative_to(source).parts if folder.is_relative_to(source) else ()
        own = [part.removesuffix("-record") for part in below]
        # A command calls the folder of its record after its kind, which the name says anyway.
        found.append((" ".join(own[:-1] if own[-1:] == [record.kind] else own), record))
    return found


def _named(records: Sequence[tuple[str, Record]]) -> Iterator[tuple[str, Figure]]:
    """Yield every figure with the unique name of its file: records that have one name are numbered."""
    taken: set[str] = set()
    for place, record in records:
        name, number = slug(f"{place} {record.kind}"), 1
        while (kind := name if number == 1 else f"{name}{number}") in taken:
            number += 1
        taken.add(kind)
        for k, figure in enumerate(record.figures):
            facets = [facet for facet in figure.facets.values() if facet not in figure.title]
            yield f"{kind}-{k + 1:02}-{slug(' '.join([figure.title, *facets]))}", figure


def inches_of(width: str | float) -> float:
    """Return the inches of `6.75in`, `8cm`, `85mm`, `240pt` or a number of inches."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*(in|cm|mm|pt)?\s*", str(width))
    try:
        inches = float(match.group(1)) * _INCHES[match.group(2) or "in"] if match else 0.0
    except ValueError:
        inches = 0.0
    if not 1.0 <= inches <= 40.0:
        raise InputError(
            f"The width {str(width)!r} is not a width of 1 to 40 inches; write 6.75in, 8cm, 85mm or 240pt."
        )
    return inches


def slug(text: str) -> str:
    """Return a text as a file name of plain letters."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60].strip("-") or "figure"
