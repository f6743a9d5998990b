"""Progress on stderr for long work; silent where stderr is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from layerscope.team import Team


@contextmanager
def progress(title: str, total: int | None, unit: str = "texts") -> Iterator[Callable[[float], None]]:
    """A bar with speed and time left; the yielded function is told how much more is done."""
    if not sys.stderr.isatty() or not Team.current().is_main:
        yield lambda _: None
        return

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),  # names of models and tasks may hold brackets
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    room = max(console.width // 2, 10)  # for the title; else a long one would push out the numbers
    with Progress(*columns, console=console, transient=True) as bar:
        job = bar.add_task(title if len(title) <= room else f"{title[: room - 1]}…", total=total)
        yield lambda done: bar.advance(job, done)
