"""Progress of long work: a bar on stderr in a terminal or in a notebook's page, elsewhere a line for every tenth."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from layerscope.distributed import Team
from layerscope.errors import NOTICE, log

_LONG = 10.0  # seconds before a line is written where there is no terminal
_hushed = False
_EVERY = 0.2  # seconds between two updates of a notebook's bar


@contextmanager
def progress(title: str, total: int | None, unit: str = "texts") -> Iterator[Callable[[float], None]]:
    """Show progress with the time left while the block runs; call the yielded function with how much more is done."""
    if not Team.current().is_main or _hushed:
        yield lambda _: None
    elif in_notebook():
        with _in_page(title, total, unit) as advance:
            yield advance
    elif sys.stderr.isatty():
        with _in_terminal(title, total, unit) as advance:
            yield advance
    else:
        yield _by_tenths(title, total, unit)


def hush(quiet: bool = True) -> None:
    """Show no progress from now on, or show it again."""
    global _hushed  # noqa: PLW0603  (the command line decides it once)
    _hushed = quiet


def _by_tenths(title: str, total: int | None, unit: str) -> Callable[[float], None]:
    """Return what notes every tenth of work that is not done in a few seconds; a log of hours is then ten lines."""
    start, done, noted = time.monotonic(), 0.0, 0

    def advance(more: float) -> None:
        nonlocal done, noted
        done += more
        elapsed, tenth = time.monotonic() - start, int(10 * done / total) if total else 0
        if total and noted < tenth < 10 and elapsed > _LONG:
            noted = tenth
            left = duration(elapsed * (total - done) / done)
            log.log(NOTICE, "%s: %d%% of %s %s, about %s left", title, 10 * tenth, f"{total:,}", unit, left)

    return advance


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")  # a kernel has imported it; elsewhere the import would only cost time
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return getattr(shell, "kernel", None) is not None


def duration(seconds: float) -> str:
    """Return a time as `40 s`, `12 min`, `3.5 h` or `2 days`."""
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.0f} s"


@contextmanager
def _in_terminal(title: str, total: int | None, unit: str) -> Iterator[Callable[[float], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.text import Text

    class TimeLeft(ProgressColumn):
        max_refresh = 0.5  # seconds

        def render(self, task: Task) -> Text:
            left = task.time_remaining
            return Text("" if left is None or task.finished else f"about {duration(left)} left", style="cyan")

    columns = (
        TextColumn("{task.description}", markup=False),  # names of models and tasks may hold brackets
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeLeft(),
    )
    console = Console(stderr=True)
    room = max(console.width // 2, 10)  # for the title; else a long one would push out the numbers
    with Progress(*columns, console=console, transient=True) as bar:
        job = bar.add_task(title if len(title) <= room else f"{title[: room - 1]}…", total=total)
        yield lambda done: bar.advance(job, done)


@contextmanager
def _in_page(title: str, total: int | None, unit: str) -> Iterator[Callable[[float], None]]:
    """Show a bar of plain HTML, which needs no widgets, and remove it when the work is done."""
    from IPython.display import HTML, display

    handle: Any = display(HTML(bar_of(title, 0, total, unit, 0.0)), display_id=True)
    start = updated = time.monotonic()
    done = 0.0

    def advance(more: float) -> None:
        nonlocal done, updated
        done += more
        if (now := time.monotonic()) - updated >= _EVERY:
            updated = now
            handle.update(HTML(bar_of(title, done, total, unit, now - start)))

    try:
        yield advance
    finally:
        handle.update(HTML(""))


def bar_of(title: str, done: float, total: int | None, unit: str, seconds: float) -> str:
    """Return a bar as HTML: how much is done, of how much, and about how long the rest takes."""
    if not total:
        return f"<div>{escape(title)} <progress></progress> {done:,.0f} {escape(unit)}</div>"
    left = f", about {duration(seconds * (total - done) / done)} left" if 0 < done < total else ""
    bar = f'<progress value="{min(done, total):g}" max="{total}"></progress>'
    return f"<div>{escape(title)} {bar} {done:,.0f}/{total:,} {escape(unit)}{left}</div>"
