"""Aligners: the canonical map against scikit-learn's CCA, networks in seconds, layers side by side against in turn.

Run with: python benchmarks/alignment.py [--width 768] [--rows 1600] [--layers 13] [--device cuda] [--format json].
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch

import layerscope as ls
from layerscope.alignment.aligners.inn import INN


def seconds(action: Callable[[], object], device: str = "cpu") -> float:
    start = time.perf_counter()
    action()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def sides(rows: int, width: int, seed: int, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    """Rows with a decaying spectrum, and a noisy linear map of them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, width, generator=generator) * torch.linspace(1, 0.05, width)
    x = x @ torch.linalg.qr(torch.randn(width, width, generator=generator))[0]
    y = x @ torch.randn(width, width, generator=generator) / width**0.5
    return x.to(device), (y + 0.1 * torch.randn(rows, width, generator=generator)).to(device)


def measure_cca(rows: int = 1600, width: int = 128) -> dict[str, float]:
    from sklearn.cross_decomposition import CCA

    x, y = sides(rows, width, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its power iterations need not have converged
        plain = CCA(width, scale=False)
        theirs = seconds(lambda: plain.fit(x.numpy(), y.numpy()))
    ours = min(seconds(lambda: ls.align(x, y, method="cca")) for _ in range(5))
    correlation = ls.align(x, y, method="cca").report_["correlation"]
    u, v = plain.transform(x.numpy(), y.numpy())
    wanted = np.mean([np.corrcoef(u[:, k], v[:, k])[0, 1] for k in range(width)])
    return {
        f"canonical map at width {width}, s": ours,
        "scikit-learn's CCA over it": theirs / ours,
        "mean correlation, ours": correlation,
        "mean correlation, scikit-learn": float(wanted),
    }


def measure_networks(rows: int, width: int, layers: int, device: str) -> dict[str, float]:
    pairs = [sides(rows, width, k, device) for k in range(layers)]
    options = {"patience": 10_000, "steps": 200}  # no early stop: the same work on both sides
    ls.align(*pairs[0], method="inn", steps=5)  # what the first call alone pays for
    whole = seconds(lambda: ls.align(*pairs[0], method="inn"), device)
    together = seconds(lambda: INN.fit_many([INN(**options) for _ in pairs], pairs), device)
    alone = seconds(lambda: [ls.align(*pair, method="inn", **options) for pair in pairs], device)
    return {
        f"INN fit at width {width}, {rows} rows, s": whole,
        f"{layers} layers side by side, 200 steps, s": together,
        "one after another over side by side": alone / together,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--rows", type=int, default=1600)
    parser.add_argument("--layers", type=int, default=13)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    options = parser.parse_args()
    measured = measure_cca() | measure_networks(options.rows, options.width, options.layers, options.device)
    if options.format == "json":
        print(json.dumps(measured, indent=1))
        return
    for name, value in measured.items():
        print(f"  {name:48} {value:10.4g}")


if __name__ == "__main__":
    main()
