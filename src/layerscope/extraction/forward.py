"""Forwards of one batch after another: run, and pool every layer on the device as its block returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.errors import InputError
from layerscope.extraction.items import Item, Items
from layerscope.extraction.packing import Packed, Pooling, padded, padded_arrays, pooling_arrays
from layerscope.extraction.reading import Reading
from layerscope.models import Model
from layerscope.models.anatomy import accepted_inputs, block_modules, evaluating
from layerscope.models.kernels import kernels_for_any_shape
from layerscope.models.replay import caches_off, entering, state_of
from layerscope.models.selfcheck import summary_marks

__all__ = ["Runner", "check_layers", "padded", "watching"]

See = Callable[[int, Tensor], None]  # a layer, and its states


class Runner:
    """A model ready to give the pooled states of some of its layers for one batch after another."""

    def __init__(self, model: Model, layers: Sequence[int] | None, reading: Reading) -> None:
        self.model = model
        self.reading = reading
        self.layers = check_layers(layers, model)
        self._base = model.network.base_model
        # Nothing above the highest layer that is wanted needs to run.
        self._stop = None if reading.final_norm else max(self.layers)
        self._open: ExitStack | None = None  # while the network is prepared: what puts it back
        self._see: See | None = None  # while a batch runs: who is told its states
        self._is_watched = False

    @cached_property
    def _accepted(self) -> set[str]:
        return accepted_inputs(self._base)

    def pack(
        self,
        items: Items | Sequence[Item],
        more: Mapping[str, np.ndarray] = MappingProxyType({}),
        *,
        padding_left: bool = False,
    ) -> Packed:
        """A batch on the host with what `more` there is, ready to be copied; other threads may make it ahead.

        Padding is on the right, where absolute and causal positions stay true, unless asked.
        """
        batch = padded_arrays(Items.of(items), self.model.pad_token, padding_left)
        accepted = {name: array for name, array in batch.items() if name in self._accepted}
        return Packed({**accepted, **more}, self.model.device)

    def pack_rows(self, items: Items | Sequence[Item]) -> Packed:
        """The same with what the rows are pooled by: for `run`."""
        items = Items.of(items)
        return self.pack(items, pooling_arrays(items))

    def inputs(self, items: Items | Sequence[Item], *, padding_left: bool = False) -> dict[str, Tensor]:
        """The padded batch on the model's device."""
        return self.pack(items, padding_left=padding_left).on_device()

    def run(self, batch: Packed | Items | Sequence[Item]) -> dict[int, Tensor]:
        """Layer -> (rows, width), float32, on the model's device; of items, or of what `pack_rows` made of them."""
        packed = batch if isinstance(batch, Packed) else self.pack_rows(batch)
        with self.ready():
            inputs = packed.on_device()
            pooling = Pooling(inputs, inputs["input_ids"].shape[1])
            inputs |= summary_marks(self.model, inputs["input_ids"])
            with packed.known_padding():
                return self._pooled(inputs, pooling)

    def _pooled(self, inputs: dict[str, Tensor], pooling: Pooling) -> dict[int, Tensor]:
        pooled: dict[int, Tensor] = {}
        model = self.model

        def see(layer: int, state: Tensor) -> None:
            if layer in self.layers:
                pooled[layer] = pooling(state.transpose(0, 1) if model.anatomy.time_first else state).to(model.device)
            if layer == self._stop:
                raise _Enough

        with self._telling(see):
            try:
                result = self._base(**inputs)
                if self.reading.final_norm and model.depth in self.layers:
                    pooled[model.depth] = pooling(result[0]).to(model.device)
            except _Enough:
                pass
        return pooled

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """No dropout, no caches, kernels for any shape until the block ends, for many batches; then as it was."""
        if self._open is not None:
            yield
            return
        with ExitStack() as stack:
            stack.callback(self._closed)
            stack.enter_context(evaluating(self.model.network))
            stack.enter_context(caches_off(self.model.network))
            stack.enter_context(kernels_for_any_shape())
            self._open = stack
            yield

    def _closed(self) -> None:
        self._open, self._is_watched = None, False

    @contextmanager
    def ready(self) -> Iterator[None]:
        """For one batch: the network prepared, inference mode, autocast if asked for."""
        dtype = self.reading.autocast and getattr(torch, self.reading.autocast)
        cast = torch.autocast(self.model.device.type, dtype) if dtype else nullcontext()
        with self.prepared(), torch.inference_mode(), cast:
            yield

    @contextmanager
    def _telling(self, see: See) -> Iterator[None]:
        """During one forward, `see(layer, state)` is told each layer 0..L as it appears."""
        assert self._open is not None
        if not self._is_watched:
            self._open.enter_context(watching(self.model, self._heard))
            self._is_watched = True
        self._see, self._passed = see, 0
        try:
            yield
        finally:
            self._see = None

    def _heard(self, state: Tensor, *, enters: bool) -> None:
        """A block was entered or left; nothing to do unless a batch of this runner is under way."""
        if self._see is None or (enters and self._passed):
            return
        self._passed += not enters
        self._see(self._passed, state)


class _Enough(Exception):  # noqa: N818  (not an error)
    """Every layer that is wanted has been seen."""


@contextmanager
def watching(model: Model, hear: Callable[..., None]) -> Iterator[None]:
    """Tell `hear(state, enters=..)` the state that enters the first block, and those that leave each of them."""
    modules = block_modules(model.network.base_model, model.anatomy)

    def before(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        hear(entering(args, kwargs), enters=True)

    def after(_: Any, args: Any, kwargs: Any, output: Any) -> None:
        hear(state_of(output), enters=False)

    hooks = [modules[0].register_forward_pre_hook(before, with_kwargs=True)]
    hooks += [module.register_forward_hook(after, with_kwargs=True) for module in dict.fromkeys(modules)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def check_layers(layers: Sequence[int] | None, model: Model) -> tuple[int, ...]:
    """The layers that are wanted, in order; all of them if none are named."""
    if layers is None:
        return tuple(range(model.depth + 1))
    if isinstance(layers, (int, str)) or not all(isinstance(layer, (int, np.integer)) for layer in layers):
        raise InputError(f"layers={layers!r} was given; a list of whole numbers is needed, such as [0, {model.depth}].")
    wrong = [layer for layer in layers if not 0 <= layer <= model.depth]
    if wrong or not len(layers):
        asked = ", ".join(map(str, wrong)) or "none"
        raise InputError(f"Layers were asked for that {model.name} does not have: {asked}; it has 0..{model.depth}.")
    return tuple(sorted({int(layer) for layer in layers}))
