"""Crowds: many processes on one artifact, one output folder and a store that is pruned; disks that are full or closed.

Every process ends with the right numbers or with one sentence, and what is left opens and is right.
"""

from __future__ import annotations

import errno
import io
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from random import Random
from typing import Any

from .harness import Child, Ended, Failure, Tally, World, command, ended
from .scene import COMMANDS, words_of
from .traps import Trap, lift_file_limit, limit_files, mounted

PART = "crowds"
_WRITERS = [name for name in COMMANDS if "-o" in COMMANDS[name].split() and name != "report"]
_CLOCKS = ("seconds", "latency_1", "latency_32")


class Crowds:
    """The part: each kind of trouble is a method that gives what went wrong."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._kinds: dict[str, Callable[[Random], tuple[str, dict[str, Any]]]] = {
            "one artifact": self._one_artifact,
            "one folder": self._one_folder,
            "pruned store": self._pruned,
            "full disk": self._full,
            "read-only disk": self._read_only,
            "ulimit -f": self._bounded,
            "failing call": self._failing,
        }
        self._printed: dict[str, str] = {}

    def run(self, seed: int, wanted: int) -> Tally:
        """So many crowds, every kind in turn."""
        tally = Tally(PART)
        for k in range(wanted):
            kind = list(self._kinds)[k % len(self._kinds)]
            number = f"{seed} {PART} {k}"
            fault, about = self._kinds[kind](Random(number))
            case = {"number": number, **about}
            tally.add(kind, Failure(PART, kind, case, fault, about.get("size", 0)) if fault else None)
        return tally

    def replay(self, case: dict[str, Any]) -> str:
        """What is wrong with a crowd that was found before; nothing if it holds now."""
        return self._kinds[case["subject"]](Random(case["number"]))[0]

    # Many processes.

    def _one_artifact(self, draw: Random) -> tuple[str, dict[str, Any]]:
        name, count = draw.choice(["extract", "compare", "tune", "truncate", "specialty"]), draw.randint(2, 5)
        words = self._without_folders(name)
        self.world.clean()
        ends = self._together([words] * count)
        return self._right(name, words, ends) or self._left(name), {"command": name, "size": count}

    def _one_folder(self, draw: Random) -> tuple[str, dict[str, Any]]:
        name, count = draw.choice(_WRITERS), draw.randint(2, 5)
        words = words_of(self.world, name)
        if name != "figures" and draw.random() < 0.7:
            words.append("--overwrite")
        self.world.clean()
        ends = self._together([words] * count)
        about = {"command": name, "size": count}
        if not any(end.code == 0 for end in ends):
            return f"none of the processes came through: {ends[0].err.strip()[-200:]}", about
        fault = next((end.fault for end in ends if end.fault), "") or self._left(name)
        return fault or self._opens(name), about

    def _pruned(self, draw: Random) -> tuple[str, dict[str, Any]]:
        """A store that another process empties all the time."""
        name = draw.choice(["extract", "compare", "tune", "truncate", "specialty", "align"])
        words = self._without_folders(name)
        self.world.clean()

        def prune(_: Any) -> None:
            self.world.enter()
            while True:
                command("cache", "rm", "--all")
                time.sleep(0.01)

        pruner = Child(prune, seconds=300)
        ends = self._together([words] * 2)
        died = pruner.wait(0)
        if died is None:
            pruner.kill()
            pruner.wait()
        fault = f"cache rm: {died.fault or died.code}" if died is not None else ""
        return fault or self._right(name, words, ends, or_sentence=True), {"command": name}

    def _together(self, commands: list[list[str]]) -> list[Ended]:
        def act(words: list[str]) -> Callable[[Any], int]:
            return lambda _: (self.world.enter(), command(*words))[1]

        children = [Child(act(words), seconds=240) for words in commands]
        ends = [child.wait() for child in children]
        return [end for end in ends if end is not None]

    # Disks.

    def _full(self, draw: Random) -> tuple[str, dict[str, Any]]:
        size = draw.choice([16, 32, 64, 128, 256]) << 10
        return self._on_disk(draw, lambda: mounted(self.world.work, size), {"size": size})

    def _read_only(self, draw: Random) -> tuple[str, dict[str, Any]]:
        return self._on_disk(draw, lambda: mounted(self.world.work, None), {})

    def _bounded(self, draw: Random) -> tuple[str, dict[str, Any]]:
        size = draw.choice([0, 100, 1_000, 10_000, 40_000])

        def bound() -> bool:
            limit_files(size)
            return True

        return self._on_disk(draw, bound, {"size": size})

    def _failing(self, draw: Random) -> tuple[str, dict[str, Any]]:
        """Every call that changes the disk fails from the n-th on."""
        number, call = (
            draw.choice([errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EFBIG, errno.EACCES]),
            draw.randint(1, 40),
        )

        def set_trap() -> bool:
            def fail(_: str) -> None:
                trap._n = trap.count + 1  # and the next one
                raise OSError(number, os.strerror(number))

            trap = Trap(call, fail)
            return True

        return self._on_disk(draw, set_trap, {"size": call, "errno": errno.errorcode[number]})

    def _on_disk(self, draw: Random, spoil: Callable[[], bool], about: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """A command on a disk that is spoiled: done or one sentence; with a sound disk the same command then works."""
        name = draw.choice(list(COMMANDS))
        about = {"command": name, **about}
        words = words_of(self.world, name)
        self.world.clean()

        def act(_: Any) -> int:
            if not spoil():
                return 77  # it cannot be had here
            for folder in ("home", "tmp"):
                try:
                    (self.world.work / folder).mkdir(exist_ok=True)
                except OSError:
                    return 0
            self.world.enter()
            said = io.StringIO()
            with redirect_stdout(said), redirect_stderr(said):
                code = command(*words)
            lift_file_limit()
            sys.stderr.write(said.getvalue())
            return code

        end = ended(act, seconds=120)
        if end.code == 77:
            return "", about
        if end.fault or end.code not in (0, 1, 2):
            return end.fault or f"exit code {end.code}: {end.err.strip()[-200:]}", about
        if end.code in (1, 2) and "cache rm" not in name:
            again = [*words, "--overwrite"] if any((self.world.work / "out").glob("*-record")) else words
            end = ended(lambda _: (self.world.enter(), command(*again))[1], seconds=120)
            if end.code != 0:
                return f"fails on a sound disk afterwards: {end.fault or end.err.strip()[-200:]}", about
        return self._left(name), about

    # What is left.

    def _without_folders(self, name: str) -> list[str]:
        words = words_of(self.world, name)
        return [*words[: words.index("-o")], "--format", "json"]

    def _right(self, name: str, words: list[str], ends: list[Ended], or_sentence: bool = False) -> str:
        """Whether every process printed what one alone prints."""
        for end in ends:
            if end.fault or (end.code != 0 and not (or_sentence and end.code in (1, 2))):
                return end.fault or f"exit code {end.code}: {end.err.strip()[-200:]}"
        if name not in self._printed:
            alone = World(self.world.root / "alone")
            alone.clean()
            end = ended(lambda _: (alone.enter(), command(*words))[1], seconds=120)
            self._printed[name] = _numbers(end.out)
        wrong = [end for end in ends if end.code == 0 and _numbers(end.out) != self._printed[name]]
        return "other numbers than one process gives" if wrong else ""

    def _left(self, name: str) -> str:
        """Rubbish, or a store that is not sound."""
        end = ended(lambda _: (self.world.enter(), command("cache", "verify"))[1])
        if end.code != 0:
            return f"cache verify: {end.fault or end.out.strip()[-200:]}"
        for folder in ("unfinished", "damaged"):
            if left := list((self.world.work / "home" / folder).glob("*/*")):
                return f"left behind in {folder}: {left[0].parent.name}"
        hidden = [path for path in self.world.work.rglob(".*") if "checksum" not in path.name]
        if hidden:
            return f"left behind: {hidden[0].relative_to(self.world.work).parent}/.*"
        links = [path for path in self.world.work.rglob("*") if path.is_symlink() and not path.exists()]
        return f"a link to nothing: {links[0].relative_to(self.world.work)}" if links else ""

    def _opens(self, name: str) -> str:
        """Whether what the last of several processes left is whole."""

        def act(_: Any) -> int:
            import layerscope as ls

            self.world.enter()
            out = self.world.work / "out"
            for record in out.glob("*-record"):
                ls.read_record(record)
            if name == "extract":
                ls.Representations.load(out).summary()
            if name.startswith("tune") and "study" not in name:
                ls.load(str(out))
            return 0

        end = ended(act)
        return end.fault or ("" if end.code == 0 else f"what is left does not open: {end.err[-200:]}")


def _numbers(out: str) -> str:
    """What a command printed, without clocks."""
    start = out.find("{")
    rows = json.loads(out[start:])["table"] if start >= 0 else []
    return json.dumps([{k: v for k, v in row.items() if k not in _CLOCKS} for row in rows])
