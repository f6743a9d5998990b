"""What the parts share: children that are forked after all imports, traps in them, and what becomes of a failure.

The parent only imports and forks. It starts no thread and runs nothing of layerscope itself, so that a child is cheap
(no imports) and may be killed, starved or shut out at any moment.
"""

from __future__ import annotations

import json
import os
import pkgutil
import select
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from .traps import lift_file_limit, limit_addresses

HANG = 30  # seconds that anything of a tiny model may take
MEMORY = 1 << 30  # bytes that a tiny input may add to a process
_LIBRARIES = (
    "accelerate matplotlib.pyplot datasets pandas peft pyarrow.parquet rich.table scipy.stats sklearn.linear_model"
)


def prepare() -> None:
    """Import everything that a command imports, so that no child has to."""
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
        "MPLBACKEND": "agg",
    }
    os.environ.pop("LAYERSCOPE_DATA", None)
    sys.path.insert(0, str(Path(__file__).parents[2] / "garden" / "src"))
    import layerscope

    for module in pkgutil.walk_packages(layerscope.__path__, "layerscope."):
        if not module.name.endswith(("__main__", "_triton")):
            import_module(module.name)
    for name in _LIBRARIES.split():
        import_module(name)


class Wrong(Exception):  # noqa: N818
    """What must not happen has happened; the message says what."""


@dataclass(frozen=True)
class World:
    """A folder to work in, the same path for every case, so that what is written is the same as well."""

    root: Path

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def seeds(self) -> Path:
        """Whole models, data and saved objects, made once and only read."""
        return self.root / "seeds"

    def clean(self, like: Path | None = None) -> Path:
        """An empty work folder, or a copy of one that was kept."""
        shutil.rmtree(self.work, ignore_errors=True)
        if like is None:
            for name in ("home", "tmp"):
                (self.work / name).mkdir(parents=True)
        else:
            shutil.copytree(like, self.work, symlinks=True)
        return self.work

    def enter(self) -> None:
        """Work in the folder: called in a child."""
        os.chdir(self.work)
        os.environ |= {"LAYERSCOPE_HOME": str(self.work / "home"), "TMPDIR": str(self.work / "tmp")}
        tempfile.tempdir = None


@dataclass
class Ended:
    """How a child ended: its exit code (negative: the signal), what it printed, and what it had to say before."""

    code: int
    out: str
    err: str
    said: list[Any]

    @property
    def fault(self) -> str:
        """What is wrong with it whatever it was asked: a traceback, a hang, a crash; else nothing."""
        if "Traceback (most recent call last)" in self.err:
            return f"traceback: {self.err.strip().splitlines()[-1][:300]}"
        if self.code == -signal.SIGALRM:
            return f"hang over {HANG} s"
        if self.code < 0:
            return f"killed by {signal.Signals(-self.code).name}"
        if self.code in (1, 2) and (self.err.count("error: ") != 1 and "Usage:" not in self.err):
            return f"exit code {self.code} without one sentence: {self.err.strip()[-300:]}"
        return ""


class Child:
    """A forked process that runs `act(say)`; `say` sends a JSON value to the parent that outlives a kill."""

    def __init__(self, act: Callable[[Callable[[Any], None]], int | None], seconds: int = HANG) -> None:
        self._files = [tempfile.TemporaryFile() for _ in range(3)]  # noqa: SIM115  (closed by `wait`)
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(act, seconds)

    def wait(self, seconds: float | None = None) -> Ended | None:
        """How it ended; None where it is still at work after so many seconds."""
        handle = os.pidfd_open(self.pid)
        try:
            if not select.select([handle], [], [], seconds)[0]:
                return None
        finally:
            os.close(handle)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        texts = []
        for file in self._files:
            file.seek(0)
            texts.append(file.read().decode("utf-8", "replace"))
            file.close()
        return Ended(code, texts[0], texts[1], [json.loads(line) for line in texts[2].splitlines()])

    def kill(self) -> None:
        """End it as `kill -9` does."""
        os.kill(self.pid, signal.SIGKILL)

    def _say(self, value: Any) -> None:
        os.write(self._files[2].fileno(), json.dumps(value).encode() + b"\n")

    def _run(self, act: Callable[[Callable[[Any], None]], int | None], seconds: int) -> None:
        code = 1
        try:
            for number, file in enumerate(self._files[:2], 1):
                os.dup2(file.fileno(), number)
            sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
            sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
            limit_addresses()
            signal.alarm(seconds)
            code = act(self._say) or 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        except BaseException:
            lift_file_limit()
            traceback.print_exc()
        finally:  # whatever happens, a child never goes on as its parent
            try:
                lift_file_limit()
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)


def ended(act: Callable[[Callable[[Any], None]], int | None], seconds: int = HANG) -> Ended:
    """Run in a child and wait for it."""
    end = Child(act, seconds).wait()
    assert end is not None
    return end


def command(*words: str | Path) -> int:
    """Run the command line in this process, a child; gives its exit code."""
    import atexit

    from layerscope.cli import main
    from layerscope.errors import log

    log.handlers.clear()
    sys.argv = ["layerscope", *map(str, words)]
    try:
        main()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    finally:
        atexit._run_exitfuncs()  # os._exit would leave out what a program does when it ends
    return 0


@dataclass(frozen=True)
class Failure:
    """A case that failed: where it belongs, what is enough to run it again, and what went wrong."""

    part: str
    subject: str
    case: dict[str, Any]
    fault: str
    size: int = 0  # the smaller one of two that fail alike is kept

    @property
    def likeness(self) -> tuple[str, str, str]:
        """Failures of one cause have it in common."""
        return self.part, self.subject, self.fault


@dataclass
class Tally:
    """How a part went."""

    part: str
    cases: int = 0
    counts: dict[str, int] = field(default_factory=dict)  # cases by subject
    failures: list[Failure] = field(default_factory=list)

    def add(self, subject: str, failure: Failure | None) -> None:
        self.cases += 1
        self.counts[subject] = self.counts.get(subject, 0) + 1
        if failure is not None:
            self.failures.append(failure)
            print(f"  failed: {failure.subject}: {failure.fault}", flush=True)

    def smallest(self) -> Iterator[Failure]:
        """One failure of each cause, the smallest."""
        kept: dict[tuple[str, str, str], Failure] = {}
        for failure in self.failures:
            if failure.likeness not in kept or failure.size < kept[failure.likeness].size:
                kept[failure.likeness] = failure
        yield from kept.values()
