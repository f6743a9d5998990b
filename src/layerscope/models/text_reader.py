"""Readers make the inputs of wrapped networks, which have no tokenizer of transformers, from texts."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.errors import InputError, first_line, some

Text = str | Sequence[str]  # running text, or its words
_TOGETHER = 64  # texts that a function is given at a time when only their places are asked for
_KEYS = ("inputs", "mask", "words", "special", "truncated")


@dataclass(frozen=True)
class ReadText:
    """The places that one text has for a network, padding not included."""

    ids: np.ndarray  # (t,) whole numbers by which the reader recognises the text's places later
    words: np.ndarray | None  # (t,) the number of the word at each place, -1 where there is none
    special: np.ndarray  # (t,) whether a place is a mark that stands for no part of the text
    truncated: bool = False


@dataclass(frozen=True)
class InputBatch:
    """The inputs that a network is called with, and which of its places are real."""

    mask: Tensor  # (batch, time)
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    order: Tensor | None = None  # (batch, time) places, real ones first, where the network has them in another order

    def on(self, device: torch.device) -> InputBatch:
        """Return a batch of the host on a device."""
        # The order is found on the host, before the copy: reading the mask later would wait for the device.
        parts = (self.mask, self.args, dict(self.kwargs), real_first(self.mask))
        return InputBatch(*(moved(part, device) for part in parts))


class TextReader(ABC):
    """The base of readers: `read` gives the places of each text, `batch` the inputs of texts that go together."""

    takes_words = False  # whether words are given wherever the data has them, not only where rows are words

    @abstractmethod
    def read(self, texts: Sequence[Text], max_length: int) -> list[ReadText]:
        """Return the places of each text."""

    @abstractmethod
    def batch(self, ids: Sequence[np.ndarray]) -> InputBatch:
        """Return the inputs of some texts, by the `ids` that `read` gave them."""


class FunctionReader(TextReader):
    """The reader of a user's `encode(texts)`, which is called for the places of texts and again for every batch."""

    def __init__(self, encode: Callable[..., Mapping[str, Any]]) -> None:
        self.encode = encode
        try:
            self.takes_length = "max_length" in inspect.signature(encode).parameters
        except (TypeError, ValueError):  # built into Python, or not a function
            self.takes_length = False
        self.cache: list[Text] = []  # texts by their number

    def read(self, texts: Sequence[Text], max_length: int) -> list[ReadText]:
        places: list[ReadText] = []
        for start in range(0, len(texts), _TOGETHER):
            places += self._read(texts[start : start + _TOGETHER], max_length)
        return places

    def batch(self, ids: Sequence[np.ndarray]) -> InputBatch:
        texts = [self.cache[int(number[0])] for number in ids]
        longest = max(map(len, ids))
        encoded = self._encoded(texts, longest)
        inputs = encoded["inputs"]
        if isinstance(inputs, Mapping):
            return InputBatch(encoded["mask"], (), dict(inputs))
        return InputBatch(encoded["mask"], tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,))

    def _read(self, texts: Sequence[Text], max_length: int) -> list[ReadText]:
        """Return the places of a few texts, and number the texts for `batch`."""
        encoded = self._encoded(texts, max_length)
        mask = encoded["mask"].bool().numpy()
        words, special = (self._array(encoded, name) for name in ("words", "special"))
        cut = encoded.get("truncated")
        longest = int(mask.sum(axis=1).max(initial=0))
        if longest > max_length:
            raise InputError(
                f"encode gives {longest} places for a text, and max_length is {max_length}; let encode take "
                "max_length= and cut texts there, or give a larger max_length."
            )
        places = []
        for i, text in enumerate(texts):
            real = mask[i]
            number = len(self.cache)
            self.cache.append(text)
            places.append(
                ReadText(
                    np.full(int(real.sum()), number, np.int64),
                    None if words is None else words[i][real].astype(np.int64),
                    np.zeros(int(real.sum()), bool) if special is None else special[i][real].astype(bool),
                    bool(cut[i]) if cut is not None else False,
                )
            )
        return places

    def _encoded(self, texts: Sequence[Text], max_length: int) -> dict[str, Any]:
        """Return what the user's function gives for texts, or raise InputError where that cannot be used."""
        options = {"max_length": max_length} if self.takes_length else {}
        try:
            encoded = self.encode(list(texts), **options)
        except Exception as error:
            raise InputError(
                f"encode cannot read texts such as {texts[0]!r:.60} ({type(error).__name__}: {first_line(error)}); it "
                "is given a list of texts, each a str, or a list of words where rows are words."
            ) from error
        if not isinstance(encoded, Mapping) or not {"inputs", "mask"} <= encoded.keys():
            found = sorted(encoded) if isinstance(encoded, Mapping) else type(encoded).__name__
            raise InputError(f"encode must give a dict with 'inputs' and 'mask'; it gave {found}.")
        if unknown := sorted(set(encoded) - set(_KEYS)):
            raise InputError(f"encode gave {some(unknown)}, which nothing reads; known: {', '.join(_KEYS)}.")
        mask = torch.as_tensor(encoded["mask"]).cpu()
        if mask.ndim != 2 or len(mask) != len(texts):
            raise InputError(
                f"The mask that encode gives must be (texts, time), here ({len(texts)}, time); it is "
                f"{tuple(mask.shape)}."
            )
        return {**encoded, "mask": mask}

    @staticmethod
    def _array(encoded: Mapping[str, Any], name: str) -> np.ndarray | None:
        """Return the array of that name, which must have the mask's shape, or None where the function gives none."""
        if encoded.get(name) is None:
            return None
        array, shape = torch.as_tensor(encoded[name]).cpu().numpy(), tuple(encoded["mask"].shape)
        if array.shape != shape:
            raise InputError(f"{name!r} of encode must be as large as its mask, {shape}; it is {array.shape}.")
        return array


def real_first(mask: Tensor) -> Tensor | None:
    """Return (batch, time) the places with real ones first, then padding; None where they are in that order already."""
    real = mask.bool()
    if bool((real[:, 1:] <= real[:, :-1]).all()):
        return None
    return torch.argsort((~real).long(), dim=1, stable=True)


def moved(value: Any, device: torch.device) -> Any:
    """Return a value with all tensors in it, through tuples, lists and dicts, on a device."""
    if hasattr(value, "to") and callable(value.to):  # tensors, packed sequences
        return value.to(device)
    if isinstance(value, Mapping):
        return {name: moved(part, device) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(moved(part, device) for part in value)
    return value
