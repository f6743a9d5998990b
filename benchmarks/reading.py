"""What the first rows of a data set cost: a new process for each file, of few rows and of many.

Run with: python benchmarks/reading.py
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from memory import peak_megabytes

ROWS = (20_000, 2_000_000)
ENDINGS = ("csv", "jsonl", "parquet")


def write(path: Path, count: int) -> None:
    """Write a file of reviews with two classes."""
    import pandas

    texts = [f"review {k} says that the film was dull, and that the cinema was not" for k in range(count)]
    frame = pandas.DataFrame({"text": texts, "label": ["neg" if k % 3 else "pos" for k in range(count)]})
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_parquet(path)


def measure(path: str, limit: int | None) -> None:
    """Read the file in this process, and print seconds and megabytes over those before it was read."""
    import pyarrow.parquet  # noqa: F401  (what it takes itself does not count)

    import layerscope as ls

    task, before, start = ls.task(path), peak_megabytes(), time.perf_counter()
    count = len(task.split(limit=limit))
    seconds = time.perf_counter() - start
    print(f"{Path(path).name}, {count:,} examples: {seconds:.1f} s, {peak_megabytes() - before:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", help="measure one file in this process")
    parser.add_argument("--limit", type=int)
    given = parser.parse_args()
    if given.file:
        measure(given.file, given.limit)
        return
    with tempfile.TemporaryDirectory() as folder:
        for ending in ENDINGS:
            for rows in ROWS:
                path = Path(folder) / f"{rows}.{ending}"
                write(path, rows)
                for limit in (["--limit", "100"], []):
                    subprocess.run([sys.executable, __file__, "--file", str(path), *limit], check=True)


if __name__ == "__main__":
    main()
