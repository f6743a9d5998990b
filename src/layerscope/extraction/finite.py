"""Whether every state is a finite number, and where the first is that is not."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from layerscope.errors import InputError
from layerscope.extraction.representations import Representations

_BLOCK = 8192  # rows: stored representations are read piece by piece
_WAY_OUT = "every state must be a finite number, so leave such rows out, or fix what made them."


def check_finite(given: Any, name: str = "The array") -> None:
    """Raise a sentence that names the first NaN or infinity, if there is one.

    Args:
        given: Representations (the sentence then names the layer and the row), or an array (n, d), numpy or torch.
        name: What an array is called in the sentence, such as "X" or "Layer 3 of the source".
    """
    if isinstance(given, Representations):
        for layer in given.layers:
            for start in range(0, len(given), _BLOCK):
                check_part(given, layer, start, given.part(layer, start, start + _BLOCK))
    elif (row := first_not_finite(torch.as_tensor(given))) is not None:
        raise InputError(f"{name} has {_kind(torch.as_tensor(given)[row])} in row {row}; {_WAY_OUT}")


def check_part(reps: Representations, layer: int, start: int, states: Tensor) -> None:
    """Raise the sentence if `states`, the rows of a layer from `start` on, are not all finite."""
    if (here := first_not_finite(states)) is None:
        return
    row = start + here
    source = f" of {reps.info['model']}" if "model" in reps.info else ""
    name = reps.names[reps.layers.index(layer)]
    called = "" if name == str(layer) else f" ({name})"
    raise InputError(
        f"Layer {layer}{called}{source} has {_kind(states[here])} in row {row}{_text(reps, row)}; {_WAY_OUT}"
    )


def first_not_finite(states: Tensor) -> int | None:
    """The first row that is not finite, or None."""
    if not states.is_floating_point() or bool(torch.isfinite(states.sum())):
        return None  # a NaN or an infinity is never lost in a sum; finite numbers may overflow in it
    bad = ~torch.isfinite(states).reshape(len(states), -1).all(dim=1)
    return int(bad.nonzero()[0]) if bool(bad.any()) else None


def _kind(row: Tensor) -> str:
    return "a NaN" if bool(torch.isnan(row).any()) else "an infinity"


def _text(reps: Representations, row: int) -> str:
    """Which text of which data a row is, where that is known and not the row's own number."""
    identity = {name: int(part[row]) for name, part in reps.rows.arrays().items()}
    if reps.rows.task is None and identity == {"row": row}:
        return ""
    unit = (reps.rows.units or "unit").split()[0]
    words = {"row": "text", "unit": unit}
    said = ", ".join(f"{words.get(part, part)} {number}" for part, number in identity.items())
    data = "" if reps.rows.task is None else f" of {reps.rows.task} ({reps.rows.split})"
    return f" ({said}{data})"
