"""The command line: one thin file per command. Nothing heavy is imported to print a help text."""

from __future__ import annotations

import errno
import sys
from importlib import import_module
from typing import Any

import typer

from layerscope.cli import console, record
from layerscope.cli.console import Group
from layerscope.errors import LayerscopeError

# Every command in the order of the help text, with the file that holds it.
COMMANDS = {
    "study": "study",
    "extract": "extract",
    "compare": "compare",
    "localization": "localization",
    "influence": "influence",
    "evaluate": "evaluate",
    "truncate": "truncate",
    "skip": "skip",
    "advise": "advise",
    "heal": "heal",
    "specialty": "specialty",
    "rank": "rank",
    "tune": "tune",
    "strategies": "tune",
    "align": "align",
    "inject": "inject",
    "report": "report",
    "figures": "report",
    "reproduce": "reproduce",
    "tasks": "tasks",
    "models": "models",
    "measures": "measures",
    "demo": "demo",
    "cache": "cache",
}


class Commands(Group):
    """The commands, each imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            module = import_module(f"{__name__}.{COMMANDS[cmd_name]}")
            self.commands[cmd_name] = getattr(module, cmd_name)
        return self.commands[cmd_name]


app = typer.Typer(
    name="layerscope",
    cls=Commands,
    help="Look into the layers of transformer language models, and act on what you see.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from layerscope.version import __version__

        print(f"layerscope {__version__}")
        raise typer.Exit


@app.callback(epilog="Example:  `layerscope extract demo:minilm --task pydocs --pool mean`")
def _options(
    version: bool = typer.Option(
        False, "--version", help="Print the version and stop.", is_eager=True, callback=_print_version
    ),
    verbose: bool = typer.Option(False, "--verbose", help="Say how the work is done (may stand anywhere)."),
    quiet: bool = typer.Option(False, "--quiet", help="Show warnings alone, no progress (may stand anywhere)."),
    debug: bool = typer.Option(False, "--debug", help="Show where an error came from (may stand anywhere)."),
) -> None:
    record.begin()


def main() -> None:
    """Run the command line. Exit codes: 0 done and met, 3 done and not met, 2 a mistake in the input, 1 anything else.

    A mistake is one sentence and never a traceback.
    """
    debug = "--debug" in sys.argv[1:]
    console.prepare(verbose=debug or "--verbose" in sys.argv[1:], quiet="--quiet" in sys.argv[1:])
    arguments = [a for a in sys.argv[1:] if a not in ("--debug", "--verbose", "--quiet")]
    try:
        if not {"-h", "--help", "--version"} & set(arguments):
            from layerscope.store import clear_everywhere

            clear_everywhere()  # what a killed command left half written
        app(arguments)
    except LayerscopeError as error:
        if debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except Exception as error:
        fault = _disk_fault(error)
        if debug or fault is None:
            raise
        print(f"error: {fault}", file=sys.stderr)
        sys.exit(1 if fault == _FULL else 2)


_FULL = (
    "The disk is full, or a file would be larger than it allows (ulimit -f): what was being written is not there. Free "
    "some space, or write elsewhere (-o)."
)


def _disk_fault(error: Exception) -> str | None:
    """The sentence for what a disk refuses, or None where that is not what happened."""
    from layerscope.store import full_disk

    if full_disk(error) is not None:
        return _FULL
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return f"{str(error.filename)[:100]} .. cannot be read or written: {error.strerror}; give a shorter path."
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{error.filename} may not be read or written: {error.strerror}."
    return None
