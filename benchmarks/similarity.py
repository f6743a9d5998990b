"""Similarity of all pairs of 13 layers of width 768: the moments way against a large product and pairwise loops.

Run with: python benchmarks/similarity.py [--rows 1000 10000] [--format json]
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import layerscope as ls

LAYERS, WIDTH = 13, 768
TOGETHER = ["cka", "cca", "svcca", "pwcca", "neuron", "mixed", "procrustes"]


def layers(n: int) -> list[torch.Tensor]:
    """Layers that drift from one to the next, with features of different scale."""
    generator = torch.Generator().manual_seed(0)
    state = torch.randn(n, WIDTH, generator=generator) * torch.logspace(0, -1.5, WIDTH)
    found = []
    for _ in range(LAYERS):
        state = state + 0.3 * torch.randn(n, WIDTH, generator=generator) * state.std(dim=0)
        found.append(state)
    return found


def seconds(action: Callable[[], Any], rounds: int = 1) -> tuple[float, Any]:
    best, result = float("inf"), None
    for _ in range(rounds):
        start = time.perf_counter()
        result = action()
        best = min(best, time.perf_counter() - start)
    return best, result


def one_product(n: int) -> float:
    """Seconds that the multiply-adds of all pairs take as one large float32 product."""
    pairs = LAYERS * (LAYERS + 1) // 2
    a, b = torch.randn(WIDTH * 7, n), torch.randn(n, WIDTH * pairs // 7)
    return seconds(lambda: a @ b, 2)[0]


def pairwise_loop(states: list[torch.Tensor]) -> np.ndarray:
    """The usual way: every pair by itself in feature space, float32."""
    found = np.zeros((LAYERS, LAYERS))
    for i in range(LAYERS):
        for j in range(i, LAYERS):
            x, y = (s - s.mean(dim=0) for s in (states[i], states[j]))
            value = (x.T @ y).pow(2).sum() / (torch.linalg.norm(x.T @ x) * torch.linalg.norm(y.T @ y))
            found[i, j] = found[j, i] = float(value)
    return found


def run(n: int) -> dict[str, float]:
    states = layers(n)
    reps = ls.Representations.from_arrays(states)
    product = one_product(n)
    ours, similarity = seconds(lambda: ls.compare(reps, measure="cka"), 2)
    loop, naive = seconds(lambda: pairwise_loop(states))
    wide = [s.double() for s in states[:2]]
    exact = ls.measure("cka")(*wide)
    found = {
        "one large product, s": product,
        "exact CKA of all pairs, s": ours,
        "CKA / one large product": ours / product,
        "pairwise float32 loop / CKA": loop / ours,
        "largest difference to the loop": float(np.abs(similarity.values - naive).max()),
        "difference to float64, layers 0 and 1": abs(float(similarity.values[0, 1]) - exact),
    }
    if n >= 5 * WIDTH:  # the CCA family needs more rows than features
        found["seven measures in one pass, s"] = seconds(lambda: ls.compare(reps, measure=TOGETHER))[0]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 10000])
    parser.add_argument("--format", choices=("table", "json"), default="table")
    options = parser.parse_args()
    results = {n: run(n) for n in options.rows}
    if options.format == "json":
        print(json.dumps(results, indent=1))
        return
    print(f"{LAYERS} layers x {WIDTH}, {platform.machine()}, {torch.get_num_threads()} threads")
    for n, found in results.items():
        print(f"n = {n:,}")
        for name, value in found.items():
            print(f"  {name:42} {value:12.4g}")


if __name__ == "__main__":
    main()
