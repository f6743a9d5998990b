"""The command-line reference, written from the commands themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

PAGE = "reference/cli.md"
_WORDS = {"int": "number", "float": "number", "Path": "path", "list[Path]": "path"}
INTRODUCTION = """# Command line

Written from the code while this site is built. `layerscope COMMAND --help` says the same in a terminal.
Models and tasks are named as on [Getting started](../start.md#models-and-tasks).
A mistake is answered with one sentence and exit code 2; Ctrl-C with exit code 130, and the same command goes on later.
"""


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    files.append(File.generated(config, PAGE, content=reference()))
    return files


def reference() -> str:
    """The whole page."""
    import typer

    from layerscope.cli import app

    top = typer.main.get_command(app)
    parts = [INTRODUCTION, *_options(top)]
    for names, command in sorted(_walk(top), key=lambda found: found[0]):
        parts += [f"## {' '.join(names)}", inspect.cleandoc(command.help or ""), _usage(names, command)]
        parts += _options(command)
        if command.epilog:
            parts += _end(command.epilog)
    return "\n\n".join(parts) + "\n"


def _walk(command: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that call it."""
    for name in command.list_commands(None):
        child = command.get_command(None, name)
        if hasattr(child, "commands"):
            yield from _walk(child, (*names, name))
        else:
            yield (*names, name), child


def _usage(names: tuple[str, ...], command: Any) -> str:
    arguments = [_argument(p) for p in command.params if p.param_type_name == "argument"]
    return f"```text\nlayerscope {' '.join((*names, *arguments))} [OPTIONS]\n```"


def _argument(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name).upper()
    name = f"{name}..." if parameter.nargs == -1 else name
    return name if parameter.required else f"[{name}]"


def _options(command: Any) -> Iterator[str]:
    kinds = {name: _kind(p.annotation) for name, p in inspect.signature(command.callback).parameters.items()}
    shown = [p for p in command.params if p.name != "help" and not getattr(p, "hidden", False)]
    if shown:
        rows = [_row(parameter, kinds.get(parameter.name, "str")) for parameter in shown]
        yield "\n".join(["| option | default | meaning |", "| --- | --- | --- |", *rows])


def _kind(annotation: Any) -> str:
    """The name of a parameter's type without None: annotations are types in some commands and texts in others."""
    name = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return name.removesuffix(" | None").replace("pathlib.", "")


def _row(parameter: Any, kind: str) -> str:
    argument, flag = parameter.param_type_name == "argument", kind == "bool"
    names = sorted(parameter.opts, key=len, reverse=True) + parameter.secondary_opts
    name = _argument(parameter) if argument else ", ".join(names)
    default = parameter.default
    if isinstance(default, Enum):
        value, default = " or ".join(choice.value for choice in type(default)), default.value
    else:
        value = _WORDS.get(kind, "text")
    if isinstance(parameter.show_default, str):
        default = parameter.show_default  # the function's own: the command passes on only what was given
    shown = f"`{name}`" if argument or flag else f"`{name}` *{value}*"
    told = "needed" if parameter.required else "" if flag or default in (None, (), []) else f"`{default}`"
    meaning = re.sub(r"\s+", " ", parameter.help or "").replace("|", "\\|").replace("<", "&lt;")
    return f"| {shown} | {told} | {meaning} |"


def _end(epilog: str) -> Iterator[str]:
    """The examples that stand in the help text, as a block to copy, and what follows them: the call in Python."""
    examples, *rest = epilog.split("\n\n")
    yield "\n".join(["```sh", *re.findall(r"`(layerscope [^`]+)`", examples), "```"])
    yield from (text.strip() for text in rest)
