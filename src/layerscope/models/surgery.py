"""New forwards for families whose own forward runs its blocks in a way that no hook sees: each is called as a module.

SqueezeBERT calls the forward of its blocks directly, and hands them (batch, width, time). XLM and FlauBERT have no
blocks at all, but four lists of their parts. The weights, their names and what is computed stay as they are, which is
checked against the family's own forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import MethodType
from typing import Any

from torch import Tensor, nn

_BLOCKS = "_layerscope_blocks"  # an attribute of base models: not registered, so no weight is there twice


class TurnedBlock(nn.Module):
    """A block of SqueezeBERT, called with states (batch, time, width)."""

    def __init__(self, base: Any, place: int) -> None:
        super().__init__()
        self.layer = base.encoder.layers[place]

    def forward(self, hidden_states: Tensor, attention_mask: Tensor, output_attentions: bool = False) -> Tensor:
        turned = hidden_states.permute(0, 2, 1)
        return self.layer(turned, attention_mask, output_attentions)["feature_map"].permute(0, 2, 1)


class JoinedBlock(nn.Module):
    """A block of XLM or FlauBERT, joined from its entries in four lists."""

    def __init__(self, base: Any, place: int) -> None:
        super().__init__()
        self.attention, self.feedforward = base.attentions[place], base.ffns[place]
        self.first_norm, self.second_norm = base.layer_norm1[place], base.layer_norm2[place]
        self.norms_before = bool(getattr(base, "pre_norm", False))
        self.dropout = float(base.dropout)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor, mask: Tensor) -> Tensor:
        state, before = hidden_states, self.norms_before
        attended = self.attention(self.first_norm(state) if before else state, attention_mask)[0]
        state = state + nn.functional.dropout(attended, p=self.dropout, training=self.attention.training)
        state = state if before else self.first_norm(state)
        state = state + self.feedforward(self.second_norm(state) if before else state)
        state = state if before else self.second_norm(state)
        return state * mask.unsqueeze(-1).to(state.dtype)


def _squeezed_forward(
    encoder: Any, hidden_states: Tensor, attention_mask: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """Run a SqueezeBertEncoder with its blocks called as modules."""
    from transformers.modeling_outputs import BaseModelOutput

    if _asks_for_more(*args, **kwargs):
        return type(encoder).forward(encoder, hidden_states, attention_mask, *args, **kwargs)
    for block in vars(encoder)[_BLOCKS]:
        hidden_states = block(hidden_states, attention_mask)
    return BaseModelOutput(last_hidden_state=hidden_states)


def _joined_forward(base: Any, input_ids: Any = None, attention_mask: Any = None, **kwargs: Any) -> Any:
    """Run an XLMModel with its blocks called as modules."""
    from transformers.modeling_outputs import BaseModelOutput
    from transformers.models.xlm.modeling_xlm import get_masks

    original = type(base).forward
    if input_ids is None or kwargs.get("cache") is not None or _asks_for_more(**kwargs):
        return original(base, input_ids, attention_mask, **kwargs)
    # With no block to run, the original forward gives the embedding output.
    depth, base.n_layers = base.n_layers, 0
    try:
        state = original(base, input_ids, attention_mask, **{**kwargs, "return_dict": True}).last_hidden_state
    finally:
        base.n_layers = depth
    lengths = kwargs.get("lengths")
    lengths = (input_ids != base.pad_index).sum(dim=1).long() if lengths is None else lengths
    mask, attended = get_masks(input_ids.shape[1], lengths, base.causal, padding_mask=attention_mask)
    for block in vars(base)[_BLOCKS]:
        state = block(state, attended, mask)
    return BaseModelOutput(last_hidden_state=state)


def _asks_for_more(*args: Any, **kwargs: Any) -> bool:
    """Return whether a call asks for attention or all states, which only the family's own forward gives."""
    return any(args) or bool(kwargs.get("output_attentions") or kwargs.get("output_hidden_states"))


@dataclass(frozen=True)
class Rewiring:
    """The way in which one family's blocks become modules that are called."""

    lists: tuple[str, ...]  # the lists that hold the parts of the blocks, one entry for each block
    runner: str  # the module that runs them, a path from the base model
    block: Callable[[Any, int], nn.Module]
    forward: Callable[..., Any]


_JOINED = Rewiring(("attentions", "layer_norm1", "ffns", "layer_norm2"), "", JoinedBlock, _joined_forward)
REWIRINGS = {
    "squeezebert": Rewiring(("encoder.layers",), "encoder", TurnedBlock, _squeezed_forward),
    "xlm": _JOINED,
    "flaubert": _JOINED,
}


def rewiring_of(config: Any) -> Rewiring | None:
    """Return how a config's family is rewired, or None where it need not be."""
    return REWIRINGS.get(config.model_type)


def rewire(base: Any) -> None:
    """Make a network of such a family call its blocks as modules from now on."""
    rewiring = REWIRINGS[base.config.model_type]
    runner = base.get_submodule(rewiring.runner)
    if _BLOCKS not in vars(runner):
        set_blocks(base, blocks_of(base))
        runner.forward = MethodType(rewiring.forward, runner)  # a method, so that a copy's is the copy's


@contextmanager
def original_forward(base: Any) -> Iterator[None]:
    """Give a rewired network its family's own forward back while the block runs."""
    runner = base.get_submodule(REWIRINGS[base.config.model_type].runner)
    rewired = vars(runner).pop("forward")
    try:
        yield
    finally:
        runner.forward = rewired


def blocks_of(base: Any) -> tuple[nn.Module, ...]:
    """Return the blocks of a base model of such a family: the ones that it calls, where it is rewired."""
    rewiring = REWIRINGS[base.config.model_type]
    wired = vars(base.get_submodule(rewiring.runner)).get(_BLOCKS)
    if wired is not None:
        return tuple(wired)
    return tuple(rewiring.block(base, place) for place in range(len(base.get_submodule(rewiring.lists[0]))))


def set_blocks(base: Any, blocks: tuple[nn.Module, ...]) -> None:
    """Make a rewired network run these blocks."""
    vars(base.get_submodule(REWIRINGS[base.config.model_type].runner))[_BLOCKS] = blocks
