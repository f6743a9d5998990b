"""Peak memory of this process."""

from __future__ import annotations

import resource
from pathlib import Path


def peak_megabytes() -> float:
    """Since the program started. Linux counts a parent's memory into `ru_maxrss`, so its own count is taken there."""
    status = Path("/proc/self/status")
    if status.is_file():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
