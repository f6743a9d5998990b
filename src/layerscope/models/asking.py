"""Questions that only the network can answer: it is run on a few tokens and its answers are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from layerscope.models.anatomy import evaluating
from layerscope.models.replay import Replay, caches_off
from layerscope.models.selfcheck import close, of_base, primary, probe_inputs

if TYPE_CHECKING:
    from layerscope.models.load import Model

Padding = Literal["right", "left", "none"]


def head_padding(model: Model) -> Padding:
    """The side on which texts may be padded without changing the head's answers; `none`: one text at a time.

    Heads read the first position, the last one, the last that is not a padding token, or the mean of all.
    """
    real = 7 if model.anatomy.unpadded else 5  # then texts of one length are all that share a batch
    inputs = probe_inputs(model, rows=2, padded=True, length=7, real=real)
    with torch.inference_mode(), evaluating(model.network), caches_off(model.network):
        alone = _answers(model, {name: value[..., 1:2, :real] for name, value in inputs.items()})
        sides: tuple[Padding, ...] = ("right", "left")
        for side in sides:
            rolled = {n: v if side == "right" else _rolled(v) for n, v in inputs.items()}
            try:
                together = _answers(model, rolled)
            except (ValueError, RuntimeError):  # heads that look for a padding token refuse several texts without one
                return "none"
            if close(together[1:], alone):
                return side
    return "none"


def _answers(model: Model, inputs: dict[str, Tensor]) -> Tensor:
    """(rows, outputs), also where the rows are choices of one text."""
    return primary(model.network(**inputs)).reshape(inputs["input_ids"].numel() // inputs["input_ids"].shape[-1], -1)


def _rolled(value: Tensor) -> Tensor:
    """The second row with its two places of padding in front."""
    rolled = value.clone()
    rolled[..., 1, :] = value[..., 1, :].roll(2, dims=-1)
    return rolled


def is_causal(model: Model) -> bool:
    """Whether the first token never sees the later ones."""
    base = of_base(model)
    inputs = probe_inputs(base, rows=1)
    other = {**inputs, "input_ids": inputs["input_ids"].clone()}
    other["input_ids"][:, 1:] = probe_inputs(base, seed=1, rows=1)["input_ids"][:, 1:]
    with torch.inference_mode(), evaluating(model.network):
        first, second = (Replay(base, tokens).states[-1][:, 0] for tokens in (inputs, other))
    return close(first, second)
