"""Is replay sound for this model? Checked on the model, not believed; and the generic finder that needs it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from layerscope.errors import ModelError
from layerscope.models.anatomy import MARKS_SUMMARY, Anatomy, as_it_was, block_modules, evaluating, only_blocks
from layerscope.models.replay import Replay, caches_off, same, state_of
from layerscope.models.rewiring import own_forward, rewire, rewiring_of

if TYPE_CHECKING:
    from layerscope.models.load import Model

_SHORT, _LONG = 7, 1024  # tokens of a probe; BigBird's attention, for one, is another above 704
_NO_BLOCKS = re.compile(r"token_ids?$|tokens$|words_ids$|^(architectures|languages|attention_types)$")
_LOW = 2  # blocks that a long probe goes through


def find_anatomy(network: Any) -> list[Anatomy]:
    """Candidates for a family without a record: lists of `depth` modules."""
    config = network.config
    depth = getattr(config, "num_hidden_layers", None)
    if depth == 0:
        raise ModelError(
            f"{config.model_type} is a family that layerscope has no record of, and its blocks are found by looking at "
            "them: a model of it with no block (num_hidden_layers is 0) cannot be opened. Keep at least one."
        )
    if not depth:
        raise ModelError(
            f"{config.model_type} is not supported: its config has no num_hidden_layers, so its blocks cannot be found."
        )
    usual = config.attribute_map.get("num_hidden_layers", "num_hidden_layers")
    depths = {
        usual: depth,
        "num_layers": getattr(config, "num_layers", None),
    }  # LongCat counts half blocks in the first
    base, rewiring = network.base_model, rewiring_of(config)
    marks = MARKS_SUMMARY.get(config.model_type)
    found = Anatomy(config.model_type, "", usual, _per_layer(config, depth), generic=True, marks_summary=marks)
    if rewiring is not None:
        rewire(base)
        first, *beside = rewiring.lists
        candidates = [replace(found, blocks=first, beside=tuple(beside), rewired=True)]
    else:
        lists = [(path, module) for path, module in base.named_modules() if isinstance(module, nn.ModuleList)]
        lists.sort(key=lambda pair: len({type(block) for block in pair[1]}))  # blocks are often of one class
        candidates = [
            replace(found, blocks=path, depth_field=field, layer_lists=_per_layer(config, count))
            for field, count in depths.items()
            for path, blocks in lists
            if count and len(blocks) == count
        ]
    if not candidates:
        raise ModelError(
            f"{config.model_type} is not supported: no list of {depth} blocks was found in {type(base).__name__}."
        )
    pooler = tuple(name for name, _ in base.named_children() if name == "pooler")
    return [replace(anatomy, base_head=pooler, final_norm=_final_norm(base, anatomy)) for anatomy in candidates]


def _per_layer(config: Any, depth: int) -> tuple[str, ...]:
    """Lists of a config with an entry per block; a list of something else may have as many by chance."""
    lists = {name: value for name, value in config.to_dict().items() if isinstance(value, list)}
    return tuple(sorted(name for name, value in lists.items() if len(value) == depth and not _NO_BLOCKS.search(name)))


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


def sees_padding(model: Model) -> bool:
    """Whether padding after a text changes the text's own states, in a short text or a long one."""
    base = of_base(model)
    with as_it_was(model.network), torch.inference_mode(), evaluating(model.network):
        if (long := _long_states(base, *_long_probe(base))) is not None and not close(*long):
            return True
        return not _is_apart(base, real=_SHORT - 2)


def unlinked(replay: Replay, other: Replay, called: str) -> str | None:
    """Why blocks do not hand on the state, and nothing else of the tokens, from one to the next; None if they do."""
    for block, (a, b) in enumerate(zip(replay.calls, other.calls, strict=True), start=1):
        if not (same(a.args, b.args) and same(a.kwargs, b.kwargs)):
            return f"{called} {block} is called with something that depends on the tokens besides the state"
    for block in range(1, replay.depth):
        if not close(replay.states[block], replay.entered[block]):
            return f"the output of {called} {block} is not what {called} {block + 1} receives"
    return None


def _check(model: Model, first_inputs: dict[str, Tensor], other_inputs: dict[str, Tensor]) -> Iterator[str]:
    network = model.network
    replay, other = Replay(model, first_inputs), Replay(model, other_inputs)
    if fault := unlinked(replay, other, "block"):
        yield fault
        return
    if fault := _fault_around(model, replay, first_inputs):
        yield fault
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


def _fault_around(model: Model, replay: Replay, inputs: dict[str, Tensor]) -> str | None:
    """What is wrong with how the blocks are run: with other texts, called as modules, under a head."""
    if not _is_apart(of_base(model), real=_SHORT if model.anatomy.unpadded else _SHORT - 2):
        return "other texts of a batch, or padding, change the states of a text"
    if model.anatomy.rewired and not close(_own_answer(model, inputs), primary(replay.result)):
        return "its blocks called as modules do not give its own output"
    if not _head_changes_nothing(model, replay, inputs):
        return "its head lets the blocks run otherwise than they do in the bare encoder"
    return None


def _is_apart(base: Model, real: int) -> bool:
    """Whether a text of `real` tokens has the same states alone and with a longer one, padded on the right.

    What its head reads is another question.
    """
    inputs = probe_inputs(base, padded=True, real=real)
    together = Replay(base, inputs)
    alone = Replay(base, {name: value[1:2, :real] for name, value in inputs.items()})
    pairs = zip(together.states, alone.states, strict=True)  # a network may have padded them further by itself
    return all(close(a[1:, :real], b[:, :real]) for a, b in pairs)


def _own_answer(model: Model, inputs: dict[str, Tensor]) -> Tensor:
    """What a rewired network answers by its family's own forward."""
    with own_forward(model.network.base_model), caches_off(model.network):
        return primary(model.network(**inputs))


def _head_changes_nothing(model: Model, replay: Replay, inputs: dict[str, Tensor]) -> bool:
    """Whether the blocks see in the network with its head what they see in the bare encoder, which is extracted."""
    if model.network.base_model is model.network:
        return True
    flat = {name: value.reshape(-1, value.shape[-1]) for name, value in inputs.items()}
    bare = Replay(of_base(model), {**flat, **summary_marks(model, flat["input_ids"])})
    return all(close(a, b) for a, b in zip(replay.states, bare.states, strict=True))


def summary_marks(model: Model, ids: Tensor) -> dict[str, Tensor]:
    """The input with which a family's classifiers mark the first token, as they do by themselves; often there is none.

    `ids` (texts, time): the marks are what the bare encoder needs to be told so that it runs as it does in there.
    """
    name = model.anatomy.marks_summary
    if name is None or model.head != "classes":
        return {}
    marks = torch.zeros_like(ids)
    marks[:, 0] = 1
    return {name: marks}


def _long_probe(base: Model) -> tuple[dict[str, Tensor], int]:
    """Two long texts, the second padded by a quarter, and how long it is."""
    length = min(base.positions or _LONG, _LONG)
    part = 3 * length // 4
    return probe_inputs(base, padded=True, length=length, real=part), part


def _long_states(base: Model, inputs: dict[str, Tensor], part: int) -> tuple[Tensor, Tensor] | None:
    """The low states of the second text with the first one and alone; None where it is longer than the model allows.

    Some attention treats long texts unlike short ones; the lowest blocks tell, whatever the model's size.
    """
    alone = {name: value[1:, :part] for name, value in inputs.items()}
    try:
        return _low_state(base, inputs)[-1:, :part], _low_state(base, alone)[-1:, :part]
    except (IndexError, RuntimeError):
        if base.positions is None:  # there is a limit of which the config does not tell
            return None
        raise


def _check_long(base: Model) -> Iterator[str]:
    inputs, part = _long_probe(base)
    if base.anatomy.unpadded:
        inputs = {name: value[:, :part] for name, value in inputs.items()}
    states = _long_states(base, inputs, part)
    if states is None:
        return
    if not close(*states):
        yield "other texts of a batch, or padding, change the states of a long text"
        return
    _low_state(base, {name: value[:1, :_SHORT] for name, value in inputs.items()})
    if not close(_low_state(base, {name: value[1:, :part] for name, value in inputs.items()})[:, :part], states[1]):
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
