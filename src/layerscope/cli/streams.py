"""What goes to the standard streams beside a command's own output: notes, and streams that cannot take them."""

from __future__ import annotations

import io
import logging
import os
import sys
import warnings
from typing import Any

from layerscope.errors import LayerscopeWarning, log
from layerscope.team import Team

_python_shows = warnings.showwarning


def prepare(verbose: bool) -> None:
    """Send notes to stderr, each once. Closed streams go nowhere; what one cannot spell is written as an escape."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  (open as long as the program runs)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("note: %(message)s"))
    handler.addFilter(_Once())
    log.addHandler(handler)
    log.setLevel(logging.INFO if verbose else logging.WARNING)
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
