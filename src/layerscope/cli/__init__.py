"""The command line: one thin file a command. Nothing heavy is imported to print a help text."""

from __future__ import annotations

import logging
import os
import sys

import typer

from layerscope.cli import cache, demo, extract, models, tasks
from layerscope.errors import LayerscopeError, log

app = typer.Typer(
    name="layerscope",
    help="Look into the layers of transformer language models, and act on what you see.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (extract, tasks, models, demo):
    command.register(app)
app.add_typer(cache.app, name="cache")


@app.callback(epilog="Example:  `layerscope extract demo:minilm --task pydocs --pool mean`")
def _options(
    version: bool = typer.Option(False, "--version", help="Print the version and stop."),
    debug: bool = typer.Option(False, "--debug", help="Show where an error came from (may stand anywhere)."),
) -> None:
    pass


def main() -> None:
    """Run the command line; a user's mistake is one sentence and exit code 2, never a traceback."""
    import click

    arguments = [a for a in sys.argv[1:] if a != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    if arguments == ["--version"]:
        from layerscope import __version__

        print(f"layerscope {__version__}")
        return
    _notes_on_stderr(debug)
    try:
        code = app(arguments, standalone_mode=False)
    except LayerscopeError as error:
        if debug:
            raise
        code = _say(f"error: {error}", 2)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        code = _say("Interrupted. What was finished is kept: the same command goes on from there.", 130)
    except BrokenPipeError:  # the reader of a pipe (head) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code if isinstance(code, int) else 0)


def _say(sentence: str, code: int) -> int:
    print(sentence, file=sys.stderr)
    return code


def _notes_on_stderr(debug: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("note: %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO if debug else logging.WARNING)
    log.propagate = False
