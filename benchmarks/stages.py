"""Where the seconds of a comparison or an extraction go, stage by stage, beside the seconds of the device.

Stages of the main thread hold the host up; those of other threads run beside it, and cost only what is waited for. The
device's seconds are those between the start and the end of each batch's forward pass with its pooling, and the gaps
between two batches, in which it runs the consumers' products or has nothing to do.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from layerscope.extraction import loop
from layerscope.extraction import loop as batches
from layerscope.extraction.forward import PendingCopy, Pooling, Runner
from layerscope.extraction.stream import Streamer
from layerscope.models.fingerprint import Scan
from layerscope.similarity import budget, compare, layer_sources
from layerscope.similarity.layer_sources import RowKeeper

STAGES: list[tuple[str, Any, str]] = [
    ("opening the inputs (with the hash)", compare, "_open_inputs"),
    ("hash of the weights", Scan, "network"),
    ("plan", compare, "with_budget"),
    ("rows kept (with the pass)", layer_sources.Streamed, "with_rows"),
    ("size of the work", budget, "workload_of"),
    ("values (with the pass, where moments are kept)", compare, "matrices_of"),
    ("the pass over the texts", Streamer, "_feed"),
    ("forward: launching, with pooling", Runner, "run"),
    ("pooling: launching", Pooling, "__call__"),
    ("consumer: moments", layer_sources._Feed, "update"),
    ("consumer: rows", RowKeeper, "update"),
    ("rows put in order", RowKeeper, "finish"),
    ("finite check: waiting", PendingCopy, "numpy"),
    ("tokenising", loop.Loop, "_encoded"),
    ("padding and pinning", Streamer, "_prepare"),
]


class Stages:
    """Seconds and calls of every stage, in the main thread and in others."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, bool], float] = defaultdict(float)
        self.calls: dict[tuple[str, bool], int] = defaultdict(int)
        self.marks: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def add(self, stage: str, seconds: float) -> None:
        key = stage, threading.current_thread() is threading.main_thread()
        self.seconds[key] += seconds
        self.calls[key] += 1

    def timed(self, stage: str, action: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return action(*args, **kwargs)
            finally:
                self.add(stage, time.perf_counter() - start)

        return run

    def waited(self, stage: str, action: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def run(*args: Any, **kwargs: Any) -> Iterator[Any]:
            coming = action(*args, **kwargs)
            while True:
                start = time.perf_counter()
                try:
                    part = next(coming)
                except StopIteration:
                    return
                finally:
                    self.add(stage, time.perf_counter() - start)
                yield part

        return run

    def marked(self, action: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            result = action(*args, **kwargs)
            end.record()
            self.marks.append((start, end))
            return result

        return run

    def show(self, whole: float) -> None:
        print(f"  {'the whole':52} {whole:9.3f} s")
        for own in (True, False):
            print(" in the main thread" if own else " in other threads")
            for (stage, is_main), seconds in self.seconds.items():
                if is_main == own:
                    print(f"  {stage:52} {seconds:9.3f} s  {self.calls[stage, is_main]:6} times")
        if self.marks:
            torch.cuda.synchronize()
            busy = sum(start.elapsed_time(end) for start, end in self.marks) / 1000
            pairs = zip(self.marks[:-1], self.marks[1:], strict=True)
            gaps = sorted((before[1].elapsed_time(after[0]) for before, after in pairs), reverse=True)
            print(" on the device")
            print(f"  {'forward and pooling':52} {busy:9.3f} s  {len(self.marks):6} times")
            longest = ", ".join(f"{gap:.1f}" for gap in gaps[:8])
            print(f"  {'between batches':52} {sum(gaps) / 1000:9.3f} s  (longest, ms: {longest})")


@contextmanager
def watched(device: torch.device) -> Iterator[Stages]:
    """Every stage timed until the block ends."""
    stages = Stages()
    changed = [(owner, name, getattr(owner, name)) for _, owner, name in STAGES]
    changed += [(module, "ahead", module.ahead) for module in (batches, loop)]
    try:
        for stage, owner, name in STAGES:
            setattr(owner, name, stages.timed(stage, getattr(owner, name)))
        if device.type == "cuda":
            Runner.run = stages.marked(Runner.run)  # type: ignore[method-assign]
        loop.ahead = stages.waited("waiting for tokens", loop.ahead)
        batches.ahead = stages.waited("waiting for a batch to be made", batches.ahead)
        yield stages
    finally:
        for owner, name, before in changed:
            setattr(owner, name, before)
