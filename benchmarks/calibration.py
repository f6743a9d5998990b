"""How far to trust what layerscope concludes: simulations with a known truth, written to docs/calibration.md.

    python benchmarks/calibration.py                              # every module of benchmarks/calibrations, printed
    python benchmarks/calibration.py --write                      # the same, written to the page
    python benchmarks/calibration.py --only blocks --write        # one section made again; the others stay as they are
    python benchmarks/calibration.py --only blocks --rounds 20    # fewer simulations, to try things

Each module has `TITLE`, `TEXT` (markdown: what is simulated and what must hold), `table(rounds, seed)` (a DataFrame of
rates) and, where the default does not suit it, `ROUNDS`. `SLOW = True` keeps it out of the fast tests.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas

HERE = Path(__file__).resolve().parent
MODULES = HERE / "calibrations"
PAGE = HERE.parent / "docs" / "calibration.md"
ROUNDS = 200
SEED = 0
if str(HERE) not in sys.path:
    sys.path.append(str(HERE))  # modules may import helpers: from calibrations._helper import ..

_INTRODUCTION = f"""# Calibration

[How far to trust it](trust.md) has the short answer; this page has every simulation behind it.

A test that calls what is not there significant, or an interval that misses the truth, is worse than none. What
layerscope concludes is therefore tried here on simulations whose truth is known. Each section says what is simulated
and which rate must hold, and shows the rate that came out. A rate of r over n simulations has a standard error of
√(r (1 - r) / n): .015 where r is .05 and n is 200.

Written by `python benchmarks/calibration.py --seed {SEED} --write`: the rounds (how many simulations) and the seed of
each section are in the command that stands under its table and makes it alone.
"""
_SECTION = re.compile(r"^<!-- section (\S+) -->\n(.*?)(?=^<!-- section |\Z)", re.DOTALL | re.MULTILINE)


def names() -> list[str]:
    """The modules, in the order of their sections."""
    return sorted(path.stem for path in MODULES.glob("*.py") if not path.stem.startswith("_"))


def module(name: str) -> ModuleType:
    """A module of benchmarks/calibrations."""
    spec = importlib.util.spec_from_file_location(f"calibrations_{name}", MODULES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def section(name: str, rounds: int | None, seed: int) -> str:
    """A module's simulations, run, as a section of the page."""
    loaded = module(name)
    rounds = rounds or getattr(loaded, "ROUNDS", ROUNDS)
    command = f"python benchmarks/calibration.py --only {name} --rounds {rounds} --seed {seed} --write"
    table = _named(name, markdown(loaded.table(rounds, seed)))
    return f"## {loaded.TITLE}\n\n{loaded.TEXT.strip()}\n\n{table}\n\nMade by `{command}`.\n"


def _named(name: str, table: str) -> str:
    """A table that other pages can show: `--8<-- "docs/calibration.md:NAME"`."""
    return f"<!-- --8<-- [start:{name}] -->\n{table}\n<!-- --8<-- [end:{name}] -->"


def markdown(frame: pandas.DataFrame) -> str:
    """A table; rates have three decimals."""
    rows = [list(map(str, frame.columns)), ["---"] * len(frame.columns)]
    rows += [[_spelled(value) for value in row] for row in frame.itertuples(index=False)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _spelled(value: Any) -> str:
    if isinstance(value, float):
        return "undefined" if math.isnan(value) else f"{value:.3f}"
    return str(value).replace("|", "\\|")


def sections(page: str) -> dict[str, str]:
    """The sections that a page has, by module."""
    return {name: text.strip() + "\n" for name, text in _SECTION.findall(page)}


def page(texts: dict[str, str]) -> str:
    """The page of these sections, in the order of their modules; what has no module any more is left out."""
    marked = [f"<!-- section {name} -->\n{texts[name]}" for name in names() if name in texts]
    return "\n".join([_INTRODUCTION, *marked])


def write(texts: dict[str, str], path: Path = PAGE) -> None:
    """Put sections into the page; the others stay as they are."""
    kept = sections(path.read_text(encoding="utf-8")) if path.is_file() else {}
    path.write_text(page(kept | texts), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="MODULE", choices=names(), help=f"of {', '.join(names())}")
    parser.add_argument("--rounds", type=int, help="how many simulations (default: what each module says)")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--write", action="store_true", help=f"write the sections into {PAGE.name}")
    options = parser.parse_args(arguments)
    if options.rounds is not None and options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: at least one simulation is needed")
    for name in options.only or names():
        text = section(name, options.rounds, options.seed)
        print(text, flush=True)
        if options.write:
            write({name: text})


if __name__ == "__main__":
    main()
