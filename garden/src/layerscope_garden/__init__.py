"""The garden: small real models of several families, pre-trained from scratch, in one package for work without a hub.

`path("bert-s0")` is the folder of a standard checkpoint; with layerscope: `ls.load("garden:bert-s0")`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__version__ = "0.1.0"
_CARD = "card.json"  # written last, so that a folder with it is a whole model


def folder() -> Path:
    """Where the models are."""
    return Path(__file__).resolve().parent / "models"


def names() -> list[str]:
    """The models, by name."""
    return sorted(card.parent.name for card in folder().glob(f"*/{_CARD}"))


def path(name: str) -> Path:
    """The folder of a model; a KeyError with the names if there is none of this name."""
    if name not in names():
        raise KeyError(f"The garden has no model {name!r}; it has {', '.join(names()) or 'none'}.")
    return folder() / name


def card(name: str) -> dict[str, Any]:
    """What is known about a model: objective, corpus, steps, seed, losses, fine-tuned scores, the command."""
    return json.loads((path(name) / _CARD).read_text(encoding="utf-8"))
