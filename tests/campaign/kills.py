"""Kills: every command that writes, at the n-th call that changes a disk and at random times, fresh and over a folder.

Afterwards the files that stand in the folders, links followed, are all of the earlier run or all of the finished one,
compared file by file; the same command gives the same numbers; `cache verify` is clean; and there is no file that
undisturbed work would not have left.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from .harness import Child, Ended, Failure, Tally, World, command, ended
from .scene import COMMANDS, words_of
from .traps import Trap, die

PART = "kills"
MODES = ("fresh", "over")
PLACES = ("out", "save")  # what a command is told to write: each of them is of one run
EMPTY, DANGLING = "an empty folder", "a link to nothing"
_TIMED = 0.25  # of the kills come at a random time, the others at a call
OVERWRITING = ("report", "figures", "reproduce")  # commands that write over what they left before without being told
# Not the same each time: clocks, what follows from them (sentences of findings too), whether --overwrite was needed.
_CLOCKS = {"created", "seconds", "seconds_per_epoch", "latency_1", "latency_32", "size", "checksum", "findings"}
_CLOCKS |= {"command"}


@dataclass(frozen=True)
class Reference:
    """What undisturbed work leaves: every name, the values that are the same each time, and how it went."""

    names: frozenset[str]
    values: dict[str, str]
    calls: int  # that change a disk
    seconds: float


class Kills:
    """The part: references are made when a command comes up for the first time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._references: dict[tuple[str, str], Reference] = {}
        self._earlier: dict[str, dict[str, str]] = {}

    def run(self, seed: int, fresh: int, over: int) -> Tally:
        """So many kills of fresh work and over existing folders; every command has its turn."""
        tally = Tally(PART)
        for mode, wanted in zip(MODES, (fresh, over), strict=True):
            draw = Random(f"{seed} {PART} {mode}")
            names = [name for name in COMMANDS if mode == "fresh" or name != "cache rm"]
            done = 0
            while done < wanted:
                name = names[done % len(names)]
                reference = self.reference(name, mode)
                at: dict[str, Any] = {"call": draw.randint(1, reference.calls)}
                if draw.random() < _TIMED:
                    at = {"second": round(draw.random() * reference.seconds, 3)}
                fault = self.fault({"command": name, "mode": mode, **at})
                if fault is None:  # it ended before the moment came
                    continue
                case = {"command": name, "mode": mode, **at}
                size = at.get("call", 10_000)
                tally.add(f"{mode} {name}", Failure(PART, f"{mode} {name}", case, fault, size) if fault else None)
                done += 1
        return tally

    def replay(self, case: dict[str, Any]) -> str:
        """What is wrong with a case that was found before; nothing if it holds now."""
        return self.fault(case) or ""

    def reference(self, name: str, mode: str) -> Reference:
        """Undisturbed work, twice: what differs is a clock's."""
        if (name, mode) not in self._references:
            runs = []
            for _ in range(2):
                self._set_up(name, mode)
                started = time.monotonic()
                end = ended(lambda say: self._act(name, mode, say=say), seconds=120)
                seconds = time.monotonic() - started
                assert end.code == 0, f"{name}: {end.err}"
                runs.append(values_of(self.world.work))
            values = {k: v for k, v in runs[0].items() if runs[1].get(k) == v}
            names = frozenset(k.partition("#")[0] for k in runs[0])
            self._references[name, mode] = Reference(names, values, end.said[-1], seconds)
        return self._references[name, mode]

    def fault(self, case: dict[str, Any]) -> str | None:
        """Kill, look, run again, compare: what is wrong, nothing if all is well, None if it was over before."""
        name, mode = case["command"], case["mode"]
        reference = self.reference(name, mode)
        self._set_up(name, mode)
        if "call" in case:
            end = ended(lambda say: self._act(name, mode, case["call"]), seconds=120)
        else:
            child = Child(lambda say: self._act(name, mode), seconds=120)
            end = child.wait(case["second"]) or self._killed(child)
        if end.code != -9:
            return end.fault or None
        if fault := self._partial(name, mode, reference):
            return fault
        end = ended(lambda say: self._again(name, mode), seconds=120)
        if end.code != 0:
            return f"the same command fails afterwards: {end.fault or end.err.strip()[-300:] or end.code}"
        return self._difference(reference)

    @staticmethod
    def _killed(child: Child) -> Ended:
        child.kill()
        end = child.wait()
        assert end is not None
        return end

    def _set_up(self, name: str, mode: str) -> None:
        kept = self.world.root / "earlier" / name.replace(" ", "")
        if mode == "over" and not kept.is_dir():
            self.world.clean()
            end = ended(lambda _: self._act(name, "fresh", earlier=True), seconds=120)
            assert end.code == 0, f"{name}: {end.err}"
            shutil.copytree(self.world.work, kept, symlinks=True)
            self._earlier[name] = values_of(self.world.work)
        self.world.clean(kept if mode == "over" else None)
        if name == "cache rm":  # something to remove
            end = ended(lambda _: self._act("extract", "fresh"), seconds=120)
            assert end.code == 0, end.err

    def _act(self, name: str, mode: str, call: int = 0, earlier: bool = False, say: Any = None) -> int:
        """In a child: the command, killed before the n-th call that changes a disk (0: not at all)."""
        self.world.enter()
        trap = Trap(call, die)
        words = words_of(self.world, name, earlier)
        replaces = mode == "over" and "-o" in words and name not in OVERWRITING
        code = command(*words, *(["--overwrite"] if replaces else []))
        if say is not None:
            say(trap.count)
        return code

    def _again(self, name: str, mode: str) -> int:
        """In a child: the same command, then `cache verify`."""
        self.world.enter()
        words = words_of(self.world, name)
        replaces = "-o" in words and name not in OVERWRITING
        done = any((self.world.work / "out").glob("*-record/record.json"))  # killed when all was written
        code = command(*words, *(["--overwrite"] if replaces and (done or mode == "over") else []))
        return code or command("cache", "verify")

    def _partial(self, name: str, mode: str, reference: Reference) -> str:
        """What can be seen after a kill, file by file, and is not all of the earlier or all of the finished run."""
        now = values_of(self.world.work)
        for place in PLACES:
            there, finished = (_seen(values, place) for values in (now, reference.values))
            earlier = _seen(self._earlier[name], place) if mode == "over" else {}
            if earlier and not there:
                return f"there is nothing in {place} any more"
            if there and not any(_same(there, version) for version in (finished, earlier) if version):
                return f"{place} is neither the earlier nor the finished one: {_mixed(there, finished, earlier)}"
        return ""

    def _difference(self, reference: Reference) -> str:
        """What undisturbed work would not have left, or what it left and is not there."""
        now = values_of(self.world.work)
        names = {k.partition("#")[0] for k in now}
        if rubbish := sorted(names - reference.names):
            return f"left behind: {_plain(rubbish[0])}"
        if missing := sorted(reference.names - names):
            return f"missing: {_plain(missing[0])}"
        other = sorted(k for k, v in reference.values.items() if now.get(k) != v)
        return f"another value afterwards: {_plain(other[0])}" if other else ""


def _plain(name: str) -> str:
    """A name without what is random in it, so that failures of one cause read alike."""
    return "/".join("*" if len(part) > 28 or part.startswith(".") else part for part in name.split("/"))


def _seen(values: dict[str, str], place: str) -> dict[str, str]:
    """The values of the files that can be seen in a place: no unfinished work, and no link that leads nowhere."""
    inside = {k: v for k, v in values.items() if k.startswith(f"{place}/") and "/." not in k.partition("#")[0]}
    return {k: v for k, v in inside.items() if v not in (EMPTY, DANGLING)}


def _mixed(there: dict[str, str], finished: dict[str, str], earlier: dict[str, str]) -> str:
    """Which run each file is of, for those of the place that are of one run alone."""
    files = sorted({k.partition("#")[0] for k in (*there, *finished, *earlier)})
    kinds: dict[str, list[str]] = {}
    for file in files:
        parts = [{k: v for k, v in tree.items() if k.partition("#")[0] == file} for tree in (there, finished, earlier)]
        new, old = (bool(part) == bool(parts[0]) and _same(parts[0], part) for part in parts[1:])
        kind = "missing" if not parts[0] else "finished" if new and not old else "earlier" if old and not new else ""
        kinds.setdefault(kind if kind or new else "neither", []).append(_plain(file.partition("/")[2]))
    return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if kind)


def _same(there: dict[str, str], version: dict[str, str]) -> bool:
    """Whether every stable value is as it was, and no file is more or less."""
    files = {k.partition("#")[0] for k in there} == {k.partition("#")[0] for k in version}
    return files and all(there.get(k) == v for k, v in version.items())


def values_of(folder: Path) -> dict[str, str]:
    """What `_values_of` gives, by a child: reading Parquet starts threads."""
    end = ended(lambda say: say(_values_of(folder)))
    assert end.code == 0, end.err
    return dict(end.said[0])


def _values_of(folder: Path) -> dict[str, str]:
    """Every value in a folder's files by `file#place`, without those that clocks give; empty folders by their names."""
    values: dict[str, str] = {}
    places = [Path(at) / name for at, *names in os.walk(folder, followlinks=True) for name in (*names[0], *names[1])]
    for path in sorted(places):
        name = str(path.relative_to(folder))
        if path.is_dir():
            if not any(path.iterdir()) and name not in ("home", "tmp"):
                values[f"{name}/#"] = EMPTY
            continue
        if not path.exists():
            values[f"{name}#"] = DANGLING
            continue
        values[f"{name}#"] = ""
        for place, value in _values(path):
            if not _CLOCKS & set(place.split("/")):
                values[f"{name}#{place}"] = value
    return values


def _values(path: Path) -> list[tuple[str, str]]:
    if path.suffix == ".json":
        try:
            return list(_leaves(json.loads(path.read_text()), ""))
        except ValueError:
            return [("", "no JSON")]
    if path.suffix == ".csv":
        rows = list(csv.reader(path.open(newline="")))
        return [(head, repr([row[i : i + 1] for row in rows])) for i, head in enumerate(rows[0] if rows else ())]
    if path.suffix == ".parquet":
        return _columns(path)
    if path.suffix in (".html", ".png"):  # times are drawn and written in some, which then differ each time
        content = path.read_bytes()
        return [("end", repr(content[-16:].strip()[-8:])), ("", hashlib.sha256(content).hexdigest())]
    return [("", hashlib.sha256(path.read_bytes()).hexdigest())]


def _columns(path: Path) -> list[tuple[str, str]]:
    import pyarrow.parquet

    try:
        columns = pyarrow.parquet.read_table(path).to_pydict()
    except (OSError, ValueError):
        return [("", "no Parquet")]
    return [(name, hashlib.sha256(repr(column).encode()).hexdigest()) for name, column in columns.items()]


def _leaves(value: Any, place: str) -> Any:
    if isinstance(value, (dict, list)):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        for name, part in parts:
            yield from _leaves(part, f"{place}/{name}")
    else:
        yield place, repr(value)
