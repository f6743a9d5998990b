"""ELMo as a model: opens its folder, reads its words, and taps its layers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from layerscope.errors import InputError, check_seed
from layerscope.models.elmo import Elmo, character_ids, word_characters
from layerscope.models.elmo_files import options_file, read_folder, read_options, seed_files
from layerscope.models.families import Architecture
from layerscope.models.hooks import Taps
from layerscope.models.text_reader import InputBatch, ReadText, Text, TextReader
from layerscope.models.wrap import WrappedModel, WrappedNetwork
from layerscope.store import digest
from layerscope.store.keys import checksum

RUNNING_WORD = r"\w+|[^\w\s]"  # matches a word where a text does not come in words
_MARKS = 2  # numbers of the marks at the ends of a text: 0 and 1


class WordReader(TextReader):
    """The reader of ELMo: it numbers words as they come, and gives the characters of those in a batch."""

    takes_words = True

    def __init__(self, longest: int) -> None:
        self.longest, self.expression = longest, RUNNING_WORD
        self.cache = _Words(longest)

    def read(self, texts: Sequence[Text], max_length: int) -> list[ReadText]:
        return [self._read(text, max_length - _MARKS) for text in texts]

    def _read(self, text: Text, room: int) -> ReadText:
        """Return the places of one text: its first `room` words between two marks."""
        words = re.findall(self.expression, text) if isinstance(text, str) else list(text)
        first = words[:room]
        ids = np.asarray([0, *self.cache.numbers(first), 1], np.int64)
        at = np.asarray([-1, *range(len(first)), -1], np.int64)
        return ReadText(ids, at, at < 0, len(first) < len(words))

    def batch(self, ids: Sequence[np.ndarray]) -> InputBatch:
        longest = max(map(len, ids))
        numbers, mask = np.zeros((2, len(ids), longest), np.int64)
        for row, real, text in zip(numbers, mask, ids, strict=True):
            row[: len(text)], real[: len(text)] = text, 1
        distinct, places = np.unique(numbers, return_inverse=True)
        characters = torch.from_numpy(self.cache.characters(distinct))
        whole = torch.from_numpy(mask)
        inputs = {"character_ids": characters, "mask": whole, "places": torch.from_numpy(places.reshape(mask.shape))}
        return InputBatch(whole, (), inputs)


class _Words:
    """The distinct words that have been seen, by number, with their characters."""

    def __init__(self, longest: int) -> None:
        self._numbers: dict[str, int] = {}
        self._longest, self._count = longest, _MARKS
        self._rows = character_ids([], longest).numpy()  # of the two marks; it grows by doubling

    def numbers(self, words: Sequence[str]) -> list[int]:
        """Return the numbers of words; new words get the next ones."""
        for word in words:
            if word not in self._numbers:
                self._add(word)
        return [self._numbers[word] for word in words]

    def _add(self, word: str) -> None:
        if self._count == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        self._rows[self._count] = word_characters(word, self._longest)
        self._numbers[word] = self._count
        self._count += 1

    def characters(self, numbers: np.ndarray) -> np.ndarray:
        return self._rows[numbers]


def open_elmo(
    folder: Path, name: str, random: bool, dtype: torch.dtype, device: torch.device, seed: int, stateful: bool
) -> WrappedModel:
    """Return the model of a folder with ELMo's files, or its untrained twin."""
    network = untrained(folder, seed) if random else read_folder(folder)
    network.to(device=device, dtype=dtype).eval()
    if stateful and network.options.lstm.attention_heads is not None:
        raise InputError(f"stateful=True is for LSTMs, and {name} is the transformer variant, which carries no state.")
    network.stateful = stateful
    return model_of(network, name)


def model_of(network: Elmo, name: str) -> WrappedModel:
    """Return the model of an ELMo network."""
    options = network.options
    depth = options.lstm.n_layers
    taps = Taps(tuple(f"layers.{k}" for k in range(depth)), "doubled")
    architecture = Architecture("elmo", "layers")
    reader = WordReader(options.char_cnn.max_characters_per_token)
    return WrappedModel(WrappedNetwork(network, name), reader, architecture, name, taps, (options.width,) * (depth + 1))


def untrained(folder: Path, seed: int) -> Elmo:
    """Return the network of a folder's options, with weights that the seed and the folder's own weights decide."""
    twin_seed = int(digest(str(check_seed(seed)), *map(checksum, seed_files(folder)))[:15], 16)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(twin_seed)
        return Elmo(read_options(options_file(folder)))
