"""Can the layers of a network of one's own be run again on other states? Checked on the network, not believed."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from layerscope.errors import first_line
from layerscope.models.anatomy import evaluating
from layerscope.models.readers import InputBatch
from layerscope.models.replay import Replay
from layerscope.models.selfcheck import close, unlinked

if TYPE_CHECKING:
    from layerscope.models.own import OwnModel

_TEXT = "The cat sat on the mat ."


def fault_of(model: OwnModel) -> str | None:
    """Why the network's layers are not blocks that can be replayed; None if they are."""
    taps = model.taps
    if taps.output not in ("tensor", "first") or taps.layout == "batch width time":
        return "its layers do not hand on plain states of (batch, time, width)"
    trusted = replace(model, sound=True)
    turned = " ".join(reversed(_TEXT.split()))  # other tokens, as many of them
    with torch.inference_mode(), evaluating(model.network):
        try:
            return next(_faults(trusted, *(_inputs(model, text) for text in (_TEXT, turned))), None)
        except Exception as error:  # whatever an unknown forward may raise, it is not sound
            return f"they could not be run again ({type(error).__name__}: {first_line(error)})"


def _faults(model: OwnModel, first: dict[str, Any], other: dict[str, Any]) -> Iterator[str]:
    replay, second = Replay(model, first), Replay(model, other)
    if replay.states[0].shape != second.states[0].shape:
        yield "two texts of one length could not be made to compare them"
        return
    if fault := unlinked(replay, second, "layer"):
        yield fault
        return
    if not close(_layer_0(model, first), replay.states[0]):
        yield "layer 0 is not what layer 1 receives"
        return
    again = replay.finish(replay.run(replay.states[0], 1, replay.depth))
    pairs = list(zip(_tensors(again), _tensors(replay.result), strict=True))
    if not pairs or not all(close(a, b) for a, b in pairs):
        yield "its layers run one by one do not give its own output"


def _layer_0(model: OwnModel, inputs: Mapping[str, Any]) -> Tensor:
    from layerscope.models.taps import listening

    seen: dict[int, Tensor] = {}
    with listening(model.module, model.taps, 0, seen.__setitem__):
        model.module(**inputs)
    return seen[0]


def _inputs(model: OwnModel, text: str) -> dict[str, Any]:
    """What the network is called with for a text, by name."""
    from layerscope.models.wrapping import input_batch

    batch: InputBatch = input_batch(model, [text])
    bound = inspect.signature(model.module.forward).bind(*batch.args, **batch.kwargs)
    return dict(bound.arguments)


def _tensors(value: Any) -> list[Tensor]:
    """Every tensor of floats in a network's answer."""
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, (tuple, list)) else ()
    return [tensor for part in parts for tensor in _tensors(part)]
