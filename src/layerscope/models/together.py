"""Several states through one block at once, under the arguments of one recorded forward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from layerscope.models.replay import Replay
from layerscope.models.selfcheck import of_base, probe_inputs

if TYPE_CHECKING:
    from layerscope.models.load import Model


class Together:
    """Runs states of the same texts through a block as one batch: every argument is repeated along its batch axis.

    Which axis that is differs between families, so it is found out: the model is recorded with two and with three
    texts, and an axis whose size follows is the batch's.
    """

    def __init__(self, model: Model) -> None:
        with torch.inference_mode():
            base = of_base(model)  # a head without a padding token may take one text only
            two, three = (Replay(base, probe_inputs(base, rows=rows)) for rows in (2, 3))
        self._axes = [
            _axes((a.args, dict(a.kwargs)), (b.args, dict(b.kwargs)))
            for a, b in zip(two.calls, three.calls, strict=True)
        ]

    def run(self, replay: Replay, states: Sequence[Tensor], block: int) -> list[Tensor]:
        """The block on each state; one by one where the arguments are not of the recorded kind."""
        call = replay.calls[block - 1]
        if len(states) > 1:
            try:
                args, kwargs = _repeated((call.args, dict(call.kwargs)), self._axes[block - 1], len(states))
            except _UnknownAxisError:
                return [replay.run(state, block) for state in states]
            joined = replay.run_call(replace(call, args=args, kwargs=kwargs), torch.cat(list(states)))
            return list(joined.split(len(states[0])))
        return [replay.run(state, block) for state in states]


class _UnknownAxisError(Exception):
    """A tensor was not there, or of another shape, when the axes were found out."""


def _axes(a: Any, b: Any) -> Any:
    """For every tensor in two recorded arguments the axes that differ; None for what is not a tensor."""
    if isinstance(a, Tensor) and isinstance(b, Tensor) and a.ndim == b.ndim:
        return tuple(k for k in range(a.ndim) if a.shape[k] != b.shape[k]), a.ndim
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return {k: _axes(a[k], b.get(k)) for k in a}
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)) and len(a) == len(b):
        return [_axes(x, y) for x, y in zip(a, b, strict=True)]
    return None


def _repeated(value: Any, axes: Any, count: int) -> Any:
    if isinstance(value, Tensor):
        if not (isinstance(axes, tuple) and axes[1] == value.ndim):
            raise _UnknownAxisError
        repeats = [count if k in axes[0] and value.shape[k] > 1 else 1 for k in range(value.ndim)]
        return value.repeat(repeats) if max(repeats, default=1) > 1 else value
    if isinstance(value, Mapping):
        by_name = axes if isinstance(axes, Mapping) else {}
        return {k: _repeated(v, by_name.get(k), count) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        known = axes if isinstance(axes, list) and len(axes) == len(value) else [None] * len(value)
        return type(value)(_repeated(v, a, count) for v, a in zip(value, known, strict=True))
    return value
