"""Injection: a target's upper blocks and head on the mapped states of a source (Ren et al. 2023, section 4.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from layerscope.alignment.align import Place
from layerscope.alignment.aligner import Aligner
from layerscope.errors import InputError, ModelError, whole
from layerscope.models import Model, Replay
from layerscope.models.architecture import evaluating
from layerscope.models.fingerprint import tokenizer_identity
from layerscope.models.load import load_whole
from layerscope.models.selfcheck import primary


class Injection:
    """A target that goes on with a source's states; `ls.inject` makes one.

    It is called as the target is, with the target's inputs, and gives what the target would, had its layer been the
    source's: the source runs as a whole, its layer's states are mapped token by token, and the target's blocks above
    run on them.

    Example:
        >>> import numpy as np
        >>> import layerscope as ls
        >>> model = ls.load("garden:bert-s0")
        >>> rows = np.random.default_rng(0).normal(size=(20, model.width))
        >>> injection = ls.inject(model, model, ls.align(rows, rows, method="identity"), layer=2)
        >>> injection.source_layer, injection.layer
        (2, 2)
    """

    def __init__(self, source: Model, target: Model, aligner: Aligner, layer: int, source_layer: int) -> None:
        check(source, target, [(source_layer, layer)])
        widths = aligner.widths_
        needed = source.widths[source_layer], target.widths[layer]
        if widths is not None and widths != needed:
            raise InputError(
                f"The aligner maps width {widths[0]} to {widths[1]}; {source.name} has {needed[0]} and {target.name} "
                f"has {needed[1]}."
            )
        self.source, self.target, self.aligner = source, target, aligner
        self.layer, self.source_layer = layer, source_layer

    def __call__(self, **inputs: Tensor) -> Any:
        """What the target's network gives, for inputs as it takes them: tensors by name."""
        if wrong := [name for name, value in inputs.items() if not isinstance(value, Tensor)]:
            raise InputError(
                f"{wrong[0]} is {inputs[wrong[0]]!r}, and an injection takes tensors as the target's tokenizer gives "
                "them; states and attentions of what it runs are not kept."
            )
        with torch.no_grad(), evaluating(self.source.network), evaluating(self.target.network):
            source = Replay(self.source, {k: v.to(self.source.device) for k, v in inputs.items()})
            target = Replay(self.target, {k: v.to(self.target.device) for k, v in inputs.items()})
            return above(target, self.layer, mapped(self.aligner, source.states[self.source_layer], target))


def inject(
    source: Any, target: Any, aligner: Aligner, layer: int | None = None, *, source_layer: int | None = None
) -> Injection:
    """The target with its layer replaced by the source's, mapped by an aligner.

    Args:
        source: The model whose states are mapped.
        target: The model that goes on with them. Both must read the same tokens: models with different tokenizers are
            refused.
        aligner: The map from the source's width to the target's.
        layer: The target's layer that is replaced, 0..L; its last one if not given.
        source_layer: The source's layer that stands in: if not given that of the same number, or the source's last
            one for the target's last.

    Returns:
        What is called as the target is, with the target's inputs.

    Example:
        >>> import numpy as np
        >>> import layerscope as ls
        >>> model = ls.load("garden:bert-s0")
        >>> rows = np.random.default_rng(0).normal(size=(20, model.width))
        >>> same = ls.inject(model, model, ls.align(rows, rows, method="identity"))
        >>> inputs = model.tokenizer("the value of a list", return_tensors="pt")
        >>> bool((same(**inputs)[0] - model.network(**inputs)[0]).abs().max() < 1e-4)
        True
    """
    giving, taking = (load_whole(model, "injection", head=False) for model in (source, target))
    chosen = taking.depth if layer is None else layer
    if source_layer is None:
        source_layer = counterpart(giving, taking, chosen)
    return Injection(giving, taking, aligner, chosen, source_layer)


def counterpart(source: Model, target: Model, layer: int) -> int:
    """The source's layer that stands in for one of the target's: the same number, its last for the target's last."""
    return source.depth if layer == target.depth else layer


def check(source: Model, target: Model, places: Sequence[Place]) -> None:
    """Raise ModelError or InputError where the source cannot stand in for the target at these pairs of layers."""
    if tokenizer_identity(source.tokenizer) != tokenizer_identity(target.tokenizer):
        raise ModelError(
            f"{source.name} and {target.name} have different tokenizers, so their tokens do not correspond and one "
            "cannot be injected into the other; align their sentences or words instead (ls.align on pooled states)."
        )
    for place in places:
        for model, layer in zip((source, target), place, strict=True):
            if not whole(layer) or not 0 <= layer <= model.depth:
                raise InputError(f"Layer {layer} was asked for; {model.name} has layers 0..{model.depth}.")


def mapped(aligner: Any, state: Tensor, replay: Replay) -> Tensor:
    """The source's states (batch, time, width) as states of the same tokens in the target's space."""
    like = replay.states[-1]
    flat = aligner(state.reshape(-1, state.shape[-1]).to(like.device))
    return flat.reshape(*state.shape[:-1], -1).to(like.dtype)


def above(replay: Replay, layer: int, state: Tensor) -> Any:
    """The output of the target's network when its layer holds this state."""
    return replay.finish(replay.run(state, layer + 1, replay.depth) if layer < replay.depth else state)


def logits(replay: Replay, layer: int, state: Tensor) -> Tensor:
    """The logits of the target when its layer holds this state."""
    return primary(above(replay, layer, state))
