"""One forward of one batch: pad, run, and pool every layer on the device as its block returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.errors import InputError
from layerscope.extraction.encode import Item
from layerscope.extraction.reading import Reading
from layerscope.models import Model
from layerscope.models.anatomy import accepted_inputs, block_modules, evaluating
from layerscope.models.replay import caches_off, entering, state_of
from layerscope.models.selfcheck import summary_marks


class Runner:
    """A model ready to give the pooled states of some of its layers for one batch after another."""

    def __init__(self, model: Model, layers: Sequence[int] | None, reading: Reading) -> None:
        self.model = model
        self.reading = reading
        self.layers = check_layers(layers, model)
        self._base = model.network.base_model
        # Nothing above the highest layer that is wanted needs to run.
        self._stop = None if reading.final_norm else max(self.layers)

    @cached_property
    def _accepted(self) -> set[str]:
        return accepted_inputs(self._base)

    def run(self, items: Sequence[Item]) -> dict[int, Tensor]:
        """Layer -> (rows of all items, width), float32, on the model's device."""
        inputs, pooling = self.inputs(items), _Pooling(items, self.model.device)
        inputs |= summary_marks(self.model, inputs["input_ids"])
        pooled: dict[int, Tensor] = {}
        time_first = self.model.anatomy.time_first

        def see(layer: int, state: Tensor) -> None:
            if layer in self.layers:
                pooled[layer] = pooling(state.transpose(0, 1) if time_first else state)
            if layer == self._stop:
                raise _Enough

        with self.ready(), watching(self.model, see):
            try:
                result = self._base(**inputs)
                if self.reading.final_norm and self.model.depth in self.layers:
                    pooled[self.model.depth] = pooling(result[0])
            except _Enough:
                pass
        return pooled

    def inputs(self, items: Sequence[Item], *, padding_left: bool = False) -> dict[str, Tensor]:
        """The padded batch. Padding is on the right, where absolute and causal positions stay true, unless asked."""
        batch = padded(items, self.model.pad_token, padding_left)
        return {name: value.to(self.model.device) for name, value in batch.items() if name in self._accepted}

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Inference mode, no dropout, no caches, autocast if asked for; the network is left as it was."""
        network = self.model.network
        dtype = self.reading.autocast and getattr(torch, self.reading.autocast)
        cast = torch.autocast(self.model.device.type, dtype) if dtype else nullcontext()
        with torch.inference_mode(), evaluating(network), caches_off(network), cast:
            yield


class _Enough(Exception):  # noqa: N818  (not an error)
    """Every layer that is wanted has been seen."""


@contextmanager
def watching(model: Model, see: Any) -> Iterator[None]:
    """During one forward, `see(layer, state)` is told each layer 0..L as it appears."""
    modules = block_modules(model.network.base_model, model.anatomy)
    passed = 0

    def before(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if passed == 0:
            see(0, entering(args, kwargs))

    def after(_: Any, args: Any, kwargs: Any, output: Any) -> None:
        nonlocal passed
        passed += 1
        see(passed, state_of(output))

    hooks = [modules[0].register_forward_pre_hook(before, with_kwargs=True)]
    hooks += [module.register_forward_hook(after, with_kwargs=True) for module in dict.fromkeys(modules)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class _Pooling:
    """From a batch's states (batch, time, width) to its rows: some tokens, or means of tokens."""

    def __init__(self, items: Sequence[Item], device: torch.device) -> None:
        text = np.concatenate([np.full(len(item.take), i) for i, item in enumerate(items)])
        take = np.concatenate([item.take for item in items])
        rows = [len(item.unit) for item in items]
        offsets = np.cumsum([0, *rows[:-1]])
        segment = np.concatenate([offset + item.segment for offset, item in zip(offsets, items, strict=True)])
        order = np.arange(len(take))
        self._means = len(segment) != sum(rows) or not np.array_equal(segment, np.arange(len(segment)))
        if self._means:
            order = np.argsort(segment, kind="stable")
            self._lengths = torch.from_numpy(np.bincount(segment, minlength=sum(rows))).to(device)
        self._text, self._take = (torch.from_numpy(each[order]).to(device) for each in (text, take))

    def __call__(self, states: Tensor) -> Tensor:
        # The time of states may be longer than that of the texts: Longformer pads to a multiple of its window.
        places = self._text * states.shape[1] + self._take
        chosen = states.reshape(-1, states.shape[-1]).index_select(0, places).float()
        return torch.segment_reduce(chosen, "mean", lengths=self._lengths) if self._means else chosen


def padded(items: Sequence[Item], pad_token: int | None, left: bool = False) -> dict[str, Tensor]:
    """input_ids, attention_mask and (where there are any) token_type_ids of some items, as long as the longest."""
    longest = max(map(len, items))
    batch = {"input_ids": _pad([item.ids for item in items], longest, pad_token or 0, left)}
    if items[0].types is not None:
        types = [item.types for item in items if item.types is not None]
        batch["token_type_ids"] = _pad(types, longest, 0, left)
    batch["attention_mask"] = _pad([np.ones(len(item), np.int64) for item in items], longest, 0, left)
    return batch


def _pad(rows: Sequence[np.ndarray], longest: int, value: int, left: bool) -> Tensor:
    padded = np.full((len(rows), longest), value, dtype=np.int64)
    for i, row in enumerate(rows):
        padded[i, longest - len(row) if left else 0 :][: len(row)] = row
    return torch.from_numpy(padded)


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
