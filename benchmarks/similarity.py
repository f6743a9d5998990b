"""Similarity of all pairs of 13 layers of width 768: moments against a large product, pairwise loops and peers.

Run with: python benchmarks/similarity.py [--rows 1000 10000 100000] [--device cuda] [--format json]

Peers take part where they are installed (see peers.py for the versions) and where they can bear the number of rows.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import peers
import torch
from memory import peak_megabytes

import layerscope as ls
from layerscope.similarity import execution_plan
from layerscope.similarity.moments import Moments

LAYERS, WIDTH, BATCH = 13, 768, 250
PAIRS = LAYERS * (LAYERS + 1) // 2
TOGETHER = ["cka", "cca", "svcca", "pwcca", "neuron", "mixed", "procrustes"]


def drift(state: torch.Tensor, generator: torch.Generator) -> list[torch.Tensor]:
    """Layers that drift from one to the next."""
    found = []
    for _ in range(LAYERS):
        state = state + 0.3 * torch.randn(state.shape, generator=generator) * state.std(dim=0)
        found.append(state)
    return found


def layers(n: int) -> list[torch.Tensor]:
    """Synthetic layers with features of different scale."""
    generator = torch.Generator().manual_seed(0)
    return drift(torch.randn(n, WIDTH, generator=generator) * torch.logspace(0, -1.5, WIDTH), generator)


def seconds(action: Callable[[], Any], rounds: int = 1) -> tuple[float, Any]:
    """The least time of some rounds, and the result."""
    best, result = float("inf"), None
    for _ in range(rounds):
        start = time.perf_counter()
        result = action()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best, result


def one_product(n: int, device: str, dtype: torch.dtype) -> float:
    """Seconds that the multiply-adds of all pairs take as one large product."""
    a = torch.randn(WIDTH * 7, n, device=device, dtype=dtype)
    b = torch.randn(n, WIDTH * PAIRS // 7, device=device, dtype=dtype)
    return seconds(lambda: a @ b, 3)[0]


def pairwise_loop(states: list[torch.Tensor]) -> np.ndarray:
    """The usual way: every pair by itself in feature space, float32."""

    def cka(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x, y = (s - s.mean(dim=0) for s in (x, y))
        return (x.T @ y).pow(2).sum() / (torch.linalg.norm(x.T @ x) * torch.linalg.norm(y.T @ y))

    return peers.all_pairs(cka, states)


def factored_anew(x: torch.Tensor, y: torch.Tensor) -> float:
    """Seconds for seven measures of all pairs when each value has its own factorisation, timed on one pair."""
    x, y = (s - s.mean(dim=0) for s in (x, y))

    def by_bases() -> None:
        bases = [torch.linalg.svd(s, full_matrices=False)[0] for s in (x, y)]
        torch.linalg.svd(bases[0].T @ bases[1])

    once = {
        "cka": lambda: [torch.linalg.norm(a.T @ b) for a, b in ((x, y), (x, x), (y, y))],
        "procrustes": lambda: torch.linalg.svdvals(x.T @ y),
        "cca": lambda: torch.linalg.svdvals(torch.linalg.qr(x)[0].T @ torch.linalg.qr(y)[0]),
        "svcca": by_bases,
    }
    both_ways = {
        "pwcca": by_bases,
        "neuron": lambda: torch.corrcoef(torch.cat([x, y], dim=1).T),
        "mixed": lambda: torch.linalg.lstsq(y, x),
    }
    symmetric = sum(seconds(action)[0] for action in once.values())
    return symmetric * PAIRS + sum(seconds(action)[0] for action in both_ways.values()) * LAYERS**2


def measure_cka(n: int, states: list[torch.Tensor]) -> dict[str, float]:
    reps = ls.Representations.from_arrays(states)
    product = one_product(n, "cpu", torch.float32)
    ours, similarity = seconds(lambda: ls.compare(reps, measure="cka"), 3 if n < 50_000 else 1)
    loop, naive = seconds(lambda: pairwise_loop(states))
    exact = ls.measure("cka")(*(s.double() for s in states[:2]))
    found = {
        "one large product, s": product,
        "exact CKA of all pairs, s": ours,
        "CKA / one large product": ours / product,
        "pairwise float32 loop / CKA": loop / ours,
        "largest difference to the loop": float(np.abs(similarity.values - naive).max()),
        "difference to float64, layers 0 and 1": abs(float(similarity.values[0, 1]) - exact),
    }
    if n < 2 * WIDTH:
        cheaper, execution_plan.grams_are_cheaper = execution_plan.grams_are_cheaper, lambda *_: False
        found["primal / dual"] = seconds(lambda: ls.compare(reps, measure="cka"), 3)[0] / ours
        execution_plan.grams_are_cheaper = cheaper
    for name, run in peers.EXACT.items():
        if n <= peers.LIMIT[name] and (taken := _peer(run, states)) is not None:
            found[f"{name} / CKA"] = taken / ours
    return found


def measure_minibatch(n: int, states: list[torch.Tensor]) -> dict[str, float]:
    reps = ls.Representations.from_arrays(states)
    ours = seconds(lambda: ls.compare(reps, measure="cka_minibatch", batch=BATCH), 2)[0]
    found = {f"minibatch CKA, batches of {BATCH}, s": ours}
    for name, run in peers.MINIBATCH.items():
        if n <= peers.LIMIT[name] and (taken := _peer(run, states, BATCH)) is not None:
            found[f"{name} / minibatch CKA"] = taken / ours
    return found


def measure_seven(states: list[torch.Tensor]) -> dict[str, float]:
    reps = ls.Representations.from_arrays(states)
    ours = seconds(lambda: ls.compare(reps, measure=TOGETHER))[0]
    loop = factored_anew(states[0], states[6])
    return {"seven measures in one pass, s": ours, "loop that factors each pair anew / one pass": loop / ours}


def _peer(run: Callable[..., Any], *arguments: Any) -> float | None:
    try:
        return seconds(lambda: run(*arguments))[0]
    except ImportError as error:
        print(f"note: left out: {error}", file=sys.stderr)
        return None


def peak(n: int) -> None:
    """Stream n rows in batches and print the peak memory in MB: run in a process of its own."""
    moments = Moments([WIDTH] * LAYERS)
    generator = torch.Generator().manual_seed(0)
    for _ in range(0, n, BATCH):
        moments.update(drift(torch.randn(BATCH, WIDTH, generator=generator), generator))
    moments.cov(0, 1)
    print(peak_megabytes())


def measure_memory() -> dict[str, float]:
    def megabytes(n: int) -> float:
        command = [sys.executable, __file__, "--peak", str(n)]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    small, large = megabytes(10_000), megabytes(100_000)
    return {"peak at n = 10,000, MB": small, "peak at n = 100,000 / at 10,000": large / small}


def on_gpu(n: int) -> dict[str, float]:
    """Moments of rows that lie on the device, and CKA from them; products are in float64 there."""
    states = [s.cuda() for s in layers(n)]

    def ours() -> list[float]:
        moments = Moments([WIDTH] * LAYERS, device="cuda")
        for start in range(0, n, 2048):
            moments.update([s[start : start + 2048] for s in states])
        norms = torch.stack([torch.linalg.matrix_norm(moments.scatter(i, i)) for i in range(LAYERS)])
        pairs = torch.tensor(moments.pairs, device="cuda")
        squares = torch.stack([moments.scatter(i, j).pow(2).sum() for i, j in moments.pairs])
        return (squares / (norms[pairs[:, 0]] * norms[pairs[:, 1]])).tolist()

    ours()
    taken = seconds(ours, 3)[0]
    product = one_product(n, "cuda", torch.float64)
    loop = seconds(lambda: pairwise_loop(states), 2)[0]
    return {
        "CKA on the GPU, s": taken,
        "CKA / one float64 product": taken / product,
        "float32 loop / CKA": loop / taken,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 10000])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("--peak", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        peak(options.peak)
        return
    table = options.format == "table"
    if table:
        print(f"{LAYERS} layers x {WIDTH}, {options.device}, {platform.machine()}, {torch.get_num_threads()} threads")
    results: dict[str, dict[str, float]] = {}
    for n in options.rows:
        if options.device == "cuda":
            found = on_gpu(n)
        else:
            states = layers(n)
            found = measure_cka(n, states) | measure_minibatch(n, states)
            found |= measure_seven(states) if n == 10_000 else {}
        results[f"n = {n:,}"] = found
        if table:
            show(f"n = {n:,}", found)
    if options.device == "cpu" and not options.no_memory:
        results["memory"] = measure_memory()
        if table:
            show("memory", results["memory"])
    if not table:
        print(json.dumps(results, indent=1))


def show(title: str, found: dict[str, float]) -> None:
    print(title)
    for name, value in found.items():
        print(f"  {name:48} {value:12.4g}", flush=True)


if __name__ == "__main__":
    main()
