"""Is replay sound for this model? Checked on the model, not believed; and the generic finder that needs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from layerscope.errors import ModelError
from layerscope.models.anatomy import Anatomy, as_it_was, block_modules, evaluating, only_blocks
from layerscope.models.replay import Replay, caches_off, same, state_of

if TYPE_CHECKING:
    from layerscope.models.load import Model

_SHORT, _LONG = 7, 1024  # tokens of a probe; BigBird's attention, for one, is another above 704
_LOW = 2  # blocks that a long probe goes through


def find_anatomy(network: Any) -> list[Anatomy]:
    """Candidates for a family without a record: lists of `depth` modules of one class."""
    config = network.config
    depth = getattr(config, "num_hidden_layers", None)
    if not depth:
        raise ModelError(
            f"{config.model_type} is not supported: its config has no num_hidden_layers, so its blocks cannot be found."
        )
    field = config.attribute_map.get("num_hidden_layers", "num_hidden_layers")
    base = network.base_model
    candidates = []
    for path, module in base.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == depth and len({type(m) for m in module}) == 1:
            candidates.append(Anatomy(config.model_type, path, field, _per_layer(config, depth), generic=True))
    if not candidates:
        raise ModelError(
            f"{config.model_type} is not supported: no list of {depth} blocks was found in {type(base).__name__}."
        )
    pooler = tuple(name for name, _ in base.named_children() if name == "pooler")
    return [replace(anatomy, base_head=pooler, final_norm=_final_norm(base, anatomy)) for anatomy in candidates]


def _per_layer(config: Any, depth: int) -> tuple[str, ...]:
    values = config.to_dict().items()
    return tuple(sorted(name for name, value in values if isinstance(value, list) and len(value) == depth))


def _final_norm(base: nn.Module, anatomy: Anatomy) -> str | None:
    """A norm that stands beside the blocks and after them."""
    parent, _, name = anatomy.blocks.rpartition(".")
    seen, norm = False, None
    for child, module in base.get_submodule(parent).named_children():
        seen = seen or child == name
        if seen and "norm" in type(module).__name__.lower():
            norm = f"{parent}.{child}".lstrip(".")
    return norm


def faults(model: Model) -> Iterator[str]:
    """Every way in which replay is not this model's own computation; nothing if it is sound."""
    first_inputs, other_inputs = probe_inputs(model, 0), probe_inputs(model, 1)
    with as_it_was(model.network), torch.inference_mode(), evaluating(model.network):
        yield from _check_long(of_base(model))  # first: a short text must not have changed anything yet
        yield from _check(model, first_inputs, other_inputs)


def _check(model: Model, first_inputs: dict[str, Tensor], other_inputs: dict[str, Tensor]) -> Iterator[str]:
    network = model.network
    replay, other = Replay(model, first_inputs), Replay(model, other_inputs)
    for block, (a, b) in enumerate(zip(replay.calls, other.calls, strict=True), start=1):
        if not (same(a.args, b.args) and same(a.kwargs, b.kwargs)):
            yield f"block {block} is called with something that depends on the tokens besides the state"
            return
    for block in range(1, replay.depth):
        if not close(replay.states[block], replay.entered[block]):
            yield f"the output of block {block} is not what block {block + 1} receives"
            return
    if not _padding_is_unseen(model):
        yield "padding changes the states of the tokens before it"
        return
    composed = replay.run(replay.states[0], 1, replay.depth)
    if not close(primary(replay.finish(composed)), primary(replay.result)):
        yield "its blocks run one by one do not give its own output"
        return
    middle = (replay.depth + 1) // 2
    for first, last in dict.fromkeys(((1, 1), (middle, middle), (replay.depth, replay.depth))):
        if replay.depth == 1:
            break
        kept = [b for b in range(1, replay.depth + 1) if not first <= b <= last]
        with only_blocks(network, model.anatomy, kept), caches_off(network):
            removed = primary(network(**first_inputs))
        if not close(primary(replay.finish(replay.without(first, last))), removed):
            yield f"replay without block {first} is not the model with block {first} removed"
            return


def _padding_is_unseen(model: Model) -> bool:
    """Whether a text has the same states alone and padded on the right; what its head reads is another question."""
    base = of_base(model)
    inputs = probe_inputs(base, padded=True)
    together = Replay(base, inputs)
    alone = Replay(base, {name: value[1:2, :5] for name, value in inputs.items()})
    return all(close(a[1:, :5], b) for a, b in zip(together.states, alone.states, strict=True))


def _check_long(base: Model) -> Iterator[str]:
    """Long texts, which some attention treats unlike short ones; the lowest blocks tell, whatever the model's size."""
    length = min(base.positions or _LONG, _LONG)
    part = 3 * length // 4
    inputs = probe_inputs(base, padded=True, length=length, real=part)
    alone = {name: value[1:, :part] for name, value in inputs.items()}
    short = {name: value[:1, :_SHORT] for name, value in inputs.items()}
    try:
        before, together = (_low_state(base, tokens)[-1:, :part] for tokens in (alone, inputs))
    except (IndexError, RuntimeError):
        if base.positions is None:  # there is a limit of which the config does not tell
            return
        raise
    if not close(together, before):
        yield "padding changes the states of the tokens before it in long texts"
        return
    _low_state(base, short)
    if not close(_low_state(base, alone)[:, :part], before):
        yield "a short text changes what later long ones give"


def _low_state(base: Model, inputs: dict[str, Tensor]) -> Tensor:
    """The output of block 2 (or of the only one); nothing above it is run."""
    seen: list[Tensor] = []
    block = block_modules(base.network, base.anatomy)[:_LOW][-1]

    def see(_: nn.Module, __: Any, output: Any) -> None:
        seen.append(state_of(output))
        if len(seen) == (min(_LOW, base.depth) if base.anatomy.shared else 1):
            raise _Seen

    hook = block.register_forward_hook(see)
    try:
        with caches_off(base.network):
            base.network(**inputs)
    except _Seen:
        pass
    finally:
        hook.remove()
    return seen[-1].transpose(0, 1) if base.anatomy.time_first else seen[-1]


class _Seen(Exception):  # noqa: N818  (not an error)
    """What is wanted of a forward has been seen."""


def of_base(model: Model) -> Model:
    """The same model without its head."""
    return replace(model, network=model.network.base_model)


def primary(result: Any) -> Tensor:
    """The tensor that a network is asked for: logits, or a bare encoder's states.

    Heads with several answers (the start and the end of a span, say) give all of them in one row per text.
    """
    if getattr(result, "logits", None) is not None:
        return result.logits
    several = [v for k, v in result.items() if k.endswith(("logits", "log_probs")) and isinstance(v, Tensor)]
    if several:
        return torch.cat([value.flatten(1) for value in several], dim=1)
    return result.last_hidden_state


def close(a: Tensor, b: Tensor) -> bool:
    """Equal to rounding, relative to the largest entry."""
    if a.shape != b.shape:
        return False
    tolerance = 1e-4 if a.dtype in (torch.float32, torch.float64) else 3e-2
    scale = max(float(b.abs().max()), 1e-6)
    return float((a.float() - b.float()).abs().max()) <= tolerance * scale


def probe_inputs(
    model: Model, seed: int = 0, rows: int = 2, padded: bool = False, length: int = _SHORT, real: int = 5
) -> dict[str, Tensor]:
    """Rows of `length` random tokens, in all but the first `real` ones and padding; the same mask for every seed.

    A head without a padding token gets one row, as such heads may take no more, unless `padded` asks for all.
    """
    config = model.network.config
    if model.pad_token is None and model.head == "classes" and not padded:
        rows = 1
    generator = torch.Generator().manual_seed(seed)
    special = {v for k, v in config.to_dict().items() if k.endswith("_token_id") and isinstance(v, int)}
    usable = torch.tensor([i for i in range(min(config.vocab_size, 2000)) if i not in special])
    if not len(usable):
        raise ModelError(f"{config.model_type} has no ordinary token in its vocabulary to check replay with.")
    ids = usable[torch.randint(len(usable), (rows, length), generator=generator)]
    mask = torch.ones_like(ids)
    mask[1:, real:] = 0
    ids[1:, real:] = int(usable[0]) if model.pad_token is None else model.pad_token
    inputs = {"input_ids": ids, "attention_mask": mask}
    if model.multiple_choice:
        inputs = {name: value[None] for name, value in inputs.items()}
    return {name: value.to(model.device) for name, value in inputs.items()}
