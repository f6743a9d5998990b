"""Inputs: whole files of every format, damaged in one to three places; a result or one sentence must come of each.

Never a traceback, a hang, memory over the bound or a number that is not finite. A case is a subject and a number; a
child runs many of them, and a new one takes over where it ends.
"""

from __future__ import annotations

import json
import shutil
import signal
import traceback
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from .harness import HANG, MEMORY, Failure, Tally, World, Wrong, ended
from .mutations import bomb, mutator, plain_bytes
from .regressions import packed, unpacked
from .subjects import Subject, files_of, subjects, use
from .traps import Peak

PART = "inputs"
_BATCH = 50  # cases of one child
_TOLD = 1000  # how often to say how far it is
_TRIES = 200  # to make a failing input smaller
_SENTENCE = 4000  # characters


class Inputs:
    """The part."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._subjects = {subject.name: subject for subject in subjects()}
        bomb()  # once, and not in every child

    def run(self, seed: int, wanted: int) -> Tally:
        """So many inputs, all subjects in turn."""
        tally = Tally(PART)
        turns = [subject.name for subject in self._subjects.values() for _ in range(subject.weight)]
        cases = [(turns[k % len(turns)], f"{seed} {PART} {k}") for k in range(wanted)]
        seen: set[tuple[str, str]] = set()
        while cases:
            results = self._batch(cases[:_BATCH])
            for (name, _), (fault, about) in zip(cases, results, strict=False):
                failure = None
                if fault:
                    failure = Failure(PART, name, about, fault, len(about["content"]))
                    if (name, fault) not in seen:
                        failure = self._smaller(failure)
                    seen.add((name, fault))
                tally.add(name, failure)
            cases = cases[len(results) :]
            if tally.cases // _TOLD > (tally.cases - len(results)) // _TOLD:
                print(f"  {tally.cases} of {wanted}: {len(tally.failures)} failures", flush=True)
        return tally

    def replay(self, case: dict[str, Any]) -> str:
        """What is wrong with an input that was found before; nothing if it holds now."""
        subject, content = self._subjects[case["subject"]], unpacked(case["content"])
        return self._try(subject, lambda folder: _put(folder / case["file"], content))[0]

    def _batch(self, cases: list[tuple[str, str]]) -> list[tuple[str, dict[str, Any]]]:
        """How each of the cases went; of those after one that ends the child nothing is known yet."""

        def act(say: Callable[[Any], None]) -> None:
            use(self.world)
            for name, number in cases:
                say(
                    _tried(
                        self.world,
                        self._subjects[name],
                        lambda folder, n=number, s=name: self._damage(s, n, folder),
                        say,
                    )
                )

        self.world.clean()
        end = ended(act, seconds=HANG * len(cases))
        results = [(said[0], said[1]) for said in end.said if isinstance(said, list)]
        if len(results) < len(cases):  # the child has ended in the middle of one
            assert isinstance(end.said[-1], dict), f"the campaign itself failed: {end.err}"
            results.append((end.fault or f"the process ended with {end.code}", end.said[-1]))
        return results

    def _damage(self, name: str, number: str, folder: Path) -> dict[str, Any]:
        """In a child: damage one file of a whole folder; gives the file and what it holds now."""
        draw = Random(number)
        file = draw.choice(list(files_of(self._subjects[name], folder)))
        content = file.read_bytes()
        for _ in range(draw.choice([1, 1, 2, 3])):
            try:
                content = mutator(file.name)(draw, content)
            except Exception:  # damaged so far that its format cannot be told
                content = plain_bytes(draw, content)
        return _put(file, content) | {"file": str(file.relative_to(folder))}

    def _try(self, subject: Subject, damage: Callable[[Path], Any]) -> tuple[str, Any]:
        def act(say: Callable[[Any], None]) -> None:
            use(self.world)
            say(_tried(self.world, subject, damage, say))

        self.world.clean()
        end = ended(act, seconds=HANG + 5)
        said = end.said[-1] if end.said else None
        return (said[0], said[1]) if isinstance(said, list) else (end.fault or f"ended with {end.code}", said)

    def _smaller(self, failure: Failure) -> Failure:
        """The smallest input that fails alike, within some tries of one child."""
        file, subject, content = (
            failure.case["file"],
            self._subjects[failure.subject],
            unpacked(failure.case["content"]),
        )
        if failure.fault.startswith(("hang", "memory", "killed")) or file.endswith((".parquet", ".safetensors", ".gz")):
            return failure
        make_smaller = shrunk_tree if file.endswith(".json") else shrunk

        def act(say: Callable[[Any], None]) -> None:
            use(self.world)
            tries = count()

            def fails(smaller: bytes) -> bool:
                if next(tries) >= _TRIES:
                    return False
                fault, _ = _tried(self.world, subject, lambda folder: _put(folder / file, smaller))
                if fault == failure.fault:
                    say(packed(smaller))
                return fault == failure.fault

            make_smaller(content, fails)

        said = ended(act, seconds=2 * HANG).said
        smallest = said[-1] if said else packed(content)
        return Failure(
            PART, failure.subject, {"file": file, "content": smallest}, failure.fault, len(unpacked(smallest))
        )


def _put(file: Path, content: bytes) -> dict[str, Any]:
    """Write a damaged file; links to whole ones are cut first."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    file.write_bytes(content)
    return {"content": packed(content)}


def _tried(world: World, subject: Subject, damage: Callable[[Path], Any], say: Any = None) -> list[Any]:
    """In a child: one case. What it was is said before, so that it is known if the child does not survive it."""
    folder = world.work / "input" / "given"
    signal.alarm(4 * HANG)  # for the damage
    shutil.rmtree(folder.parent, ignore_errors=True)
    shutil.copytree(world.seeds / subject.folder, folder)
    about = damage(folder)
    if say is not None:
        say(about)
    signal.alarm(HANG)
    peak = Peak()
    fault = fault_of(lambda: subject.act(folder))
    if not fault and peak.added > MEMORY:
        fault = f"memory: more than {MEMORY >> 20} MiB"
    return [fault, about if fault else {}]


def fault_of(act: Callable[[], None]) -> str:
    """What is wrong with how something ends: anything but a result or one sentence."""
    from layerscope.errors import LayerscopeError

    try:
        act()
    except LayerscopeError as error:
        said = str(error)
        if not said.strip() or "\n" in said.strip() or len(said) > _SENTENCE:
            return f"not a sentence: {type(error).__name__} at {_place(error)}"
    except Wrong as error:
        return str(error)
    except BaseException as error:
        return f"{type(error).__name__} at {_place(error)}"
    return ""


def _place(error: BaseException) -> str:
    """The function of ours (or of the campaign) that the error came out of."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/layerscope/" in frame.filename] or frames
    return f"{Path(ours[-1].filename).name}:{ours[-1].name}"


def shrunk(content: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """Fewer bytes that still fail: halves are left out, then quarters, and so on."""
    size = max(len(content) // 2, 1)
    while size:
        at = 0
        while at < len(content):
            fewer = content[:at] + content[at + size :]
            if fails(fewer):
                content = fewer
            else:
                at += size
        size //= 2
    return content


def shrunk_tree(content: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """A smaller JSON tree that still fails; bytes where it is none."""
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError):
        return shrunk(content, fails)
    if not isinstance(tree, dict):
        return content
    for name in list(tree):
        fewer = {key: value for key, value in tree.items() if key != name}
        if fails(json.dumps(fewer).encode("utf-8", "surrogatepass")):
            tree = fewer
    return json.dumps(tree).encode("utf-8", "surrogatepass")
