"""`--push-to-hub`: what commands that save do with it."""

from __future__ import annotations

from pathlib import Path

from layerscope.cli.output import Format
from layerscope.errors import InputError


def check_publishing(repo: str | None, public: bool, folder: Path | None, option: str = "--save") -> None:
    """Raise a sentence where nothing could be put on the hub: before the work, not after it."""
    if repo is None:
        if public:
            raise InputError("--public is about a repository on the hub; name that with --push-to-hub.")
        return
    if folder is None:
        raise InputError(f"--push-to-hub puts what is saved on the hub; name a folder to save it in ({option}).")

    from layerscope.cutting.publishing import check_push

    check_push(repo, private=not public)


def publish(folder: Path, repo: str | None, public: bool, format: Format) -> None:
    """Put a folder on the hub, and say where."""
    if repo is None:
        return
    import layerscope as ls

    address = ls.push(folder, repo, private=not public)
    if format is Format.table:
        print(f"Put on the hub as {address}, {'for everyone' if public else 'private'}.")
