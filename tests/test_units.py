"""Times are named with their unit wherever they are a column of a table or a number in a file."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import layerscope

TIMES = {"time", "times", "latency", "duration", "elapsed", "took", "wall", "runtime", "speed"}
UNITS = {"s", "ms", "seconds", "minutes", "hours", "days"}
# Of `reproduce --list`, whose values are texts with a unit (`layerscope.progress.duration`); a setting of adapters.
SPELLED = {"time", "runtime_config"}


def names_in(code: str) -> Iterator[str]:
    """What may become a column's name: keys of dictionaries, what subscripts and lists hold, words of `assign`."""
    for node in ast.walk(ast.parse(code)):
        keys: list[ast.expr | None] = []
        if isinstance(node, ast.Dict):
            keys = node.keys
        elif isinstance(node, ast.Subscript):
            keys = [node.slice]
        elif isinstance(node, (ast.List, ast.Tuple)):
            keys = [*node.elts]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "assign":
            keys = [ast.Constant(keyword.arg) for keyword in node.keywords if keyword.arg]
        for key in keys:
            if isinstance(key, ast.JoinedStr):
                yield re.sub(r"\{.*?\}", "x", ast.unparse(key)[2:-1])
            elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value


def unnamed(code: str) -> set[str]:
    """Names of times without a unit."""
    plain = {name for name in names_in(code) if re.fullmatch(r"[a-z0-9_]+", name)}
    return {name for name in plain if TIMES & {*name.split("_")} and not UNITS & {*name.split("_")}}


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ('{"latency": 3}', {"latency"}),
        ('{"latency_1_ms": 3, "seconds_per_epoch": 2}', set()),
        ('frame["wall_time"]', {"wall_time"}),
        ('frame.assign(elapsed=3, rows=[f"latency_{n}"])', {"elapsed", "latency_x"}),
        ('{"batch time width": 1}', set()),
    ],
)
def test_a_time_without_a_unit_is_noticed(code, names):
    assert unnamed(code) == names


def test_every_time_is_named_with_its_unit():
    files = sorted(Path(layerscope.__file__).parent.rglob("*.py"))
    wrong = {f"{file.name}: {name}" for file in files for name in unnamed(file.read_text(encoding="utf-8")) - SPELLED}
    assert not wrong
