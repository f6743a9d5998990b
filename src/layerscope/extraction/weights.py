"""One forward that shows attention weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from layerscope.errors import ModelError
from layerscope.extraction.encode import Item
from layerscope.extraction.forward import Runner
from layerscope.models import Model


def forward(runner: Runner, items: Sequence[Item]) -> tuple[Tensor, ...]:
    """Per block (texts, attention heads, time, time) of some texts, padding included; the model must be `eager`."""
    model = runner.model
    with runner.ready():
        result = model.network.base_model(**runner.inputs(items), output_attentions=True)
    weights = getattr(result, "attentions", None) or ()
    expected = (len(items), attention_heads(model))
    if len(weights) != model.depth or any(w is None or w.shape[:2] != expected for w in weights):
        raise ModelError(
            f"{model.name} ({model.anatomy.family}) does not give attention weights of its {model.depth} blocks."
        )
    return tuple(weights)


def attention_heads(model: Model) -> int:
    """How many attention heads a block has."""
    return int(model.network.config.num_attention_heads)


@contextmanager
def eager(model: Model) -> Iterator[None]:
    """Plain attention, the only one that shows its weights, until the block ends."""
    network = model.network
    before = network.config._attn_implementation
    if before != "eager":
        network.set_attn_implementation("eager")
    try:
        yield
    finally:
        if before != "eager":
            network.set_attn_implementation(before)
