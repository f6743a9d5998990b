"""`layerscope cache ls|verify|rm`"""

from __future__ import annotations

from typing import Any

import typer

from layerscope.cli import console
from layerscope.cli.console import FORMAT, Command, Format, Group, answered, show

app = typer.Typer(
    name="cache",
    cls=Group,
    rich_help_panel=console.REST,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="List, check or remove stored results.",
    epilog="Example:  `layerscope cache ls`",
    no_args_is_help=True,
)


@app.command("ls", cls=Command, epilog="Example:  `layerscope cache ls --format json`")
@answered("cache ls")
def ls_(format: Format = FORMAT) -> None:
    """List every stored result with its size and age."""
    from layerscope.store import Store

    store = Store()
    rows = []
    for entry in store.entries():
        card = entry.card
        rows.append(
            {
                "key": entry.key[:12],
                "kind": entry.kind,
                "state": entry.state,
                "megabytes": round(entry.size / 1e6, 2),
                "created": "" if card is None else f"{card.created[:16].replace('T', ' ')} UTC",
                "of": "" if card is None else _what(card.spec),
            }
        )
    show(rows, format, f"{store.root}: {len(rows)} results")


@app.command(cls=Command, epilog="Example:  `layerscope cache verify`")
@answered("cache verify")
def verify(format: Format = FORMAT) -> None:
    """Read every stored result back and compare it with its checksums; exit code 1 if one is damaged."""
    from layerscope.store import Store

    checked = [(entry, entry.fault()) for entry in Store().entries() if entry.state == "done"]
    rows = [{"key": e.key[:12], "kind": e.kind, "fault": fault or "none"} for e, fault in checked]
    show(rows, format, f"{len(checked)} results, {sum(fault is not None for _, fault in checked)} damaged")
    if any(fault for _, fault in checked):
        raise typer.Exit(1)


@app.command(cls=Command, epilog="Example:  `layerscope cache rm --unfinished --damaged`")
@answered("cache rm")
def rm(
    keys: list[str] | None = typer.Argument(None, help="Keys or their beginnings, as `cache ls` shows them."),
    all_: bool = typer.Option(False, "--all", help="Everything."),
    unfinished: bool = typer.Option(False, "--unfinished", help="What was interrupted and never finished."),
    damaged: bool = typer.Option(False, "--damaged", help="What was found damaged and set aside."),
    kind: str | None = typer.Option(None, "--kind", help="Only results of this kind."),
    format: Format = FORMAT,
) -> None:
    """Remove stored results; they are made again when they are needed."""
    from layerscope.errors import InputError
    from layerscope.store import Store

    store = Store()
    entries = [e for e in store.entries() if kind is None or e.kind == kind]
    if kind is not None and not entries:
        raise InputError(f"No stored result is of the kind {kind!r}; see: layerscope cache ls.")
    states = {"unfinished"} if unfinished else set()
    states |= {"damaged"} if damaged else set()
    for key in keys or ():
        if not key:
            raise InputError("An empty key would name every result; use --all for that.")
        if not any(entry.key.startswith(key) for entry in entries):
            raise InputError(f"No stored result has a key that begins with {key!r}; see: layerscope cache ls.")
    chosen = [e for e in entries if all_ or e.state in states or any(e.key.startswith(key) for key in keys or ())]
    if not (keys or all_ or states):
        raise InputError("Nothing was named to remove; give keys, --all, --unfinished or --damaged.")
    rows = [{"key": e.key[:12], "kind": e.kind, "state": e.state, "megabytes": round(e.size / 1e6, 2)} for e in chosen]
    freed = sum(entry.size for entry in chosen)
    for entry in chosen:
        store.remove(entry)
    if format is Format.json:
        show(rows, format)
    else:
        print(f"Removed {len(chosen)} results, {freed / 1e6:.1f} MB.")


def _what(spec: dict[str, object]) -> str:
    """What an artifact is of: the task, split and pool somewhere in its spec."""
    words: dict[str, str] = {}

    def look(part: object) -> None:
        for name, value in part.items() if isinstance(part, dict) else ():
            if name in ("task", "split", "pool", "python") and isinstance(value, str):
                words.setdefault(name, value)
            look(value)

    look(spec)
    return " ".join(words.values())


cache: Any = typer.main.get_command(app)
cache.rich_help_panel = console.REST
