"""Peak memory of this process, and the bytes of all tensors in it while models are advised on, cut and saved.

Run with: python benchmarks/memory.py [MODEL] [--texts FILE] [--blocks 5] [--limit TEXTS] [--format json]

The figures are the peaks of live bytes over the bytes of the whole model, which stays open all the time.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import signal
import tempfile
import threading
from pathlib import Path

import torch

_EVERY = 0.05  # seconds from one look at all tensors to the next


def peak_megabytes() -> float:
    """Since the program started. Linux counts a parent's memory into `ru_maxrss`, so its own count is taken there."""
    status = Path("/proc/self/status")
    if status.is_file():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Watch:
    """The peak of this process's anonymous memory, in bytes, looked at `every` so many seconds."""

    def __init__(self, every: float = 0.005) -> None:
        self.peak, self._over, self._every = 0, threading.Event(), every
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self.start = self.peak = anonymous()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(self._every):
            self.peak = max(self.peak, anonymous())


def anonymous() -> int:
    """Bytes of this process that are in memory and in no file."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def live_bytes() -> int:
    """The bytes of all tensors that are alive in Python, on any device; what several of them share counts once."""
    storages = {}
    for value in gc.get_objects():
        if issubclass(type(value), torch.Tensor) and not value.is_meta:
            storage = value.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


class LiveBytes:
    """The peak of `live_bytes` while a block runs, looked at all the time: `.peak`. It is for the main thread alone.

    A timer's signal interrupts the block for that. A thread of its own would list the garbage collector's objects while
    the block makes a tuple, and Python raises a SystemError where anything else refers to a tuple that is being made.
    """

    def __enter__(self) -> LiveBytes:
        self.peak = live_bytes()
        self._before = signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, _EVERY)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)
        self.peak = max(self.peak, live_bytes())

    def _look(self, *_: object) -> None:
        self.peak = max(self.peak, live_bytes())
        signal.setitimer(signal.ITIMER_REAL, _EVERY)  # from now on, so that looking leaves the block time to run


def main() -> None:
    import layerscope as ls

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="garden:gpt2-s0")
    parser.add_argument("--texts", default="pydocs", help="a task or a file of running text")
    parser.add_argument("--blocks", type=int, default=5, help="that are cut out")
    parser.add_argument("--limit", type=int, help="texts that are read")
    parser.add_argument("--length", type=int, default=16, help="tokens of a window")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    asked = parser.parse_args()
    model, figures = ls.load(asked.model), {}
    whole = live_bytes()
    task = ls.task(asked.texts, kind="text")
    with tempfile.TemporaryDirectory() as folder:
        with LiveBytes() as live:
            short = {"limit": asked.limit, "max_length": asked.length, "timed": False}
            ls.advise(model, task, rules=["last", "angular"], remove=[1, asked.blocks], **short)
        figures["advise"] = live.peak / whole
        with LiveBytes() as live:
            smaller = ls.skip(model, 2, 1 + asked.blocks)
        figures["skip"] = live.peak / whole
        with LiveBytes() as live:
            ls.save(smaller, Path(folder) / "smaller")
        figures["save what was cut"] = live.peak / whole
        del smaller
        with LiveBytes() as live:
            ls.save(model, Path(folder) / "whole")
        figures["save the whole"] = live.peak / whole
    if asked.format == "json":
        print(json.dumps({"model": asked.model, "bytes": whole, **figures}))
        return
    print(f"{asked.model}: {whole / 1e6:,.0f} MB")
    for what, figure in figures.items():
        print(f"{what}: {figure:.2f} times the whole model")


if __name__ == "__main__":
    main()
