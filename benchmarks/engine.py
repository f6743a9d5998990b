"""What an engine costs per job, and how much faster two workers are than one on a sweep of small jobs.

Run with: python benchmarks/engine.py [--jobs 40] [--work 0.5] [--empty 300]. An engine that is not installed is left
out.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

os.environ.setdefault("OMP_NUM_THREADS", "1")

from layerscope.engine import Job, check_engine, map_jobs
from layerscope.errors import LayerscopeError
from layerscope.store.artifacts import Artifact


@dataclass(frozen=True)
class Product(Artifact):
    """Products of matrices for about so many seconds of one core, counted and not timed."""

    kind: ClassVar[str] = "benchmark"
    number: int
    rounds: int

    def spec(self) -> dict[str, Any]:
        return {"number": self.number, "rounds": self.rounds}

    def build(self, folder: Path) -> None:
        products(self.rounds)
        (folder / "done.txt").write_text(str(self.number))


def products(rounds: int) -> None:
    import torch

    torch.set_num_threads(1)
    x = torch.eye(256)
    for _ in range(rounds):
        x = x @ x


def seconds(engine: str, count: int, rounds: int) -> float:
    """How long a sweep takes in a store of its own."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["LAYERSCOPE_HOME"] = home
        start = time.perf_counter()
        outcomes = map_jobs([Job(Product(k, rounds), f"job {k}") for k in range(count)], engine)
        assert not any(outcome.reason for outcome in outcomes), outcomes
        return time.perf_counter() - start


def per_job(engine: str, count: int) -> tuple[float, float]:
    """Seconds of a sweep of two empty jobs, and those of each job beyond; the best of two tries, after a first one."""
    seconds(engine, 2, 0)
    few, many = (min(seconds(engine, jobs, 0) for _ in range(2)) for jobs in (2, 2 + count))
    return few, (many - few) / count


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--empty", type=int, default=300, help="empty jobs, for the cost of a job")
    parser.add_argument("--work", type=float, default=0.5, help="seconds of a job of the sweep")
    given = parser.parse_args()
    products(10)
    start = time.perf_counter()
    products(200)
    rounds = round(given.work / (time.perf_counter() - start) * 200)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("| engine | start of two jobs, s | per further job, ms |\n| --- | --- | --- |")
    usable = []
    for engine in ("local", "processes:1", "processes:2", "ray"):
        try:
            check_engine(engine)
        except LayerscopeError as reason:
            print(f"| {engine} | left out: {reason} | |")
            continue
        usable.append(engine)
        first, each = per_job(engine, given.empty)
        print(f"| {engine} | {first:.2f} | {1000 * each:.1f} |", flush=True)
    alone = seconds("local", given.jobs, rounds)
    print(f"\n{given.jobs} jobs of {given.work} s: local {alone:.1f} s")
    for engine in [name for name in usable if name != "local"]:
        took = seconds(engine, given.jobs, rounds)
        print(f"{engine}: {took:.1f} s, {alone / took:.2f} times as fast", flush=True)


if __name__ == "__main__":
    main()
