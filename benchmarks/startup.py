"""How long `layerscope --help` takes, alone and over starting Python with nothing to do.

Run with: python benchmarks/startup.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time


def seconds(*arguments: str, rounds: int = 9) -> float:
    """The median seconds of a command."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


if __name__ == "__main__":
    bare, full = seconds("-c", "pass"), seconds("-m", "layerscope", "--help")
    print(f"layerscope --help: {full:.3f} s, {full / bare:.1f} times Python alone ({bare:.3f} s)")
