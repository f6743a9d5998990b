"""Injection: a target's upper blocks and head on the mapped states of a source (Ren et al. 2023, section 4.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from layerscope.alignment import Aligner
from layerscope.errors import InputError, ModelError
from layerscope.models import Model, Replay, load
from layerscope.models.anatomy import evaluating
from layerscope.models.identity import tokenizer_fingerprint
from layerscope.models.selfcheck import primary


class Injection:
    """Called as the target is, with the target's inputs; gives what the target would, had its layer been the source's.

    The source runs as a whole, its layer's states are mapped token by token, and the target's blocks above run on them.
    """

    def __init__(self, source: Model, target: Model, aligner: Aligner, layer: int, source_layer: int) -> None:
        check(source, target, [(layer, source_layer)])
        widths = aligner.widths_
        if widths is not None and widths != (source.width, target.width):
            raise InputError(
                f"The aligner maps width {widths[0]} to {widths[1]}; {source.name} has {source.width} and "
                f"{target.name} has {target.width}."
            )
        self.source, self.target, self.aligner = source, target, aligner
        self.layer, self.source_layer = layer, source_layer

    def __call__(self, **inputs: Tensor) -> Any:
        with torch.no_grad(), evaluating(self.source.network), evaluating(self.target.network):
            given = Replay(self.source, {k: v.to(self.source.device) for k, v in inputs.items()})
            taken = Replay(self.target, {k: v.to(self.target.device) for k, v in inputs.items()})
            return above(taken, self.layer, mapped(self.aligner, given.states[self.source_layer], taken))


def inject(
    source: Any, target: Any, aligner: Aligner, layer: int | None = None, *, source_layer: int | None = None
) -> Injection:
    """The target with its layer replaced by the source's, mapped by the aligner.

    `layer` is the target's (0..L, its last one if not given), `source_layer` the source's (the same number, or its last
    for the target's last). Both must read the same tokens: models with different tokenizers are refused.
    """
    one, two = load(source), load(target)
    chosen = two.depth if layer is None else layer
    theirs = source_layer if source_layer is not None else one.depth if chosen == two.depth else chosen
    return Injection(one, two, aligner, chosen, theirs)


def check(source: Model, target: Model, layers: Sequence[tuple[int, int]]) -> None:
    """Raise a sentence where the source cannot stand in for the target at these (target's, source's) layers."""
    if tokenizer_fingerprint(source.tokenizer) != tokenizer_fingerprint(target.tokenizer):
        raise ModelError(
            f"{source.name} and {target.name} have different tokenizers, so their tokens do not correspond and one "
            "cannot be injected into the other; align their sentences or words instead (ls.align on pooled states)."
        )
    for chosen, theirs in layers:
        for model, layer in ((target, chosen), (source, theirs)):
            if not 0 <= layer <= model.depth:
                raise InputError(f"Layer {layer} was asked for; {model.name} has layers 0..{model.depth}.")


def mapped(aligner: Any, state: Tensor, replay: Replay) -> Tensor:
    """(batch, time, width) of the source -> the same tokens in the target's space."""
    like = replay.states[-1]
    flat = aligner(state.reshape(-1, state.shape[-1]).to(like.device))
    return flat.reshape(*state.shape[:-1], -1).to(like.dtype)


def above(replay: Replay, layer: int, state: Tensor) -> Any:
    """What the target answers when its layer holds this state."""
    return replay.finish(replay.run(state, layer + 1, replay.depth) if layer < replay.depth else state)


def logits(replay: Replay, layer: int, state: Tensor) -> Tensor:
    return primary(above(replay, layer, state))
