"""Look-ups in the table of families, and what a record says of a network: its blocks, its head, its inputs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn

from layerscope.errors import ModelError, PlanError
from layerscope.models import surgery
from layerscope.models.families import (
    FAMILIES,
    LAYER_FIELDS,
    LAYER_LISTS,
    LAYER_NAMES,
    NOT_OF_BLOCKS,
    REFUSED,
    REFUSED_SETTINGS,
    STALE,
    Architecture,
    LayerField,
)

_OWN_NUMBER = ("layer_idx", "layer_id")  # the attribute by which modules of a block know its number, from 0
_BY_BLOCK = "per_layer_config"  # settings of single blocks, which the config of any family may have
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


def block_kinds(config: Any, architecture: Architecture) -> list[tuple[Any, ...]]:
    """What a config says of each of its blocks, one entry for every field about single blocks that it has."""
    depth = int(getattr(config, architecture.depth_field))
    read = [_read(field.how, values, depth) for field, values in _layer_fields(config, architecture)]
    return list(zip(*read, strict=True)) if read else [()] * depth


def kept_fields(config: Any, architecture: Architecture, keep: Sequence[int]) -> dict[str, Any]:
    """The config fields, with new values, that say of the blocks which stay what the config says of them now.

    Raises PlanError where a field can say no such thing, or is not known.
    """
    depth = int(getattr(config, architecture.depth_field))
    family, new = config.model_type, {architecture.depth_field: len(keep)}
    if list(keep) == list(range(1, depth + 1)):
        return new
    for name, value in unknown_layer_fields(config, depth).items():
        raise PlanError(
            f"{family} has {name}={_shown(value)} in its config, a field that may be about single blocks and that "
            "layerscope does not know, so its blocks cannot get other numbers; evaluate the plan without cutting, or, "
            "if the field is about no single block, take it out of config.json."
        )
    for field, values in _layer_fields(config, architecture):
        said = _read(field.how, values, depth)
        written = _written(field.how, [said[block - 1] for block in keep], values)
        if written is None:
            settings = " and ".join(f"{name}={value!r}" for name, value in zip(field.fields, values, strict=True))
            raise PlanError(
                f"{family} says by {settings} in its config which blocks are of which kind, and no value says that of "
                f"blocks {', '.join(map(str, keep)) or 'none'} alone; keep blocks whose kinds recur regularly, or "
                "evaluate the plan without cutting."
            )
        new |= dict(zip(field.fields, written, strict=True))
    return new


def _shown(value: Any) -> str:
    return text if len(text := repr(value)) < 80 else f"{text[:80]}.."


def layer_lists(config: Any, depth: int) -> tuple[str, ...]:
    """The names of a config's lists with an entry per block; others may have as many entries by chance."""
    stored = config.to_dict()
    return tuple(sorted(name for name in LAYER_LISTS if _says_something("entries", (stored.get(name),), depth)))


def _layer_fields(config: Any, architecture: Architecture) -> list[tuple[LayerField, tuple[Any, ...]]]:
    """The fields in which a config says something of single blocks, with their values. Properties are no fields."""
    stored, depth = config.to_dict(), int(getattr(config, architecture.depth_field))
    found = []
    for field in (*(LayerField("entries", (name,)) for name in architecture.layer_lists), *LAYER_FIELDS):
        if all(name in stored for name in field.fields):
            values = tuple(stored[name] for name in field.fields)
            if _says_something(field.how, values, depth):
                found.append((field, values))
    return found


def _says_something(how: str, values: tuple[Any, ...], depth: int) -> bool:
    first = values[0]
    if how == "entries":
        return isinstance(first, (list, tuple)) and len(first) == depth
    if how == "every":
        return isinstance(first, int) and first > 0
    return first is not None


_SAID: dict[str, Callable[..., Any]] = {  # of one block, counted from 0, by the values of the fields
    "entries": lambda block, entries: entries[block],
    "cycle": lambda block, entries: entries[block % len(entries)],
    "indices": lambda block, indices: block in indices,
    "indices from 1": lambda block, indices: block + 1 in indices,
    "first": lambda block, count: block < count,
    "range": lambda block, start, end, interval: start <= block <= end and (block + 1) % interval == 0,
    "step": lambda block, step, others: block in (others or ()) or (block + 1) % step != 0,
    "period": lambda block, period, offset: block % period == offset,
    "every": lambda block, count: (block // count, (block + 1) % count == 0),
}


def _read(how: str, values: tuple[Any, ...], depth: int) -> list[Any]:
    """What fields say of each block."""
    return [_SAID[how](block, *values) for block in range(depth)]


def _written(how: str, said: list[Any], values: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The values of fields that say this of the blocks, or None where there are none."""
    count = len(said)
    chosen = [block for block, is_chosen in enumerate(said) if is_chosen]
    if how in ("entries", "cycle"):
        return (type(values[0])(said),)
    if how.startswith("indices"):
        return ([block + (how == "indices from 1") for block in chosen],)
    if how == "first":
        return (len(chosen),)  # blocks stay in order, so those that were first still are
    if how == "step":
        return values if _read(how, values, count) == said else (1, chosen)
    tries, periods = [values], range(1, count + 2)
    if how == "range":
        ends = (chosen[0], chosen[-1]) if chosen else (count, count)
        tries = [(*ends, interval) for interval in dict.fromkeys((values[2], *periods))]
    elif how == "period":
        tries += [(period, offset) for period in periods for offset in range(period)]
    return next((each for each in tries if _read(how, each, count) == said), None)


def unknown_layer_fields(config: Any, depth: int) -> dict[str, Any]:
    """The fields that a config's class has, that may be about single blocks, and that are in no table.

    What else stands in a config.json no network reads.
    """
    own, stored = type(config)().to_dict(), config.to_dict()
    known = {*LAYER_LISTS, *(name for field in LAYER_FIELDS for name in field.fields)}
    return {
        name: value
        for name, value in sorted(stored.items())
        if value
        and (name in own or name == _BY_BLOCK)
        and not (name in known or re.fullmatch(NOT_OF_BLOCKS, name))
        and (re.search(LAYER_NAMES, name) or (isinstance(value, (list, tuple)) and len(value) == depth))
    }


@contextmanager
def only_blocks(
    network: Any, architecture: Architecture, keep: Sequence[int], *, numbered: bool = False
) -> Iterator[None]:
    """The network itself with all but these blocks (1..L) really taken out, until the block ends.

    With `numbered` the blocks that stay also know their new numbers. Raises PlanError where the config cannot say which
    blocks are left.
    """
    base = network.base_model
    new = kept_fields(base.config, architecture, keep)
    before = {field: getattr(base.config, field) for field in new}
    moved = _numbered_modules(base, architecture, keep) if numbered else []
    paths = (path.rpartition(".") for path in (architecture.blocks, *architecture.beside))
    holders = [(base.get_submodule(parent), name) for parent, _, name in paths]
    modules = [getattr(parent, name) for parent, name in holders]
    wired = surgery.blocks_of(base) if architecture.rewired else ()
    try:
        for field, value in new.items():
            setattr(base.config, field, value)
        for module, name, _, number in moved:
            setattr(module, name, number)
        if architecture.rewired:
            surgery.set_blocks(base, tuple(wired[b - 1] for b in keep))
        if not architecture.shared:
            for (parent, name), whole in zip(holders, modules, strict=True):
                setattr(parent, name, nn.ModuleList(whole[b - 1] for b in keep))
        yield
    finally:
        for field, value in before.items():
            setattr(base.config, field, value)
        for module, name, number, _ in moved:
            setattr(module, name, number)
        for (parent, name), whole in zip(holders, modules, strict=True):
            setattr(parent, name, whole)
        if architecture.rewired:
            surgery.set_blocks(base, wired)


def _numbered_modules(
    base: nn.Module, architecture: Architecture, keep: Sequence[int]
) -> list[tuple[nn.Module, str, int, int]]:
    """The modules of the blocks that know their block's number: by which attribute, the old number and the new one."""
    if architecture.shared:
        return []
    blocks = block_modules(base, architecture)
    return [
        (module, name, block - 1, place)
        for place, block in enumerate(keep)
        for module in blocks[block - 1].modules()
        for name in _OWN_NUMBER
        if vars(module).get(name) == block - 1
    ]


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
