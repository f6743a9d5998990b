"""The signatures and docstrings of public functions, read from their sources: a help text imports nothing heavy."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import layerscope

_SOURCES = Path(layerscope.__file__).parent


@dataclass(frozen=True)
class Parameter:
    """One parameter of a public function.

    Attributes:
        name: Its name in Python.
        annotation: Its type as the source spells it.
        default: Its default as the source spells it; None where the parameter must be given.
        help: What the docstring says of it.
    """

    name: str
    annotation: str
    default: str | None
    help: str

    @property
    def option(self) -> str:
        """Its name on the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def types(self) -> set[str]:
        """The members of the annotation's union, without None."""
        union, parts = ast.parse(self.annotation, mode="eval").body, set()
        while isinstance(union, ast.BinOp):
            parts.add(ast.unparse(union.right))
            union = union.left
        return {*parts, ast.unparse(union)} - {"None"}


@dataclass(frozen=True)
class Function:
    """A public function: what it does in one line, and its parameters by name."""

    name: str
    summary: str
    parameters: dict[str, Parameter]

    @property
    def call(self) -> str:
        """The call in Python with what must be given."""
        needed = [name for name, parameter in self.parameters.items() if parameter.default is None]
        return f"ls.{self.name}({', '.join(needed)})"


@cache
def function(name: str) -> Function:
    """The public function of that name, without `*args` and `**kwargs`."""
    tree = ast.parse((_SOURCES / f"{layerscope.HOMES[name].replace('.', '/')}.py").read_text(encoding="utf-8"))
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    if not found:
        raise KeyError(f"{layerscope.HOMES[name]} defines no function {name}")
    node = found[-1]  # those before it are overloads
    text = ast.get_docstring(node) or ""
    described = arguments(text)
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + [_spelled(value, tree) for value in given.defaults]
    pairs = list(zip(positional, defaults, strict=True))
    pairs += [
        (argument, None if value is None else _spelled(value, tree))
        for argument, value in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    parameters = {
        argument.arg: Parameter(
            argument.arg,
            "Any" if argument.annotation is None else ast.unparse(argument.annotation),
            default,
            described.get(argument.arg, ""),
        )
        for argument, default in pairs
    }
    return Function(name, text.split("\n\n")[0].replace("\n", " "), parameters)


def arguments(docstring: str) -> dict[str, str]:
    """What the section `Args` of a docstring says of each parameter, each in one line."""
    section = re.search(r"^Args:\n((?:[ ].*\n?|\n)*)", inspect.cleandoc(docstring) + "\n", re.MULTILINE)
    described: dict[str, str] = {}
    name = ""
    for line in section[1].splitlines() if section else ():
        if begins := re.match(r"    \*{0,2}(\w+): (.*)", line):
            name, described[begins[1]] = begins[1], begins[2]
        elif name and line.strip():
            described[name] += f" {line.strip()}"
    return described


def _spelled(value: ast.expr, tree: ast.Module) -> str:
    """A default as a reader would write it: a constant of the module is replaced by its value where that is plain."""
    if isinstance(value, ast.Name):
        for node in tree.body:
            if isinstance(node, ast.Assign) and value.id in [ast.unparse(target) for target in node.targets]:
                return ast.unparse(node.value)
    return ast.unparse(value)
