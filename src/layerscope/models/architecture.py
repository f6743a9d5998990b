"""Look-ups in the table of families, and what a record says of a network: its blocks, its head, its inputs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn

from layerscope.errors import ModelError
from layerscope.models import surgery
from layerscope.models.families import FAMILIES, REFUSED, REFUSED_SETTINGS, STALE, Architecture

PREFIXES = "layerscope_prefixes"  # the module of a base model that has trained keys and values before every text


def families() -> tuple[Architecture, ...]:
    """List the families whose architecture is known; others are looked into when they are loaded.

    Returns:
        One `Architecture` per family: where it keeps blocks, norms and heads.

    Example:
        >>> import layerscope as ls
        >>> next(a for a in ls.families() if a.family == "bert").blocks
        'encoder.layer'
    """
    return tuple(FAMILIES.values())


def known_architecture(config: Any) -> Architecture | None:
    """The record for a config's family; None if the family is not known, an error if it is refused."""
    family = config.model_type
    if family in REFUSED:
        raise ModelError(
            f"{family} is not supported: {REFUSED[family]}. To compare its layers anyway, run it with "
            "transformers (output_hidden_states=True), pool its states, and give them to "
            "ls.Representations.from_arrays; for a model to cut, take an encoder such as BERT's."
        )
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(
            f"{family} is not supported: it is an encoder-decoder, and layerscope reads single stacks of blocks."
        )
    architecture = FAMILIES.get(family)
    for field, reason in architecture.refused_fields if architecture else ():
        if getattr(config, field, None):
            raise ModelError(
                f"{family} with {field}={getattr(config, field)!r} is not supported: {reason}. {family} without it is."
            )
    for name, field, value, reason, way_out in REFUSED_SETTINGS:
        if family == name and getattr(config, field, None) == value:
            raise ModelError(f"{family} with {field}={value!r} is not supported: {reason}; {way_out}.")
    return architecture


def stale_tensors(config: Any) -> str | None:
    """The tensors of a family's old checkpoints that are not weights, as a regular expression."""
    architecture = FAMILIES.get(config.model_type)
    return architecture.stale if architecture else STALE.get(config.model_type)


def block_modules(base: nn.Module, architecture: Architecture) -> list[nn.Module]:
    """The module that runs as block 1, 2, .. L; shared blocks appear once for each run."""
    if architecture.rewired:
        return list(surgery.blocks_of(base))
    modules = list(base.get_submodule(architecture.blocks))  # type: ignore[call-overload]
    if not architecture.shared:
        return modules
    depth = getattr(base.config, architecture.depth_field)
    return [modules[int(i / (depth / len(modules)))] for i in range(depth)]


def accepted_inputs(network: nn.Module) -> set[str]:
    """The inputs that a network takes by name, as its family's forward says."""
    return set(inspect.signature(type(network).forward).parameters)


def position_offset(base: nn.Module) -> int:
    """Positions that no token of a text gets: those of trained prefixes, and those up to a padding index.

    Embeddings with a padding index start counting after it, as RoBERTa's do.
    """
    prefixes = getattr(base, PREFIXES, None)
    return _padding_offset(base) + (0 if prefixes is None else int(prefixes.virtual_tokens))


def _padding_offset(base: nn.Module) -> int:
    for name, module in base.named_modules():
        index, table = getattr(module, "padding_idx", None), getattr(module, "weight", None)
        if "position" in name and index is not None and table is not None:
            return 0 if index + 1 >= len(table) else int(index) + 1  # a negative index is counted from the end
    return 0


def head_modules(network: Any, architecture: Architecture) -> list[str]:
    """Paths of the modules with parameters that turn a layer's states into the network's output."""
    base, prefix = network.base_model, network.base_model_prefix
    inside = "" if base is network else f"{prefix}."
    paths = [inside + name for name in architecture.base_head if _has_parameters(getattr(base, name, None))]
    if base is not network:
        paths += [name for name, child in network.named_children() if name != prefix and _has_parameters(child)]
    return paths


def _has_parameters(module: nn.Module | None) -> bool:
    return module is not None and next(module.parameters(), None) is not None


@contextmanager
def only_blocks(network: Any, architecture: Architecture, keep: Sequence[int]) -> Iterator[None]:
    """The network itself with all but these blocks (1..L) really taken out, until the block ends."""
    base = network.base_model
    depth = getattr(base.config, architecture.depth_field)
    paths = (path.rpartition(".") for path in (architecture.blocks, *architecture.beside))
    holders = [(base.get_submodule(parent), name) for parent, _, name in paths]
    modules = [getattr(parent, name) for parent, name in holders]
    wired = surgery.blocks_of(base) if architecture.rewired else ()
    lists = {field: getattr(base.config, field) for field in architecture.layer_lists}
    try:
        setattr(base.config, architecture.depth_field, len(keep))
        for field, values in lists.items():
            setattr(base.config, field, [values[b - 1] for b in keep])
        if architecture.rewired:
            surgery.set_blocks(base, tuple(wired[b - 1] for b in keep))
        if not architecture.shared:
            for (parent, name), whole in zip(holders, modules, strict=True):
                setattr(parent, name, nn.ModuleList(whole[b - 1] for b in keep))
        yield
    finally:
        setattr(base.config, architecture.depth_field, depth)
        for field, values in lists.items():
            setattr(base.config, field, values)
        for (parent, name), whole in zip(holders, modules, strict=True):
            setattr(parent, name, whole)
        if architecture.rewired:
            surgery.set_blocks(base, wired)


@contextmanager
def as_it_was(network: Any) -> Iterator[None]:
    """Settings, submodules and buffers that a forward changes are put back when the block ends."""
    before = [
        (module, {k: v for k, v in vars(module).items() if not k.startswith("_")}, dict(module._modules))
        for module in network.modules()
    ]
    buffers = [(module, dict(module._buffers)) for module in network.modules()]
    try:
        yield
    finally:
        for module, settings, children in before:
            vars(module).update(settings)
            module._modules = children
        for module, own in buffers:
            module._buffers = own


@contextmanager
def evaluating(network: Any) -> Iterator[None]:
    """Evaluation mode (no dropout), and back to what it was."""
    was_training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(was_training)
