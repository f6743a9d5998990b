"""Forwards over one batch after another, which pool every layer on the device as its block returns.

The host should never wait for the device. So a batch goes there in one copy that nothing waits for, padded and with
the arrays that pooling needs, and whether it has padding is remembered on the host: in every forward transformers asks
whether its mask hides anything, to leave it out if not, and would wait for all earlier work of the device to know.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import masking_utils

from layerscope.errors import InputError
from layerscope.extraction.items import Item, Items
from layerscope.extraction.pooling import Reading, segment_means
from layerscope.models import Model
from layerscope.models.architecture import accepted_inputs, block_modules, evaluating
from layerscope.models.replay import caches_off, entering, state_of
from layerscope.models.selfcheck import summary_marks

_MASK_FUNCTIONS = ("_ignore_causal_mask_sdpa", "_ignore_bidirectional_mask_sdpa")  # of transformers: they read the mask
_Batch = tuple[tuple[int, ...], bool]  # the shape of its mask, and whether that hides anything


class _Current(threading.local):
    """The batch whose forward this thread is running, where its padding is known."""

    batch: _Batch | None = None


_current = _Current()


@contextmanager
def padding_known(shape: tuple[int, ...], *, padded: bool) -> Iterator[None]:
    """Note whether a batch of this shape (texts, time) has padding, for one forward of this thread without caches."""
    _patch_mask_functions()
    before, _current.batch = _current.batch, (tuple(shape), padded)
    try:
        yield
    finally:
        _current.batch = before


@functools.cache
def _patch_mask_functions() -> None:
    """Let the functions of transformers that look into the mask use what is noted; without a note nothing changes."""
    for name in _MASK_FUNCTIONS:
        if hasattr(masking_utils, name):
            setattr(masking_utils, name, _with_note(getattr(masking_utils, name)))


def _with_note(ask: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of transformers that answers from the note where the mask is that of the current batch."""

    @functools.wraps(ask)
    def answer(padding_mask: Tensor | None, *args: Any, **kwargs: Any) -> Any:
        if padding_mask is None or _current.batch is None or tuple(padding_mask.shape) != _current.batch[0]:
            return ask(padding_mask, *args, **kwargs)
        return False if _current.batch[1] else ask(None, *args, **kwargs)

    return answer


_PLACES, _OFFSETS = "pooled_places", "pooled_offsets"


class Packed:
    """Named arrays of whole numbers in one piece of memory, page-locked where a GPU will copy it.

    It is made on the host, in any thread, and `on_device` starts the one copy without waiting for it.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], device: torch.device) -> None:
        mask = arrays.get("attention_mask")
        self._padding = None if mask is None else (mask.shape, not mask.all())
        self._shapes = {name: array.shape for name, array in arrays.items()}
        sizes = [array.size for array in arrays.values()]
        self._flat = _host_memory(sum(sizes), device)
        target = self._flat.numpy()
        for array, end, size in zip(arrays.values(), np.cumsum(sizes), sizes, strict=True):
            target[end - size : end] = array.reshape(-1)
        self._device = device

    def known_padding(self) -> AbstractContextManager[None]:
        """Return the context for a forward of this batch, in which its padding is not read back from the device."""
        return nullcontext() if self._padding is None else padding_known(self._padding[0], padded=self._padding[1])

    def on_device(self) -> dict[str, Tensor]:
        """Return the arrays as int64 tensors on the device."""
        flat = self._flat.to(self._device, non_blocking=True)
        parts = flat.split([int(np.prod(shape)) for shape in self._shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(self._shapes.items(), parts, strict=True)}


class PendingCopy:
    """A copy of values to the host, queued behind the work that makes them; only `numpy` waits for it."""

    def __init__(self, values: Tensor) -> None:
        self._arrived: torch.cuda.Event | None = None
        if values.is_cuda:
            self._values = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            with torch.cuda.device(values.device):
                self._values.copy_(values, non_blocking=True)
                self._arrived = torch.cuda.Event()
                self._arrived.record()
        else:
            self._values = values

    def numpy(self) -> np.ndarray:
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._values.cpu().numpy()


def _host_memory(size: int, device: torch.device) -> Tensor:
    """Return memory of the host for whole numbers, page-locked where a GPU will copy it."""
    if device.type != "cuda":
        return torch.empty(size, dtype=torch.int64)
    with torch.cuda.device(device):  # another thread's current device may be another one
        return torch.empty(size, dtype=torch.int64, pin_memory=True)


def padded(items: Items | Sequence[Item], pad_token: int | None, left: bool = False) -> dict[str, Tensor]:
    """Return input_ids, attention_mask and, where there are any, token_type_ids of items, padded to the longest."""
    arrays = padded_arrays(Items.from_list(items), pad_token, left)
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def padded_arrays(items: Items, pad_token: int | None, left: bool = False) -> dict[str, np.ndarray]:
    """Return the same as `padded`, as arrays."""
    longest = int(items.lengths.max())
    positions = np.arange(longest)
    gap = longest - items.lengths[:, None]
    real = positions >= gap if left else positions < items.lengths[:, None]
    batch = {"input_ids": _spread(items.ids, real, pad_token or 0)}
    if items.types is not None:
        batch["token_type_ids"] = _spread(items.types, real, 0)
    batch["attention_mask"] = real.astype(np.int64)
    return batch


def _spread(values: np.ndarray, real: np.ndarray, rest: int) -> np.ndarray:
    """Return an array of the shape of `real`, with the values where it is True and `rest` elsewhere."""
    whole = np.full(real.shape, rest, dtype=np.int64)
    whole[real] = values
    return whole


def pooling_arrays(items: Items) -> dict[str, np.ndarray]:
    """Return the arrays that `Pooling` needs, for items that are padded on the right."""
    places = items.owner * int(items.lengths.max()) + items.take
    row, count = items.row, int(items.rows.sum())
    if len(row) == count and np.array_equal(row, np.arange(count)):
        return {_PLACES: places}
    if np.any(row[1:] < row[:-1]):
        order = np.argsort(row, kind="stable")
        places, row = places[order], row[order]
    return {_PLACES: places, _OFFSETS: np.searchsorted(row, np.arange(count + 1))}


class Pooling:
    """Makes the rows of a batch, which are tokens or means of tokens, from its states (batch, time, width).

    It never makes the host wait for the device, and gives the same numbers in every run.
    """

    def __init__(self, arrays: dict[str, Tensor], time: int) -> None:
        """Pop its own arrays from those of a batch, whose texts are padded to `time` tokens."""
        self._places, self._offsets = arrays.pop(_PLACES), arrays.pop(_OFFSETS, None)
        self._time = time

    def __call__(self, states: Tensor) -> Tensor:
        places, offsets = self._places, self._offsets
        if states.shape[1] != self._time:  # Longformer pads to a multiple of its window
            places = places + places.div(self._time, rounding_mode="floor") * (states.shape[1] - self._time)
        if states.device != places.device:  # a block of a network that is spread over devices
            places, offsets = places.to(states.device), None if offsets is None else offsets.to(states.device)
        flat = states.reshape(-1, states.shape[-1])
        if offsets is None:
            return flat.index_select(0, places).float()
        return segment_means(flat, places, offsets)


@contextmanager
def kernels_for_any_shape() -> Iterator[None]:
    """Turn cuDNN's attention kernel off while the block runs, unless no other is allowed.

    On some GPUs torch prefers cuDNN's kernel in 16 bits. It is planned anew for every shape of a batch, which takes
    longer than the whole forward, and texts of different lengths make batches of hundreds of shapes.
    """
    flags = torch.backends.cuda
    others = flags.flash_sdp_enabled() or flags.mem_efficient_sdp_enabled() or flags.math_sdp_enabled()
    if not (flags.cudnn_sdp_enabled() and others):
        yield
        return
    flags.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        flags.enable_cudnn_sdp(True)


__all__ = ["Runner", "check_layers", "padded", "watch_blocks"]

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
        self._see: See | None = None  # while a batch runs: what receives its states
        self._is_watched = False  # whether the blocks have their hooks

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
        """Return a batch on the host, with `more` arrays, ready to be copied; other threads may make it ahead.

        Padding is on the right unless asked for on the left: there absolute and causal positions stay what they are.
        """
        batch = padded_arrays(Items.from_list(items), self.model.pad_token, padding_left)
        accepted = {name: array for name, array in batch.items() if name in self._accepted}
        return Packed({**accepted, **more}, self.model.device)

    def pack_rows(self, items: Items | Sequence[Item]) -> Packed:
        """Return a batch on the host with the arrays of pooling, for `run`."""
        items = Items.from_list(items)
        return self.pack(items, pooling_arrays(items))

    def inputs(self, items: Items | Sequence[Item], *, padding_left: bool = False) -> dict[str, Tensor]:
        """Return the padded batch on the model's device."""
        return self.pack(items, padding_left=padding_left).on_device()

    def run(self, batch: Packed | Items | Sequence[Item]) -> dict[int, Tensor]:
        """Return layer -> (rows, width), float32 on the model's device, of items or of what `pack_rows` made."""
        packed = batch if isinstance(batch, Packed) else self.pack_rows(batch)
        with self.ready():
            inputs = packed.on_device()
            pooling = Pooling(inputs, inputs["input_ids"].shape[1])
            inputs |= summary_marks(self.model, inputs["input_ids"])
            with packed.known_padding():
                return self._pooled(inputs, pooling)

    def _pooled(self, inputs: dict[str, Tensor], pooling: Pooling) -> dict[int, Tensor]:
        """Run the network and return the pooled states of the wanted layers."""
        pooled: dict[int, Tensor] = {}
        model = self.model

        def see(layer: int, state: Tensor) -> None:
            if layer in self.layers:
                pooled[layer] = pooling(state.transpose(0, 1) if model.architecture.time_first else state).to(
                    model.device
                )
            if layer == self._stop:
                raise _AllLayersSeen

        with self._watched_by(see):
            try:
                result = self._base(**inputs)
                if self.reading.final_norm and model.depth in self.layers:
                    pooled[model.depth] = pooling(result[0]).to(model.device)
            except _AllLayersSeen:
                pass
        return pooled

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Turn off dropout, caches and cuDNN's attention for all batches of the block, and restore them at its end."""
        if self._open is not None:
            yield
            return

        def close() -> None:
            self._open, self._is_watched = None, False

        with ExitStack() as stack:
            stack.callback(close)
            stack.enter_context(evaluating(self.model.network))
            stack.enter_context(caches_off(self.model.network))
            stack.enter_context(kernels_for_any_shape())
            self._open = stack
            yield

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Prepare the network for one batch, in inference mode and with autocast if asked for."""
        dtype = self.reading.autocast and getattr(torch, self.reading.autocast)
        cast = torch.autocast(self.model.device.type, dtype) if dtype else nullcontext()
        with self.prepared(), torch.inference_mode(), cast:
            yield

    @contextmanager
    def _watched_by(self, see: See) -> Iterator[None]:
        """Call `see(layer, state)` for each layer 0..L as it appears, during one forward."""
        assert self._open is not None
        if not self._is_watched:  # the hooks stay for all batches
            self._open.enter_context(watch_blocks(self.model, self._on_block))
            self._is_watched = True
        self._see, self._passed = see, 0
        try:
            yield
        finally:
            self._see = None

    def _on_block(self, state: Tensor, *, enters: bool) -> None:
        """Pass on a state that enters or leaves a block, while a batch of this runner is under way."""
        if self._see is None or (enters and self._passed):
            return
        self._passed += not enters
        self._see(self._passed, state)


class _AllLayersSeen(Exception):  # noqa: N818  (not an error)
    """Raised to end a forward when every layer that is wanted has been seen."""


@contextmanager
def watch_blocks(model: Model, see: Callable[..., None]) -> Iterator[None]:
    """Call `see(state, enters=..)` with the state that enters the first block, and those that leave each block."""
    modules = block_modules(model.network.base_model, model.architecture)

    def before(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        see(entering(args, kwargs), enters=True)

    def after(_: Any, args: Any, kwargs: Any, output: Any) -> None:
        see(state_of(output), enters=False)

    hooks = [modules[0].register_forward_pre_hook(before, with_kwargs=True)]
    hooks += [module.register_forward_hook(after, with_kwargs=True) for module in dict.fromkeys(modules)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def check_layers(layers: Sequence[int] | None, model: Model) -> tuple[int, ...]:
    """Return the layers that are wanted, in order; all of them if none are named."""
    if layers is None:
        return tuple(range(model.depth + 1))
    if isinstance(layers, (int, str)) or not all(isinstance(layer, (int, np.integer)) for layer in layers):
        raise InputError(f"layers={layers!r} was given; a list of whole numbers is needed, such as [0, {model.depth}].")
    wrong = [layer for layer in layers if not 0 <= layer <= model.depth]
    if wrong or not len(layers):
        asked = ", ".join(map(str, wrong)) or "none"
        raise InputError(f"Layers were asked for that {model.name} does not have: {asked}; it has 0..{model.depth}.")
    return tuple(sorted({int(layer) for layer in layers}))
