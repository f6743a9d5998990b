"""Hostile folders: names, links, pickles, code and markup in what a user opens.

An audit hook in the child sees every file that is opened for writing, every import and every connection; canaries tell
whether code was run; the page is parsed and must hold no element that came from a name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any

from .harness import Ended, Failure, Tally, World, ended
from .inputs import fault_of
from .malice import Malice
from .poison import TAG

PART = "hostile"


class Hostile:
    """The part: every kind of malice in turn."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._malice = Malice(world)

    def run(self, seed: int, wanted: int) -> Tally:
        """So many folders, every kind in turn."""
        tally = Tally(PART)
        for k in range(wanted):
            kind = list(self._malice.kinds)[k % len(self._malice.kinds)]
            number = f"{seed} {PART} {k}"
            fault = self.fault(kind, number)
            tally.add(kind, Failure(PART, kind, {"number": number}, fault) if fault else None)
        return tally

    def replay(self, case: dict[str, Any]) -> str:
        """What is wrong with a folder that was found before; nothing if it holds now."""
        return self.fault(case["subject"], case["number"])

    def fault(self, kind: str, number: str) -> str:
        """Set the folder up, open it as a user would, and look what happened."""
        self.world.clean()
        for name in ("outside", "given", "mine"):
            (self.world.work / name).mkdir()
        (self.world.work / "outside" / "treasure").write_text("whole")

        def act(say: Callable[[Any], None]) -> None:
            self.world.enter()
            use = self._malice.kinds[kind](Random(number), self.world.work / "given")
            before = self._outside()
            _watch(self.world, say)
            if fault := fault_of(use):
                say(fault)
            if self._outside() != before:
                say(f"something was written outside of the folder: {_new(before, self._outside())}")

        end = ended(act, seconds=60)
        return self._verdict(end)

    def _verdict(self, end: Ended) -> str:
        if end.said:
            return str(end.said[0])
        if end.code != 0:
            return end.fault or f"ended with {end.code}: {end.err[-200:]}"
        if self._malice.canary.exists():
            return "code of the folder was run"
        for page in (self.world.work / "mine").rglob("*.html"):
            if page.is_file() and (fault := markup_in(page.read_text(encoding="utf-8"))):
                return fault
        return ""

    def _outside(self) -> dict[str, int]:
        """Every file that is neither the user's output nor the store."""
        mine = [self.world.work / name for name in ("mine", "home", "tmp")]
        files = [path for path in self.world.root.rglob("*") if not any(folder in path.parents for folder in mine)]
        return {str(path): path.lstat().st_mtime_ns for path in files if not path.is_dir() or path.is_symlink()}


def _new(before: dict[str, int], after: dict[str, int]) -> str:
    return Path(next((name for name in after if before.get(name) != after[name]), "a file is gone")).name


def _watch(world: World, say: Callable[[Any], None]) -> None:
    """Tell of writes elsewhere, of code from the folder, of programs and of connections, as they happen."""
    allowed = (*(str(world.work / name) for name in ("mine", "home", "tmp")), "/dev/", "/proc/")
    given = str(world.work / "given")

    def hook(event: str, details: tuple[Any, ...]) -> None:
        if (
            event == "open"
            and isinstance(details[0], (str, bytes))
            and details[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        ):
            path = os.path.realpath(os.fsdecode(details[0]))
            if not path.startswith(allowed):
                say(f"opened for writing: {Path(path).name}")
        elif event == "exec" and str(getattr(details[0], "co_filename", "")).startswith(given):
            say("code of the folder was run")
        elif event in ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "socket.connect"):
            say(f"{event} was called")

    sys.addaudithook(hook)


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.wrong = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == TAG or any(name.startswith("on") for name, _ in attrs):
            self.wrong = f"markup from a name is an element of the page: {tag}"


def markup_in(page: str) -> str:
    """The element that came from a name, or nothing."""
    parser = _Elements()
    parser.feed(page)
    return parser.wrong
