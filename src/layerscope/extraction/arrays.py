"""Arrays of one's own as states."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.errors import InputError, LayerscopeWarning

_BLURRED = 1e-3  # of a column's spread: rounding above this is seen in results
_CONSTANT = 1e-10  # of a column's size: a spread below this is the rounding of a constant column


def real_numbers(i: int, array: Any) -> Tensor:
    """Array number i as a tensor, or the error that it does not hold real numbers."""
    given = array if isinstance(array, Tensor) else np.asarray(array)
    if isinstance(given, np.ndarray) and given.dtype.kind not in "fiub":
        raise InputError(f"Array {i} holds {given.dtype}; real numbers are needed.")
    if isinstance(given, Tensor) and given.is_complex():
        raise InputError(f"Array {i} holds {given.dtype}; real numbers are needed.")
    if isinstance(given, np.ndarray) and not given.flags.writeable:
        given = given.copy()  # torch would warn
    return torch.as_tensor(given)


def warn_of_lost_digits(i: int, state: Tensor) -> None:
    """Say where columns lie so far from 0 beside their spread that float32, in which states are kept, blurs them."""
    if state.dtype != torch.float64 or len(state) < 2:
        return
    lost = (state - state.float()).abs().amax(dim=0)
    spread = state.std(dim=0)
    blurred = (lost > _BLURRED * spread) & (spread > _CONSTANT * state.abs().amax(dim=0))
    if bool(blurred.any()):
        warnings.warn(
            f"Array {i}: {int(blurred.sum())} of {len(blurred)} columns vary so little beside their size that float32, "
            "in which states are kept, blurs them; subtract their means first.",
            LayerscopeWarning,
            stacklevel=3,
        )
