"""Progress on stderr for long work; silent where stderr is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from layerscope.team import Team

_TITLE = 36  # characters, so that the counts beside it stay whole in a terminal of 80


@contextmanager
def progress(title: str, total: int, unit: str = "texts") -> Iterator[Callable[[float], None]]:
    """A bar with speed and time left; the yielded function is told how much more is done."""
    if not sys.stderr.isatty() or not Team.current().is_main:
        yield lambda _: None
        return

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
    )
    short = title if len(title) <= _TITLE else title[: _TITLE - 1] + "…"
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        job = bar.add_task(short, total=total)
        yield lambda done: bar.advance(job, done)
