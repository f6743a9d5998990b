"""Extraction: its speed against a bare forward, batching by length against the data's order, memory against n.

Run with: python benchmarks/extract.py [--model demo:minilm] [--texts 1500] [--rounds 3] [--no-memory] [--format json]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from memory import peak_megabytes

import layerscope as ls
from layerscope.extraction.encoding import encode
from layerscope.extraction.forward import Runner
from layerscope.extraction.items import Items
from layerscope.extraction.loop import default_tokens
from layerscope.extraction.pooling import Reading
from layerscope.extraction.stream import Batch

POOLS = ("cls", "mean", "words")


class Nobody:
    """A consumer that keeps nothing."""

    def update(self, batch: Batch) -> None: ...


def seconds(action: Callable[[], Any]) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    action()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def in_turn(
    actions: dict[str, Callable[[], Any]], rounds: int, clock: Callable[[Callable[[], Any]], float] | None = None
) -> dict[str, float]:
    """The median seconds of each action, run in turn so that a busy machine slows all alike; the first is warm-up."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(rounds + 1):
        for name, action in actions.items():
            taken = (clock or seconds)(action)
            if turn:
                times[name].append(taken)
    return {name: statistics.median(values) for name, values in times.items()}


def batches(items: Items, budget: int, by_length: bool) -> list[Items]:
    """Batches of at most `budget` tokens, padding included."""
    order = np.argsort(-items.lengths, kind="stable") if by_length else np.arange(len(items))
    found: list[list[int]] = [[]]
    longest = 0
    for place in order.tolist():
        longest = max(longest, int(items.lengths[place]))
        if found[-1] and longest * (len(found[-1]) + 1) > budget:
            found.append([])
            longest = int(items.lengths[place])
        found[-1].append(place)
    return [items.at(places) for places in found]


def throughput(source: str, texts: int, rounds: int, device: str | None = None) -> dict[str, float]:
    model = ls.load(source, device=device)
    examples = ls.task("pydocs").split("train")
    examples = examples.take([i % len(examples) for i in range(texts)])
    reading = Reading()
    budget = default_tokens(model)
    runner = Runner(model, None, reading)
    items = encode(model, examples, reading)
    prepared = {by: [runner.inputs(b) for b in batches(items, budget, by)] for by in (True, False)}

    def bare(by_length: bool) -> None:
        with runner.ready():
            for inputs in prepared[by_length]:
                model.network.base_model(**inputs)

    def full(pool: str) -> Callable[[], Any]:
        return lambda: ls.stream(model, examples, Nobody(), pool=pool)

    actions: dict[str, Callable[[], Any]] = {"bare": lambda: bare(True), "order": lambda: bare(False)}
    taken = in_turn(actions | {pool: full(pool) for pool in POOLS}, rounds)
    ratios = {f"extraction / bare forward, pool {pool}": taken["bare"] / taken[pool] for pool in POOLS}
    return ratios | {
        "batches by length / in the data's order": taken["order"] / taken["bare"],
        "texts per second, pool cls": texts / taken["cls"],
    }


def peak_memory(source: str, texts: int) -> float:
    """Megabytes at the peak of a process that streams so many texts and keeps no row."""
    code = (
        f"import sys; sys.path.insert(0, {str(sys.path[0])!r}); import extract as b; b.stream_only({source!r}, {texts})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def stream_only(source: str, texts: int) -> None:
    model = ls.load(source, device="cpu")
    task = ls.task("pydocs").split("train")
    # In random order: the first n of the data have other lengths than the rest.
    order = torch.randperm(len(task), generator=torch.Generator().manual_seed(0)).tolist()
    examples = task.take([order[i % len(order)] for i in range(texts)])
    status = Path("/proc/self/status")
    if status.exists():  # Linux: forget the peak of opening the model, which would hide that of the stream
        Path("/proc/self/clear_refs").write_text("5")
    ls.stream(model, examples, Nobody(), pool="mean")
    if status.exists():
        print(int(next(line for line in status.read_text().splitlines() if "VmHWM" in line).split()[1]) / 1024)
    else:
        print(peak_megabytes())


def show(result: dict[str, float], options: argparse.Namespace) -> None:
    """The figures as a table, or as JSON."""
    where = f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else where
    if options.format == "json":
        print(json.dumps({"device": device, **result}, indent=1))
        return
    print(f"{options.model} over pydocs, {options.texts} texts, median of {options.rounds} rounds, {device}")
    for name, value in result.items():
        print(f"  {name:48} {value:10.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo:minilm")
    parser.add_argument("--texts", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-memory", action="store_true", help="leave out the peak memory (measured on the CPU)")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    options = parser.parse_args()
    result: dict[str, Any] = throughput(options.model, options.texts, options.rounds)
    if not options.no_memory:
        n = 4000  # enough texts for the allocator to reach its plateau
        small, large = (peak_memory(options.model, count) for count in (n, 4 * n))
        result |= {f"peak MB at n = {n}": small, f"peak MB at n = {4 * n}": large, "peak at 4n / at n": large / small}
    show(result, options)


if __name__ == "__main__":
    main()
