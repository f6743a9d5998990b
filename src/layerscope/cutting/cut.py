"""`ls.cut`: executes a plan as a new transformers model with fewer blocks; the original is untouched."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from layerscope.cutting.plan import LayerPlan, spans
from layerscope.errors import InputError, ModelError
from layerscope.models import Model, Replay
from layerscope.models.architecture import block_modules, evaluating
from layerscope.models.devices import is_offloaded
from layerscope.models.extras import copy_extras
from layerscope.models.families import Architecture
from layerscope.models.fingerprint import fingerprint
from layerscope.models.lineage import ORIGIN, inherit
from layerscope.models.load import carry, load_whole
from layerscope.models.replay import caches_off
from layerscope.models.selfcheck import close, primary, probe_inputs, without_head

_LONGEST_REASON = 300


def truncate(model: Any, keep: int) -> Any:
    """Cut a model down to its first blocks; its head reads the last of them.

    Args:
        model: A model, or what `ls.load` takes; it is left as it is.
        keep: How many blocks stay.

    Returns:
        A transformers model of the same class, with its tokenizer.

    Example:
        >>> import layerscope as ls
        >>> ls.load(ls.truncate("garden:bert-s0", 2)).depth
        2
    """
    opened = load_whole(model, "cutting")
    return cut(opened, LayerPlan.truncated(opened.depth, keep))


def skip(model: Any, first: int, last: int) -> Any:
    """Cut a span of blocks out of a model.

    Args:
        model: A model, or what `ls.load` takes; it is left as it is.
        first: The first block that goes; blocks are numbered from 1.
        last: The last block that goes.

    Returns:
        A transformers model of the same class, with its tokenizer.

    Example:
        >>> import layerscope as ls
        >>> model = ls.load("garden:bert-s0")
        >>> model.depth - ls.load(ls.skip(model, 2, 3)).depth
        2
    """
    opened = load_whole(model, "cutting")
    return cut(opened, LayerPlan.skipped(opened.depth, first, last))


def cut(model: Any, plan: LayerPlan) -> Any:
    """Cut a model down to the blocks of a plan, and check its answers against a replay of those blocks.

    Args:
        model: A model, or what `ls.load` takes; it is left as it is.
        plan: Which blocks stay and which layer the head reads.

    Returns:
        A transformers model of the same class, with its tokenizer.

    Example:
        >>> import layerscope as ls
        >>> smaller = ls.cut("garden:bert-s0", ls.LayerPlan(keep=[1, 3]))
        >>> smaller.config.num_hidden_layers
        2
    """
    opened = load_whole(model, "cutting")
    if not isinstance(plan, LayerPlan):
        raise InputError(f"A LayerPlan was asked for and {plan!r} was given; write ls.LayerPlan([1, 2, 5]), say.")
    plan.check(opened.depth)
    refuse_adapters(opened)
    refuse(opened, plan)
    if is_offloaded(opened.network):
        raise InputError(
            f"Some weights of {opened.name} stay on the host or the disk until they are needed, so it is not cut in "
            "memory; cut its folder: ls.cut_folder(folder, plan, path)."
        )
    network = opened.network
    config = _smaller_config(network.config, opened.architecture, plan)
    with torch.random.fork_rng(devices=[]):
        try:
            smaller = type(network)._from_config(config, dtype=network.dtype)
            smaller.load_state_dict(_kept_weights(network, opened.architecture, plan))
        except Exception as error:  # an architecture may object to few blocks in many ways
            raise ModelError(
                f"{opened.name} ({opened.architecture.family}) cannot be built with {_blocks(plan)} as a checkpoint: "
                f"{_reason(error)}."
            ) from error
    _place(smaller.eval(), network)
    smaller.name_or_path = network.name_or_path
    carry(smaller, opened.tokenizer)
    copy_extras(network, smaller)
    step = {"from": opened.name, "weights": fingerprint(opened), "depth": opened.depth, **plan.spec()}
    setattr(smaller, ORIGIN, [*getattr(network, ORIGIN, []), step])
    inherit(smaller, network)
    check_against_replay(opened, smaller, plan)
    return smaller


def _place(smaller: Any, network: Any) -> None:
    """Put a cut network where the whole one is: on its device, or spread over several as that is."""
    if len(set((getattr(network, "hf_device_map", None) or {}).values())) < 2:
        smaller.to(next(network.parameters()).device)
        return
    from accelerate import dispatch_model, infer_auto_device_map

    places = infer_auto_device_map(smaller, no_split_module_classes=list(smaller._no_split_modules or ()))
    dispatch_model(smaller, places)


def refuse(model: Model, plan: LayerPlan) -> None:
    """Raise ModelError where a plan cannot become a checkpoint of this model, with the reason."""
    architecture, network = model.architecture, model.network
    if getattr(network, "hf_quantizer", None) is not None:
        raise ModelError(f"{model.name} is quantised; cut the model that it was made from, then quantise that.")
    if architecture.keeps_first and plan.keep and plan.keep[0] != 1:
        raise ModelError(f"{model.name} cannot lose block 1: {architecture.keeps_first}.")
    if architecture.shared:
        modules = block_modules(network.base_model, architecture)
        distinct = list(dict.fromkeys(modules))
        count = len(plan.keep)
        wanted = [modules[b - 1] for b in plan.keep]
        if wanted != [distinct[int(i * len(distinct) / count)] for i in range(count)]:
            raise ModelError(
                f"{model.name} shares {len(distinct)} groups of weights among its blocks, and {_blocks(plan)} would "
                "use them in another order; keep the same number of blocks of every group."
            )


def _reason(error: Exception) -> str:
    """Return the message of an error in one line; torch puts it below a heading that ends in a colon."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    text = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    return (text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]} ..").rstrip(".")


def can_be_built(model: Model, plan: LayerPlan) -> bool:
    """Return whether the plan can become a checkpoint.

    It is built on the meta device, without memory: every tensor must have a place, and every block must have the
    settings that it has in the whole model.
    """
    network, architecture = model.network, model.architecture
    try:
        refuse(model, plan)
        with torch.device("meta"):
            smaller = type(network)._from_config(
                _smaller_config(network.config, architecture, plan), dtype=network.dtype
            )
        places = {name: tensor.shape for name, tensor in smaller.state_dict().items()}
        kept = {name: tensor.shape for name, tensor in _kept_weights(network, architecture, plan).items()}
        before, after = (block_modules(n.base_model, architecture) for n in (network, smaller))
    except Exception:  # an architecture may object to few blocks in many ways
        return False
    pairs = enumerate(zip([before[block - 1] for block in plan.keep], after, strict=True))
    return places == kept and (
        architecture.shared or all(_same_settings(*pair, plan.keep[k] - 1 - k) for k, pair in pairs)
    )


def _same_settings(before: nn.Module, after: nn.Module, moved: int) -> bool:
    """Return whether two blocks have the same settings; a block's number differs by how far it has moved."""
    for one, other in zip(before.modules(), after.modules(), strict=True):
        for name, value in vars(one).items():
            new = vars(other).get(name)
            if name == "training" or name.startswith("_") or not isinstance(value, (bool, int, float, str)):
                continue
            is_number = type(value) is int and type(new) is int and value - new == moved
            if value != new and not is_number:
                return False
    return True


def refuse_adapters(model: Model) -> None:
    """Raise ModelError if adapters are live in the model, or if it is not a network that can be cut at all."""
    model.require_blocks("cutting")
    written_by = {type(module).__module__.split(".")[0] for module in model.network.modules()}
    if "layerscope" in written_by:
        raise ModelError(
            f"{model.name} has live adapters that no standard checkpoint can hold, so it cannot be cut or saved as "
            "one; tune with --method lora or finetune (method=) for a model that can."
        )
    if "peft" in written_by:
        raise ModelError(f"{model.name} has live adapters; merge them first: model.merge_and_unload().")


def _smaller_config(config: Any, architecture: Architecture, plan: LayerPlan) -> Any:
    """Return the config of the cut model: fewer blocks, and lists with an entry per block cut alike."""
    smaller = copy.deepcopy(config)
    for field in architecture.layer_lists:
        values = getattr(config, field, None)
        if values is not None:
            setattr(smaller, field, [values[b - 1] for b in plan.keep])
    setattr(smaller, architecture.depth_field, len(plan.keep))
    return smaller


def _kept_weights(network: Any, architecture: Architecture, plan: LayerPlan) -> dict[str, torch.Tensor]:
    """Return the state dict with the kept blocks under their new numbers."""
    weights = network.state_dict()
    if architecture.shared:
        return weights
    prefix = "" if network.base_model is network else f"{network.base_model_prefix}."
    lists = "|".join(map(re.escape, (architecture.blocks, *architecture.beside)))
    pattern = re.compile(re.escape(prefix) + rf"({lists})\.(\d+)\.(.+)")
    place = {block - 1: k for k, block in enumerate(plan.keep)}
    kept = {}
    for name, tensor in weights.items():
        match = pattern.fullmatch(name)
        if match is None:
            kept[name] = tensor
        elif int(match[2]) in place:
            kept[f"{prefix}{match[1]}.{place[int(match[2])]}.{match[3]}"] = tensor
    return kept


def check_against_replay(model: Model, smaller: Any, plan: LayerPlan) -> None:
    """Raise ModelError unless the new model computes what a replay of the kept blocks does, with its cache on, too."""
    inputs = probe_inputs(model)
    with torch.inference_mode(), evaluating(model.network):
        replay = Replay(model, inputs)
        state = replay.states[0]
        for block in plan.keep:
            state = replay.run(state, block)
        expected = primary(replay.finish(state))
        try:
            with caches_off(smaller):
                got = primary(smaller(**inputs))
        except Exception as error:  # an architecture may fail without blocks in many ways
            raise ModelError(
                f"{model.name} ({model.architecture.family}) does not run with {_blocks(plan)}, so there is no such "
                "checkpoint; the truncation curve and the skip map evaluate it anyway."
            ) from error
    if not close(got, expected):
        raise ModelError(
            f"{model.name} ({model.architecture.family}) with {_blocks(plan)} does not compute what its blocks "
            "compute in place, so it cannot be expressed as a checkpoint; evaluate it without cutting instead."
        )
    if cache_fault(model) is None and (fault := cache_fault(replace(model, network=smaller))):
        raise ModelError(
            f"{model.name} ({model.architecture.family}) with {_blocks(plan)} cannot run with its cache on, which "
            f"generating needs: {fault}. Keep other blocks, or evaluate it without cutting instead."
        )


def cache_fault(model: Model) -> str | None:
    """Return why a network cannot go on from its own cache, as it must to generate; None if it can or has no cache."""
    network, base = model.network, without_head(model)
    if not getattr(network.config, "use_cache", False) or not model.depth:  # a cache is kept by blocks
        return None
    inputs = probe_inputs(base, rows=1)
    ids = inputs["input_ids"]
    with torch.inference_mode(), evaluating(network):
        with caches_off(network):
            expected = primary(base.network(**inputs))[:, -1]
        try:
            past = getattr(base.network(input_ids=ids[:, :-1], use_cache=True), "past_key_values", None)
            if past is None:
                return None
            got = primary(base.network(input_ids=ids[:, -1:], past_key_values=past, use_cache=True))[:, -1]
        except Exception as error:  # an architecture may fail without some blocks in many ways
            return f"it fails ({_reason(error)})"
    return None if close(got, expected) else "it gives other states than without"


def _blocks(plan: LayerPlan) -> str:
    return f"blocks {spans(plan.keep)}" if plan.keep else "no block"
