"""What goes to the standard streams beside a command's own output: notes, and streams that cannot take them.

How help texts look: an option that takes no value shows none.

How commands print: a table for people or JSON for programs, on stdout.
"""

from __future__ import annotations

import io
import json
import logging
import math
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import wraps
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from layerscope.distributed import Team
from layerscope.drawing.captions import heading
from layerscope.errors import NOTICE, LayerscopeWarning, TargetError, log
from layerscope.progress import hush

if TYPE_CHECKING:
    from pandas import DataFrame


_python_shows = warnings.showwarning


def prepare(verbose: bool, quiet: bool = False) -> None:
    """Send notes to stderr, each once; where it is `quiet`, only warnings.

    Closed streams go nowhere; what one cannot spell is written as an escape.
    """
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  (open as long as the program runs)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("note: %(message)s"))
    handler.addFilter(_Once())
    log.addHandler(handler)
    log.setLevel(logging.INFO if verbose else logging.WARNING if quiet else NOTICE)
    hush(quiet)
    if Team.is_helper():  # the main process speaks for all
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        log.setLevel(logging.ERROR)
    log.propagate = False
    warnings.showwarning = _as_note  # type: ignore[assignment]


class _Once(logging.Filter):
    """Lets each note through once: a study of many runs has the same to say of each."""

    def __init__(self) -> None:
        super().__init__()
        self.said: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        new = (said := record.getMessage()) not in self.said
        self.said.add(said)
        return new


def _as_note(message: Warning | str, category: type[Warning], *place: Any) -> None:
    """Our own warnings read as notes; others as Python shows them."""
    if issubclass(category, LayerscopeWarning):
        log.warning("%s", message)
    else:
        _python_shows(message, category, *place)


ALL = "All of it, for a model of your own"  # panels of `layerscope --help`
ALIKE = "Which layers represent the same thing?"
LOSE = "Which blocks can a model lose, and what does each cost?"
TUNE = "Which layers are worth tuning for a task?"
STAND = "Can one model stand in for another?"
REST = "Reports, papers, and what there is"
DATA = "What the data set holds"  # panels of a command's help text: options that most readers skip
ASKED = "How language and embedding models are asked"


_MEANT = {"--json": "--format json", "--csv": "--out FOLDER", "--parquet": "--out FOLDER"}  # what others call so


class Command(TyperCommand):
    """A command whose flags are shown without `<bool>`, which would read as a value to give."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # typer has its own copy of click's error for an unknown option
            if meant := _MEANT.get(getattr(error, "option_name", "")):
                error.possibilities = [meant]  # type: ignore[attr-defined]
            raise

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_values(super().get_params(ctx))


class Group(TyperGroup):
    """The same for what holds commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_values(super().get_params(ctx))


def _without_values(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


class Format(StrEnum):
    table = "table"
    json = "json"


def given_formats(format: str | None) -> list[str]:
    """Return what `--format` names, with commas: `figures` takes formats of pictures beside json."""
    return [part.strip() for part in (format or "").split(",") if part.strip()]


def asks_for_json(format: str | None) -> bool:
    """Return whether `--format` asks for one JSON object."""
    return Format.json in given_formats(format)


FORMAT = typer.Option(Format.table, "--format", help="How to print: a table, or one JSON object for programs.")


NOT_MET = 3  # exit code: done, and what was asked for is not met


@dataclass
class Answer:
    """What a command answers: with `--format json` one object, which is printed when the command is done.

    Attributes:
        asked: The command, its line and the options that were given.
        verdict: Whether a target or a tolerance is met, with the bound; None where none was asked for.
        choice: What the command chose: a plan, a layer, a strategy.
        saved: Where a checkpoint or states were saved, and how.
        tables: The tables by name; `table` is the command's own.
        findings: What came out, in sentences.
        record: The folder of the record.
        warnings: What was warned about.
    """

    asked: dict[str, Any] = field(default_factory=dict)
    verdict: dict[str, Any] | None = None
    choice: dict[str, Any] | None = None
    saved: dict[str, Any] | None = None
    tables: dict[str, list[dict[Any, Any]]] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    record: str | None = None
    warnings: list[str] = field(default_factory=list)

    def add(self, rows: Sequence[Mapping[Any, Any]], name: str = "table") -> None:
        """Add rows to a table."""
        self.tables.setdefault(name, []).extend(_plain_rows(rows))

    def print(self) -> None:
        """Print the object."""
        parts = {each.name: getattr(self, each.name) for each in fields(self)}
        tables = parts.pop("tables")
        more = {name: rows for name, rows in tables.items() if name != "table"}
        _print_json(_plain_parts({**parts, "table": tables.get("table", []), "more": more}))


_answer = Answer()


def answer() -> Answer:
    """The answer of the command that runs."""
    return _answer


class _Warned(logging.Handler):
    """Keeps warnings for the answer."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING and (message := record.getMessage()) not in _answer.warnings:
            _answer.warnings.append(message)


@contextmanager
def answering(command: str, options: Mapping[str, Any]) -> Iterator[None]:
    """Begin an answer; print it as JSON where that was asked for, and end with exit code 3 where it is not met."""
    global _answer  # noqa: PLW0603  (one command runs at a time)
    given = {name: value for name, value in options.items() if value not in (None, False, [], ())}
    line = shlex.join(["layerscope", *sys.argv[1:]])
    _answer = Answer({"command": command, "line": line, "options": {k: _plain_option(v) for k, v in given.items()}})
    handler, ended = _Warned(), None
    log.addHandler(handler)
    try:
        yield
    except TargetError as error:
        _answer.verdict = {"met": False, "says": str(error)}
        print(f"not met: {error}", file=sys.stderr)
    except typer.Exit as stop:
        ended = stop
    finally:
        log.removeHandler(handler)
    if asks_for_json(options.get("format")):
        _answer.print()
    if ended is not None:
        raise ended
    if _answer.verdict is not None and _answer.verdict["met"] is False:
        raise typer.Exit(NOT_MET)


def answered(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make the function of a command that declares its options itself one that gives an answer."""

    def make(run: Callable[..., None]) -> Callable[..., None]:
        @wraps(run)
        def entry(**values: Any) -> None:
            with answering(name, values):
                run(**values)

        return entry

    return make


def _plain_option(value: Any) -> Any:
    """An option's value as JSON has it."""
    if isinstance(value, (list, tuple)):
        return [_plain_option(each) for each in value]
    return value if isinstance(value, (bool, int, float)) else str(value)


def show(rows: Sequence[Mapping[Any, Any]], format: Format, title: str = "", name: str = "table") -> None:
    """Print records as a table, or add them to what is printed as JSON, under a name."""
    if format is Format.json:
        _answer.add(rows, name)
        return

    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else _PIPE)
    if title:
        console.print(Text(title, style="bold"), soft_wrap=True)
    columns = [Column(heading(str(name)), [row[name] for row in rows]) for name in (rows[0] if rows else ())]
    for part in side_by_side(columns, console.width):
        table = Table(box=box.SIMPLE_HEAD)
        for column, width in zip(part, widths(part, console.width), strict=True):
            side: Any = "right" if column.numeric else "left"
            table.add_column(column.name, justify=side, overflow="fold", width=width)
        for cells in zip(*(column.cells for column in part), strict=True):
            table.add_row(*map(Text, cells))
        console.print(table)


_GAP = 3  # characters between two columns
_PIPE = 5000  # characters: a pipe has no width, and nothing is folded there
_LONGEST = 32  # a word of more characters than this may be broken


class Column:
    """A column of a table: its cells as they are printed, and how narrow it can be."""

    def __init__(self, name: str, values: Sequence[Any]) -> None:
        from rich.cells import cell_len

        self.name, self.cells = name, [_spell(value) for value in values]
        self.numeric = all(value is None or isinstance(value, (int, float)) for value in values)
        self.most = max(map(cell_len, (name, *self.cells)))
        words = [word for text in (name, *self.cells) for word in text.split()]
        longest = max(map(cell_len, words), default=1)
        self.least = longest if self.numeric else min(longest, _LONGEST)


def fits(columns: Sequence[Column]) -> bool:
    """Whether columns stand beside one another in this terminal without a broken number."""
    from rich.console import Console

    return sum(column.least + _GAP for column in columns) < (Console().width if sys.stdout.isatty() else _PIPE)


def side_by_side(columns: Sequence[Column], room: int) -> Iterator[list[Column]]:
    """Columns in groups that fit beside one another without a broken number; each begins with the first column."""
    part = list(columns[:1])
    for column in columns[1:]:
        if len(part) > 1 and sum(each.least + _GAP for each in (*part, column)) >= room:
            yield part
            part = [columns[0]]
        part.append(column)
    yield part


def widths(columns: Sequence[Column], room: int) -> list[int]:
    """How wide each column is: what it must be, and then the narrowest that is cut gets the next character."""
    chosen = [column.least for column in columns]
    for _ in range(room - 1 - sum(width + _GAP for width in chosen)):
        cut = [k for k, column in enumerate(columns) if chosen[k] < column.most]
        if not cut:
            break
        chosen[min(cut, key=chosen.__getitem__)] += 1
    return chosen


def show_scores(frame: DataFrame, format: Format, title: str) -> None:
    """Print one score per row; what is the same in every row stands in the title, but in JSON."""
    rows = frame.to_dict("records")
    if format is Format.table:
        task, split, metric, n = (frame[name].iloc[0] for name in ("task", "split", "metric", "n"))
        rows_are = "windows" if metric in ("perplexity", "bits_per_byte") else "texts"
        title += f"; {metric} on {n} {rows_are} of {task} ({split}); macs: multiply-adds of a text of 128 tokens"
        if "whole" in frame:
            title += f"; the whole model scores {frame['whole'].iloc[0]:.4f}"
        rows = frame.drop(columns=["task", "split", "metric", "n", "whole"], errors="ignore").to_dict("records")
    show(rows, format, title)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=1, ensure_ascii="utf" not in (sys.stdout.encoding or "").lower()))


def _plain_rows(rows: Sequence[Mapping[Any, Any]]) -> list[dict[Any, Any]]:
    return [{name: _plain(value) for name, value in row.items()} for row in rows]


def _plain_parts(value: Any) -> Any:
    """Nested lists and mappings with plain values."""
    if isinstance(value, Mapping):
        return {str(name): _plain_parts(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain_parts(part) for part in value]
    return _plain(value)


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _spell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
