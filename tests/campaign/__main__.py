"""`python -m tests.campaign`: run the parts, print what came out, and keep what failed."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import harness, regressions, traps
from .crowds import Crowds
from .harness import Tally, World
from .hostile import Hostile
from .inputs import Inputs
from .kills import Kills
from .scene import make_seeds
from .wholes import make_wholes

PARTS = {"kills": Kills, "inputs": Inputs, "crowds": Crowds, "hostile": Hostile}
# Cases of one minute on a laptop's core, over all parts, so that the same seed and minutes are the same cases anywhere.
PER_MINUTE = {"fresh": 4, "over": 4, "inputs": 400, "crowds": 2.8, "hostile": 11}


def main() -> int:
    """The exit code is 1 where anything failed."""
    arguments = _arguments()
    harness.prepare()
    root = Path(tempfile.mkdtemp(prefix="campaign-")).resolve()
    world = World(root)
    in_memory = traps.mounted(root, 4 << 30)  # where it may be had, a quick disk; a kill takes nothing from it either
    try:
        make_seeds(world)
        make_wholes(world)
        if arguments.replay:
            return _replay(world)
        return _campaign(world, arguments)
    finally:
        if in_memory:
            traps.unmounted(root)
        shutil.rmtree(root, ignore_errors=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="decides every case")
    parser.add_argument("--minutes", type=float, default=5.0, help="about how long: sets how many cases there are")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part (may be given several times)")
    for name in PER_MINUTE:
        parser.add_argument(f"--{name}", type=int, help="N cases, whatever the minutes")
    parser.add_argument("--replay", action="store_true", help="run what earlier campaigns found; prints JSON")
    parser.add_argument("--forget", action="store_true", help="keep nothing of what fails")
    return parser.parse_args()


def _campaign(world: World, arguments: argparse.Namespace) -> int:
    def count(name: str) -> int:
        given = getattr(arguments, name)
        return max(1, round(PER_MINUTE[name] * arguments.minutes)) if given is None else given

    runs: dict[str, Callable[[], Tally]] = {
        "kills": lambda: Kills(world).run(arguments.seed, count("fresh"), count("over")),
        "inputs": lambda: Inputs(world).run(arguments.seed, count("inputs")),
        "crowds": lambda: Crowds(world).run(arguments.seed, count("crowds")),
        "hostile": lambda: Hostile(world).run(arguments.seed, count("hostile")),
    }
    failed = 0
    for name in arguments.part or PARTS:
        started = time.monotonic()
        tally = runs[name]()
        _print(tally, time.monotonic() - started, arguments)
        failed += len(tally.failures)
    return 1 if failed else 0


def _print(tally: Tally, seconds: float, arguments: argparse.Namespace) -> None:
    print(f"{tally.part}: seed {arguments.seed}, {tally.cases} cases, {len(tally.failures)} failures, {seconds:.0f} s")
    print("  " + ", ".join(f"{name} {count}" for name, count in sorted(tally.counts.items())))
    for failure in tally.smallest():
        path = None if arguments.forget else regressions.keep(failure)
        print(f"  {failure.subject}: {failure.fault}\n    the smallest that fails: {_short(failure.case)}")
        if path is not None:
            print(f"    kept as {path}")
    sys.stdout.flush()


def _short(case: dict[str, Any]) -> str:
    text = json.dumps(case)
    return text if len(text) <= 400 else f"{text[:400]}.. ({len(text)} characters)"


def _replay(world: World) -> int:
    """Run every case that was found before; prints what is wrong with each."""
    parts = {name: part(world) for name, part in PARTS.items()}
    faults = {name: parts[case["part"]].replay(case) for name, case in regressions.kept().items()}
    print(json.dumps(faults))
    return 1 if any(faults.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
