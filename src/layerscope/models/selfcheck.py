"""Checks that run a network on a few tokens and compare its answers, most of all whether replay is sound for it.

A family without a record is searched for its blocks here; whether what was found is right, the checks decide. They also
tell on which side a head allows padding, whether a model is causal, and along which axes arguments of blocks can be
repeated, so that several states go through a block at once (`BatchedReplay`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from layerscope.errors import ModelError, PlanError
from layerscope.models.architecture import as_it_was, block_modules, evaluating, layer_lists, only_blocks
from layerscope.models.families import MARKS_SUMMARY, Architecture
from layerscope.models.replay import Replay, caches_off, same, state_of
from layerscope.models.surgery import original_forward, rewire, rewiring_of

if TYPE_CHECKING:
    from layerscope.models.load import Model


_SHORT, _LONG = 7, 1024  # tokens of a probe; BigBird, for one, has another attention above 704
_LOW = 2  # blocks that a long probe goes through


def find_architectures(network: Any) -> list[Architecture]:
    """Return candidates for the architecture of a family without a record: lists of `depth` modules."""
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
    lists = layer_lists(config, depth)
    found = Architecture(config.model_type, "", usual, lists, generic=True, marks_summary=marks)
    if rewiring is not None:
        rewire(base)
        first, *beside = rewiring.lists
        candidates = [replace(found, blocks=first, beside=tuple(beside), rewired=True)]
    else:
        modules = [(path, module) for path, module in base.named_modules() if isinstance(module, nn.ModuleList)]
        modules.sort(key=lambda pair: len({type(block) for block in pair[1]}))  # blocks are often of one class
        candidates = [
            replace(found, blocks=path, depth_field=field, layer_lists=layer_lists(config, count))
            for field, count in depths.items()
            for path, blocks in modules
            if count and len(blocks) == count
        ]
    if not candidates:
        raise ModelError(
            f"{config.model_type} is not supported: no list of {depth} blocks was found in {type(base).__name__}."
        )
    pooler = tuple(name for name, _ in base.named_children() if name == "pooler")
    return [
        replace(architecture, base_head=pooler, final_norm=_final_norm(base, architecture))
        for architecture in candidates
    ]


def _final_norm(base: nn.Module, architecture: Architecture) -> str | None:
    """Return the path of a norm that stands beside the blocks and after them, or None."""
    parent, _, name = architecture.blocks.rpartition(".")
    seen, norm = False, None
    for child, module in base.get_submodule(parent).named_children():
        seen = seen or child == name
        if seen and "norm" in type(module).__name__.lower():
            norm = f"{parent}.{child}".lstrip(".")
    return norm


def faults(model: Model) -> Iterator[str]:
    """Yield every way in which replay differs from this model's own computation; nothing if it is sound."""
    first_inputs, other_inputs = probe_inputs(model, 0), probe_inputs(model, 1)
    with as_it_was(model.network), torch.inference_mode(), evaluating(model.network):
        yield from _check_long(without_head(model))  # first: a short text must not have changed anything yet
        yield from _check_replay(model, first_inputs, other_inputs)


def sees_padding(model: Model) -> bool:
    """Return whether padding after a text changes the text's own states, in a short text or a long one."""
    base = without_head(model)
    with as_it_was(model.network), torch.inference_mode(), evaluating(model.network):
        if (long := _long_states(base, *_long_probe(base))) is not None and not close(*long):
            return True
        return not _is_apart(base, real=_SHORT - 2)


def link_fault(replay: Replay, other: Replay, called: str) -> str | None:
    """Return why blocks do not pass on the state, and nothing else of the tokens, to the next; None if they do.

    `other` is the replay of another text of the same length; `called` is what blocks are called in the reason.
    """
    for block, (a, b) in enumerate(zip(replay.calls, other.calls, strict=True), start=1):
        if not (same(a.args, b.args) and same(a.kwargs, b.kwargs)):
            return f"{called} {block} is called with something that depends on the tokens besides the state"
    for block in range(1, replay.depth):
        if not close(replay.states[block], replay.entered[block]):
            return f"the output of {called} {block} is not what {called} {block + 1} receives"
    return None


def _check_replay(model: Model, first_inputs: dict[str, Tensor], other_inputs: dict[str, Tensor]) -> Iterator[str]:
    """Yield what is wrong with the replay of short texts, of which two with the same mask are given."""
    network = model.network
    replay, other = Replay(model, first_inputs), Replay(model, other_inputs)
    if fault := link_fault(replay, other, "block"):
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
        others = [b for b in range(1, replay.depth + 1) if not first <= b <= last]
        try:
            with only_blocks(network, model.architecture, others), caches_off(network):
                removed = primary(network(**first_inputs))
        except PlanError:  # its config cannot say which blocks are left, so this cut is never made
            continue
        if not close(primary(replay.finish(replay.without(first, last))), removed):
            yield f"replay without block {first} is not the model with block {first} removed"
            return


def _fault_around(model: Model, replay: Replay, inputs: dict[str, Tensor]) -> str | None:
    """Return what is wrong with how the blocks are run (beside other texts, as modules, under a head), or None."""
    if not _is_apart(without_head(model), real=_SHORT if model.architecture.unpadded else _SHORT - 2):
        return "other texts of a batch, or padding, change the states of a text"
    if model.architecture.rewired:
        with original_forward(model.network.base_model), caches_off(model.network):
            original = primary(model.network(**inputs))
        if not close(original, primary(replay.result)):
            return "its blocks called as modules do not give its own output"
    if not _head_changes_nothing(model, replay, inputs):
        return "its head lets the blocks run otherwise than they do in the bare encoder"
    return None


def _is_apart(base: Model, real: int) -> bool:
    """Return whether a text of `real` tokens has the same states alone and beside a longer one, padded on the right.

    What a head reads of them is checked by `head_padding`.
    """
    inputs = probe_inputs(base, padded=True, real=real)
    together = Replay(base, inputs)
    alone = Replay(base, {name: value[1:2, :real] for name, value in inputs.items()})
    pairs = zip(together.states, alone.states, strict=True)  # a network may have padded them further by itself
    return all(close(a[1:, :real], b[:, :real]) for a, b in pairs)


def _head_changes_nothing(model: Model, replay: Replay, inputs: dict[str, Tensor]) -> bool:
    """Return whether states are the same with the head as in the bare encoder, which is what extraction runs."""
    if model.network.base_model is model.network:
        return True
    flat = {name: value.reshape(-1, value.shape[-1]) for name, value in inputs.items()}
    bare = Replay(without_head(model), {**flat, **summary_marks(model, flat["input_ids"])})
    return all(close(a, b) for a, b in zip(replay.states, bare.states, strict=True))


def summary_marks(model: Model, ids: Tensor) -> dict[str, Tensor]:
    """Return the input with which some families' classifiers mark the first token, by name; for most there is none.

    `ids` is (texts, time). A classifier makes the marks itself; the bare encoder needs them as an input to give the
    same states.
    """
    name = model.architecture.marks_summary
    if name is None or model.head != "classes":
        return {}
    marks = torch.zeros_like(ids)
    marks[:, 0] = 1
    return {name: marks}


def _long_probe(base: Model) -> tuple[dict[str, Tensor], int]:
    """Return two long texts, the second padded by a quarter, and the second's length."""
    length = min(base.positions or _LONG, _LONG)
    part = 3 * length // 4
    return probe_inputs(base, padded=True, length=length, real=part), part


def _long_states(base: Model, inputs: dict[str, Tensor], part: int) -> tuple[Tensor, Tensor] | None:
    """Return the low states of the second text beside the first and alone; None where it is longer than allowed.

    Some attention treats long texts differently; the lowest blocks show that at little cost, whatever the model's size.
    """
    alone = {name: value[1:, :part] for name, value in inputs.items()}
    try:
        return _low_state(base, inputs)[-1:, :part], _low_state(base, alone)[-1:, :part]
    except (IndexError, RuntimeError):
        if base.positions is None:  # there is a limit that the config does not name
            return None
        raise


def _check_long(base: Model) -> Iterator[str]:
    """Yield what is wrong with the states of long texts."""
    inputs, part = _long_probe(base)
    if base.architecture.unpadded:
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
    """Return the output of block 2 (or of the only one); nothing above it is run."""
    seen: list[Tensor] = []
    block = block_modules(base.network, base.architecture)[:_LOW][-1]

    def see(_: nn.Module, __: Any, output: Any) -> None:
        seen.append(state_of(output))
        if len(seen) == (min(_LOW, base.depth) if base.architecture.shared else 1):
            raise _Seen

    hook = block.register_forward_hook(see)
    try:
        with caches_off(base.network):
            base.network(**inputs)
    except _Seen:
        pass
    finally:
        hook.remove()
    return seen[-1].transpose(0, 1) if base.architecture.time_first else seen[-1]


class _Seen(Exception):  # noqa: N818  (not an error)
    """Raised to end a forward when the wanted state has been seen."""


def without_head(model: Model) -> Model:
    """Return the same model without its head."""
    return replace(model, network=model.network.base_model)


def primary(result: Any) -> Tensor:
    """Return the main tensor of a network's answer: logits, or a bare encoder's states.

    Heads with several answers (the start and the end of a span, say) give all of them in one row per text.
    """
    if getattr(result, "logits", None) is not None:
        return result.logits
    several = [v for k, v in result.items() if k.endswith(("logits", "log_probs")) and isinstance(v, Tensor)]
    if several:
        return torch.cat([value.flatten(1) for value in several], dim=1)
    return result.last_hidden_state


def close(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors are equal up to rounding, relative to the largest entry."""
    if a.shape != b.shape:
        return False
    tolerance = 1e-4 if a.dtype in (torch.float32, torch.float64) else 3e-2
    scale = max(float(b.abs().max()), 1e-6)
    return float((a.float() - b.float()).abs().max()) <= tolerance * scale


def probe_inputs(
    model: Model, seed: int = 0, rows: int = 2, padded: bool = False, length: int = _SHORT, real: int = 5
) -> dict[str, Tensor]:
    """Return rows of `length` random tokens; all rows but the first have `real` tokens and then padding.

    The mask is the same for every seed. A head without a padding token gets one row, as such heads may take no more,
    unless `padded` asks for all.
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


Padding = Literal["right", "left", "none"]


def head_padding(model: Model) -> Padding:
    """Return the side on which texts may be padded without changing the head's answers; `none`: one text at a time.

    Heads read the first position, the last one, the last that is not a padding token, or the mean of all.
    """
    real = 7 if model.architecture.unpadded else 5  # then texts of one length are all that share a batch
    inputs = probe_inputs(model, rows=2, padded=True, length=7, real=real)
    with torch.inference_mode(), evaluating(model.network), caches_off(model.network):
        alone = _answers(model, {name: value[..., 1:2, :real] for name, value in inputs.items()})
        sides: tuple[Padding, ...] = ("right", "left")
        for side in sides:
            padded = {name: value.clone() for name, value in inputs.items()}
            if side == "left":  # the second row has its two places of padding in front
                for value in padded.values():
                    value[..., 1, :] = value[..., 1, :].roll(2, dims=-1)
            try:
                together = _answers(model, padded)
            except (ValueError, RuntimeError):  # heads that look for a padding token refuse several texts without one
                return "none"
            if close(together[1:], alone):
                return side
    return "none"


def _answers(model: Model, inputs: dict[str, Tensor]) -> Tensor:
    """Return a network's answers as (rows, outputs), also where the rows are choices of one text."""
    return primary(model.network(**inputs)).reshape(inputs["input_ids"].numel() // inputs["input_ids"].shape[-1], -1)


def is_causal(model: Model) -> bool:
    """Return whether the first token never sees the later ones."""
    base = without_head(model)
    inputs = probe_inputs(base, rows=1)
    other = {**inputs, "input_ids": inputs["input_ids"].clone()}
    other["input_ids"][:, 1:] = probe_inputs(base, seed=1, rows=1)["input_ids"][:, 1:]
    with torch.inference_mode(), evaluating(model.network):
        first, second = (Replay(base, tokens).states[-1][:, 0] for tokens in (inputs, other))
    return close(first, second)


class BatchedReplay:
    """Runs several states of the same texts through a block as one batch, with every argument repeated.

    Along which axis an argument is repeated differs between families. So the model is recorded with two and with three
    texts: an axis whose size follows is the batch's.
    """

    def __init__(self, model: Model) -> None:
        with torch.inference_mode():
            base = without_head(model)  # a head without a padding token may take one text only
            two, three = (Replay(base, probe_inputs(base, rows=rows)) for rows in (2, 3))
        self._axes = [
            _axes((a.args, dict(a.kwargs)), (b.args, dict(b.kwargs)))
            for a, b in zip(two.calls, three.calls, strict=True)
        ]

    def run(self, replay: Replay, states: Sequence[Tensor], block: int) -> list[Tensor]:
        """Run the block on each state; one by one where the arguments are not like the recorded ones."""
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
    """Raised for a tensor that was not there, or had another shape, when the axes were found."""


def _axes(a: Any, b: Any) -> Any:
    """Return the axes that differ for every tensor in two recorded arguments; None for what is not a tensor."""
    if isinstance(a, Tensor) and isinstance(b, Tensor) and a.ndim == b.ndim:
        return tuple(k for k in range(a.ndim) if a.shape[k] != b.shape[k]), a.ndim
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return {k: _axes(a[k], b.get(k)) for k in a}
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)) and len(a) == len(b):
        return [_axes(x, y) for x, y in zip(a, b, strict=True)]
    return None


def _repeated(value: Any, axes: Any, count: int) -> Any:
    """Return an argument with every tensor in it repeated `count` times along its batch axes."""
    if isinstance(value, Tensor):
        if not (isinstance(axes, tuple) and axes[1] == value.ndim):
            raise _UnknownAxisError
        repeats = [count if k in axes[0] and value.shape[k] > 1 else 1 for k in range(value.ndim)]
        return value.repeat(repeats) if max(repeats, default=1) > 1 else value
    if isinstance(value, Mapping):
        by_name = axes if isinstance(axes, Mapping) else {}
        return {k: _repeated(v, by_name.get(k), count) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        by_place = axes if isinstance(axes, list) and len(axes) == len(value) else [None] * len(value)
        return type(value)(_repeated(v, a, count) for v, a in zip(value, by_place, strict=True))
    return value
