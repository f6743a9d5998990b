"""The model that a network began as: its name, its revision on the hub, and the licence that its own card states."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from layerscope.models.lineage import Base
from layerscope.models.sources import DEMO, DEMO_LM, GARDEN, Source

CARD = "README.md"
_LONGEST_CARD = 1 << 20  # bytes
_IN_CACHE = re.compile(r"models--([^/\\]+)[/\\]snapshots[/\\]([0-9a-f]{40})")  # as the hub's cache keeps a revision
_HEAD = re.compile(r"\s*---[ \t]*\n(.*?)\n---[ \t]*(?:\n|\Z)", re.DOTALL)  # of a card: its data
_LICENCE = ("license", "license_name", "license_link")  # as cards spell it


def base_of(source: Source, folder: Path) -> Base:
    """The source that was opened from a folder, as the base of what is made of it."""
    if source.random:
        return Base(name=f"random:{short(source.name)}")
    match = _IN_CACHE.search(str(folder.absolute()))
    name = match[1].replace("--", "/", 1) if match else ""
    if match and (name == source.name or os.path.isdir(source.name)):
        return Base(name=name, hub=True, revision=match[2], **licence(folder))
    hub = not _is_packaged(source.name) and not os.path.exists(source.name)
    return Base(name=short(source.name), hub=hub, revision=source.revision, **licence(folder))


def licence(folder: Path) -> dict[str, Any]:
    """The licence that the card in a folder states; nothing where there is no card, or it states none."""
    path = folder / CARD
    try:
        if path.stat().st_size > _LONGEST_CARD:
            return {}
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    import yaml

    head = _HEAD.match(text)
    try:
        stated = yaml.safe_load(head[1]) if head else {}
    except yaml.YAMLError:  # a card is written by hand, and a broken one states nothing
        return {}
    if not isinstance(stated, dict):
        return {}
    kept = {name: stated[name] for name in _LICENCE if isinstance(stated.get(name), str)}
    several = stated.get("license")
    if isinstance(several, list) and several and all(isinstance(name, str) for name in several):
        kept["license"] = several
    return kept


def short(name: str) -> str:
    """A name that can be published: of a folder or a file its last part, not where it lies on this machine."""
    return Path(name).resolve().name if not _is_packaged(name) and os.path.exists(name) else name


def _is_packaged(name: str) -> bool:
    """Whether a model is in a Python package that goes with this one."""
    return name.startswith(GARDEN) or name in (DEMO, DEMO_LM)
