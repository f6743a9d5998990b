"""`ls.cut`: executes a plan as a new transformers model with fewer blocks; the original is untouched."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from layerscope.cutting.plan import LayerPlan, spans
from layerscope.errors import InputError, ModelError, PlanError, device_fault
from layerscope.models import Model, Replay
from layerscope.models.architecture import block_modules, evaluating, kept_fields, only_blocks
from layerscope.models.devices import device_faults_told, is_offloaded
from layerscope.models.extras import copy_extras
from layerscope.models.families import ONLY_FOR_TENSORS, Architecture
from layerscope.models.fingerprint import fingerprint
from layerscope.models.lineage import ORIGIN, inherit
from layerscope.models.load import carry, load_whole
from layerscope.models.replay import caches_off
from layerscope.models.selfcheck import close, primary, probe_inputs, without_head
from layerscope.models.weights import give_tensors, other_tensors, without_weights

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
    return cut_network(load_whole(model, "cutting"), plan)


def cut_network(opened: Model, plan: LayerPlan, *, share: bool = False) -> Any:
    """Return the cut network, compared with a replay; no weight is drawn at random.

    Args:
        opened: The whole model, which is left as it is.
        plan: Which blocks stay and which layer the head reads.
        share: Use the whole model's own tensors, which takes no memory. It is for what reads the cut network beside the
            whole one, or adds weights of its own to it: what is written into a shared weight in place, as an optimizer
            or a merge does, is written into the whole model too, so whoever does that replaces the tensor first. The
            parameters themselves, with their gradients and whether they are trained, are the cut network's own. A model
            that is spread over several devices shares only what lies on the same device in both.
    """
    plan.check(opened.depth)
    refuse_adapters(opened)
    refuse(opened, plan)
    if is_offloaded(opened.network):
        raise InputError(
            f"Some weights of {opened.name} stay on the host or the disk until they are needed, so it is not cut in "
            "memory; cut its folder: ls.cut_folder(folder, plan, path)."
        )
    way_out = (
        "what is cut in memory stands beside the whole model; cut its folder on disk, which takes no memory "
        "(ls.cut_folder(folder, plan, path)), or free memory first"
    )
    with device_faults_told(f"Cutting {opened.name} in memory", way_out):
        return _cut(opened, plan, share)


def _cut(opened: Model, plan: LayerPlan, share: bool) -> Any:
    """Return the cut network, compared with a replay."""
    network = opened.network
    config = _smaller_config(network.config, opened.architecture, plan)
    try:
        smaller = without_weights(type(network), config, network.dtype)
    except Exception as error:  # an architecture may object to few blocks in many ways
        raise _unbuildable(opened, plan, error) from error
    kept = _kept_weights(network, opened.architecture, plan)
    _check_tensors(opened, plan, smaller, kept)
    give_tensors(smaller, kept, share=share)
    _place(smaller, network)
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
        raise PlanError(f"{model.name} cannot lose block 1: {architecture.keeps_first}.")
    if architecture.shared:
        modules = block_modules(network.base_model, architecture)
        distinct = list(dict.fromkeys(modules))
        count = len(plan.keep)
        wanted = [modules[b - 1] for b in plan.keep]
        if wanted != [distinct[int(i * len(distinct) / count)] for i in range(count)]:
            raise PlanError(
                f"{model.name} shares {len(distinct)} groups of weights among its blocks, and {_blocks(plan)} would "
                "use them in another order; keep the same number of blocks of every group."
            )


def _reason(error: Exception) -> str:
    """Return the message of an error in one line; torch puts it below a heading that ends in a colon."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    text = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    return (text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]} ..").rstrip(".")


def _unbuildable(model: Model, plan: LayerPlan, error: Exception) -> Exception:
    """Return the error to raise for one that building a cut network ended in."""
    if isinstance(error, ModelError) or device_fault(error) is not None:
        return error
    return PlanError(
        f"{model.name} ({model.architecture.family}) cannot be built with {_blocks(plan)} as a checkpoint: "
        f"{_reason(error)}."
    )


Built = dict[str, Any]  # networks on the meta device, by what their configs say in place of the whole model's


def check_buildable(model: Model, plan: LayerPlan, built: Built | None = None) -> None:
    """Raise PlanError where the plan cannot become a checkpoint, as far as config and names tell.

    It is built on the meta device, which takes no memory, from the config as that is written and read again: every
    tensor must have a place, and every block the settings that it has in the whole model. Plans of one model whose
    configs are the same are built once where they are given the same `built`.
    """
    network, architecture = model.network, model.architecture
    refuse(model, plan)
    built = {} if built is None else built
    said = repr(sorted(kept_fields(network.config, architecture, plan.keep).items()))
    if said not in built:
        config = _smaller_config(network.config, architecture, plan)
        try:
            with torch.device("meta"):
                built[said] = type(network)._from_config(type(config).from_dict(config.to_dict()), dtype=network.dtype)
        except Exception as error:  # an architecture may object to few blocks in many ways
            raise _unbuildable(model, plan, error) from error
    smaller = built[said]
    _check_tensors(model, plan, smaller, _kept_weights(network, architecture, plan))
    if architecture.shared:
        return
    before, after = (block_modules(n.base_model, architecture) for n in (network, smaller))
    for place, (block, new) in enumerate(zip(plan.keep, after, strict=True)):
        if name := _other_setting(before[block - 1], new, block - 1 - place, architecture.family):
            raise PlanError(
                f"{model.name} ({architecture.family}) cannot be built with {_blocks(plan)} as a checkpoint: block "
                f"{block} would have another {name} than it has; keep other blocks."
            )


def _check_tensors(model: Model, plan: LayerPlan, smaller: nn.Module, kept: Mapping[str, torch.Tensor]) -> None:
    """Raise PlanError unless the tensors that are kept are those that the smaller network has."""
    if other := other_tensors(smaller, kept):
        raise PlanError(
            f"{model.name} ({model.architecture.family}) cannot be built with {_blocks(plan)} as a checkpoint: "
            f"{len(other)} of its tensors would be missing, left over or of another shape, such as {other[0]}; keep "
            "other blocks."
        )


def can_be_built(model: Model, plan: LayerPlan, built: Built | None = None) -> bool:
    """Return whether the plan can become a checkpoint, as far as config and names tell; `built` as above."""
    try:
        check_buildable(model, plan, built)
    except ModelError:
        return False
    return True


def _other_setting(before: nn.Module, after: nn.Module, moved: int, family: str) -> str | None:
    """Return the name of a setting that two blocks do not share; a block's number differs by how far it has moved."""
    plain = (bool, int, float, str)
    for one, other in zip(before.modules(), after.modules(), strict=True):
        for name, value in vars(one).items():
            new = vars(other).get(name)
            if name == "training" or name.startswith("_") or name in ONLY_FOR_TENSORS.get(family, ()):
                continue
            is_number = type(value) is int and type(new) is int and value - new == moved
            if isinstance(value, plain) != isinstance(new, plain) or (
                isinstance(value, plain) and value != new and not is_number
            ):
                return name
    return None


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
    """Return the config of the cut model: fewer blocks, and what it says of single ones said of those that stay."""
    smaller = copy.deepcopy(config)
    for field, value in kept_fields(config, architecture, plan.keep).items():
        setattr(smaller, field, value)
    return smaller


def _kept_weights(network: Any, architecture: Architecture, plan: LayerPlan) -> dict[str, torch.Tensor]:
    """Return the tensors of the state dict themselves, with the kept blocks under their new numbers."""
    weights = network.state_dict(keep_vars=True)
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


def check_in_place(model: Model, plan: LayerPlan) -> None:
    """Raise PlanError unless the network, with the other blocks taken out of it, computes what a replay of them does.

    No weight is copied, so that it takes no memory; with `check_buildable` it finds what cutting finds.
    """
    network = model.network
    taken_out = only_blocks(network, model.architecture, plan.keep, numbered=True)
    with device_faults_told(f"Running {model.name} with {_blocks(plan)}", "free memory, or open it on another device"):
        check_against_replay(model, network, plan, taken_out)


def check_against_replay(
    model: Model, smaller: Any, plan: LayerPlan, taken_out: AbstractContextManager[None] | None = None
) -> None:
    """Raise PlanError unless the new model computes what a replay of the kept blocks does, with its cache on, too.

    `taken_out` is entered before the new model runs.
    """
    inputs = probe_inputs(model)
    with torch.inference_mode(), evaluating(model.network):
        replay = Replay(model, inputs)
        state = replay.states[0]
        for block in plan.keep:
            state = replay.run(state, block)
        expected = primary(replay.finish(state))
    has_cache = cache_fault(model) is None
    with taken_out or nullcontext():
        try:
            with torch.inference_mode(), evaluating(smaller), caches_off(smaller):
                got = primary(smaller(**inputs))
        except Exception as error:  # an architecture may fail without blocks in many ways
            if device_fault(error) is not None:
                raise
            raise PlanError(
                f"{model.name} ({model.architecture.family}) does not run with {_blocks(plan)}, so there is no such "
                "checkpoint; the truncation curve and the skip map evaluate it anyway."
            ) from error
        fault = cache_fault(replace(model, network=smaller)) if has_cache and close(got, expected) else None
    if not close(got, expected):
        raise PlanError(
            f"{model.name} ({model.architecture.family}) with {_blocks(plan)} does not compute what its blocks "
            "compute in place, so it cannot be expressed as a checkpoint; evaluate it without cutting instead."
        )
    if fault is not None:
        raise PlanError(
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
            if device_fault(error) is not None:
                raise
            return f"it fails ({_reason(error)})"
    return None if close(got, expected) else "it gives other states than without"


def _blocks(plan: LayerPlan) -> str:
    return f"blocks {spans(plan.keep)}" if plan.keep else "no block"
