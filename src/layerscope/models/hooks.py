"""Taps on any network: the modules whose outputs are its layers, and how these outputs become states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from layerscope.errors import InputError, ModelError, choose

Output = str | Callable[[Any], Tensor]
OUTPUTS = ("tensor", "first", "packed")
LAYOUTS = {"batch time width": (0, 1, 2), "time batch width": (1, 0, 2), "batch width time": (0, 2, 1)}


@dataclass(frozen=True)
class Taps:
    """The modules whose outputs are layers 1..L and layer 0, with the form of their outputs."""

    layers: tuple[str, ...]
    embedding: str | None = None  # layer 0; None: what enters the first of `layers`
    output: Output = "tensor"
    layout: str = "batch time width"
    embedding_output: Output = "tensor"
    embedding_layout: str = "batch time width"

    def __post_init__(self) -> None:
        for output in (self.output, self.embedding_output):
            if not callable(output):
                choose("output", output, OUTPUTS)
        for layout in (self.layout, self.embedding_layout):
            choose("layout", layout, tuple(LAYOUTS))

    def name(self, layer: int) -> str:
        """Return what a layer is called in messages."""
        module = self.layers[layer - 1] if layer else self.embedding
        return f"layer {layer}" + (f" ({module})" if module else f" (what enters {self.layers[0]})")

    def state(self, layer: int, output: Any, time: int) -> Tensor:
        """Return the state (batch, time, width) in a module's output; `time` is the length that texts are padded to."""
        how, layout = (
            (self.embedding_output, self.embedding_layout)
            if layer == 0 and self.embedding is not None
            else (self.output, self.layout)
        )
        name = self.name(layer)
        if callable(how):
            return _tensor(how(output), name).permute(LAYOUTS[layout])
        if how == "packed":
            packed = output[0] if type(output) is tuple and output else output
            if not isinstance(packed, PackedSequence):
                raise ModelError(f"{name} was declared to be packed, but it is {_kind(output)}.")
            return pad_packed_sequence(packed, batch_first=True, total_length=time)[0]
        if how == "first" and (layer or self.embedding is not None):
            if isinstance(output, PackedSequence) or not isinstance(output, (tuple, list)) or not output:
                raise ModelError(f"{name} was declared to be the first of several outputs, but it is {_kind(output)}.")
            output = output[0]
        return _tensor(output, name).permute(LAYOUTS[layout])


def find_modules(module: nn.Module, patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the modules that patterns stand for, pattern by pattern, each in the network's order.

    A `*` stands for any part of a name between two dots.
    """
    if isinstance(patterns, str) or not len(patterns):
        raise InputError(f"layers is {patterns!r}; a list of names of modules is needed, such as ['layers.*'].")
    names = [name for name, _ in module.named_modules() if name]
    chosen: list[str] = []
    for pattern in patterns:
        parts = str(pattern).split(".")
        fitting = [
            name
            for name in names
            if name.count(".") + 1 == len(parts) and all(map(fnmatchcase, name.split("."), parts))
        ]
        if not fitting:
            shown = ", ".join(names[:12]) + (", .." if len(names) > 12 else "")
            raise InputError(f"{type(module).__name__} has no module {pattern!r}; it has {shown or 'none'}.")
        chosen += fitting
    if twice := sorted({name for name in chosen if chosen.count(name) > 1}):
        raise InputError(f"The module {twice[0]!r} is named twice in layers; every layer is another module.")
    return tuple(chosen)


@contextmanager
def watch_layers(module: nn.Module, taps: Taps, time: int, see: Callable[[int, Tensor], None]) -> Iterator[None]:
    """Call `see(layer, state)` with the state of each layer when its module has run, during one forward."""
    passed: set[int] = set()

    def report(layer: int, output: Any) -> None:
        if layer in passed:
            raise ModelError(
                f"{taps.name(layer)} runs more than once in a forward, so which of its outputs is the layer cannot be "
                "told; name a module that runs once."
            )
        passed.add(layer)
        see(layer, taps.state(layer, output, time))

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        report(0, args[0] if args else next(iter(kwargs.values()), None))

    def after(layer: int) -> Callable[..., None]:
        return lambda _module, _args, output: report(layer, output)

    hooks = []
    if taps.embedding is None:
        hooks.append(module.get_submodule(taps.layers[0]).register_forward_pre_hook(before, with_kwargs=True))
    named = {0: taps.embedding} if taps.embedding is not None else {}
    for layer, name in {**named, **dict(enumerate(taps.layers, start=1))}.items():
        hooks.append(module.get_submodule(name).register_forward_hook(after(layer)))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _tensor(value: Any, name: str) -> Tensor:
    """Return a value if it is a tensor of states, or raise ModelError with what it is instead."""
    if not isinstance(value, Tensor):
        way_out = {PackedSequence: "output='packed'"}.get(type(value), "output='first', or a function that picks one")
        raise ModelError(f"{name} is {_kind(value)}, not a tensor; say which part is the state: {way_out}.")
    if value.ndim != 3 or not value.is_floating_point():
        raise ModelError(
            f"{name} is a tensor of {tuple(value.shape)} ({value.dtype}); states are floats of three dimensions."
        )
    return value


def _kind(value: Any) -> str:
    """Return in a few words what a value is, for messages."""
    if isinstance(value, PackedSequence):
        return "a packed sequence"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a tensor of {tuple(value.shape)}" if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"
