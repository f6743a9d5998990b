"""Batches as they go to a device: padded, with what pooling needs, in one copy that nothing waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from torch import Tensor

from layerscope.extraction.items import Item, Items
from layerscope.extraction.means import segment_means
from layerscope.models.masks import padding_known

_PLACES, _OFFSETS = "pooled_places", "pooled_offsets"


class Packed:
    """Named arrays of whole numbers in one piece of memory, page-locked where a GPU will copy it.

    It is made on the host, in whatever thread, and `on_device` starts the one copy without waiting for it.
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
        """For the forward of this batch: whether it has padding need not be read back from the device."""
        return nullcontext() if self._padding is None else padding_known(self._padding[0], padded=self._padding[1])

    def on_device(self) -> dict[str, Tensor]:
        """The arrays as int64 tensors on the device."""
        flat = self._flat.to(self._device, non_blocking=True)
        parts = flat.split([int(np.prod(shape)) for shape in self._shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(self._shapes.items(), parts, strict=True)}


class Coming:
    """Values on their way to the host: the copy is queued behind what makes them, and only `numpy` waits for it."""

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
    if device.type != "cuda":
        return torch.empty(size, dtype=torch.int64)
    with torch.cuda.device(device):  # another thread's current device may be another one
        return torch.empty(size, dtype=torch.int64, pin_memory=True)


def padded(items: Items | Sequence[Item], pad_token: int | None, left: bool = False) -> dict[str, Tensor]:
    """input_ids, attention_mask and (where there are any) token_type_ids of some items, as long as the longest."""
    return {name: torch.from_numpy(array) for name, array in padded_arrays(Items.of(items), pad_token, left).items()}


def padded_arrays(items: Items, pad_token: int | None, left: bool = False) -> dict[str, np.ndarray]:
    """The same as arrays."""
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
    whole = np.full(real.shape, rest, dtype=np.int64)
    whole[real] = values
    return whole


def pooling_arrays(items: Items) -> dict[str, np.ndarray]:
    """What `Pooling` needs of items that are padded on the right."""
    places = items.owner * int(items.lengths.max()) + items.take
    row, count = items.row, int(items.rows.sum())
    if len(row) == count and np.array_equal(row, np.arange(count)):
        return {_PLACES: places}
    if np.any(row[1:] < row[:-1]):
        order = np.argsort(row, kind="stable")
        places, row = places[order], row[order]
    return {_PLACES: places, _OFFSETS: np.searchsorted(row, np.arange(count + 1))}


class Pooling:
    """From a batch's states (batch, time, width) to its rows: some tokens, or means of tokens.

    No kernel of it makes the host wait for the device, and it gives the same numbers in every run.
    """

    def __init__(self, arrays: dict[str, Tensor], time: int) -> None:
        """Takes what it needs out of the arrays of a batch, whose texts are padded to `time` tokens."""
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
