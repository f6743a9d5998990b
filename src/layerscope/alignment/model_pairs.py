"""The rows of one model over some texts, states or attention weights: described at once, and read when asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.data import Examples
from layerscope.errors import InputError
from layerscope.extraction.attention import AttentionReading, attention_heads, attention_layers, attentions
from layerscope.extraction.extract import extract
from layerscope.extraction.forward import check_layers
from layerscope.extraction.pooling import Reading
from layerscope.extraction.representations import Representations, check_finite
from layerscope.models import Model
from layerscope.models.fingerprint import tokenizer_identity

MOST_ROWS = 20_000  # tokens, or pairs of words, that an aligner learns from


class Correspondence:
    """A check that the rows of several models correspond: they are the same words or tokens of the same texts."""

    def __init__(self) -> None:
        self._first: tuple[str, Any] | None = None

    def check(self, name: str, identity: Any) -> None:
        """Raise InputError unless the rows have the identity of the first model's rows."""
        self._first = self._first or (name, identity)
        if self._first[1] != identity:
            raise InputError(
                f"{self._first[0]} and {name} read different words or tokens of the same texts, so their rows do not "
                "correspond: their tokenizers differ, or texts are cut off at max_length. Use a pool of whole texts "
                "(mean), or a larger max_length."
            )


class ModelSide(ABC):
    """The rows of some layers of one model over one part of the texts."""

    def __init__(self, model: Model, examples: Examples, layers: Sequence[int], correspondence: Correspondence) -> None:
        self.model, self.examples, self.layers = model, examples, tuple(layers)
        self._correspondence = correspondence

    @property
    @abstractmethod
    def width(self) -> int:
        """How many columns the rows have."""

    @abstractmethod
    def _reading(self) -> dict[str, Any]:
        """The part of the spec that says how rows are read from the texts."""

    @abstractmethod
    def _read(self) -> tuple[Mapping[int, Tensor] | Representations, np.ndarray, Any]:
        """The rows of every layer, the text of each, and their identity: equal for rows that correspond."""

    def spec(self) -> dict[str, Any]:
        """What determines the rows of each layer: the model, the texts and how they are read."""
        return self._spec

    @cached_property
    def _spec(self) -> dict[str, Any]:  # reading a model's spec hashes its weights, so it is kept
        return {"model": self.model.spec(), "examples": self.examples.spec(), **self._reading()}

    def __getitem__(self, layer: int) -> Tensor:
        return self._rows[0][layer]

    @property
    def texts(self) -> np.ndarray:
        """The text of every row, by its number in the split."""
        return self._rows[1]

    @cached_property
    def _rows(self) -> tuple[Mapping[int, Tensor] | Representations, np.ndarray]:
        """The rows of every layer and the text of each, which correspond to those of the other models."""
        rows, texts, identity = self._read()
        self._correspondence.check(self.model.name, identity)
        return rows, texts


class States(ModelSide):
    """The states of every layer; with `drawn`, a seed and a number, at most that many rows, drawn at random."""

    def __init__(
        self,
        model: Model,
        examples: Examples,
        layers: Sequence[int] | None,
        reading: Reading,
        correspondence: Correspondence,
        drawn: tuple[int, int] | None = None,  # seed, most
    ) -> None:
        super().__init__(model, examples, check_layers(layers, model), correspondence)
        self.reading, self._drawn = reading, drawn

    @property
    def width(self) -> int:
        return self.model.width

    def _reading(self) -> dict[str, Any]:
        drawn = {} if self._drawn is None else {"drawn": list(self._drawn)}
        return {"reading": self.reading.spec(), **drawn}

    def _read(self) -> tuple[Representations, np.ndarray, Any]:
        reading = self.reading
        options: dict[str, Any] = {"pool": reading.pool, "special": reading.special, "max_length": reading.max_length}
        rows = extract(self.model, self.examples, layers=self.layers, **options)
        check_finite(rows)
        identity = [rows.rows.units, *(values.tolist() for values in rows.rows.arrays().values())]
        return rows, rows.rows.row, identity

    def __getitem__(self, layer: int) -> Tensor:
        rows = super().__getitem__(layer)
        return rows if self._drawn is None else rows[self._places]

    @property
    def texts(self) -> np.ndarray:
        texts = super().texts
        return texts if self._drawn is None else texts[self._places.numpy()]

    @cached_property
    def _places(self) -> Tensor:
        """The places of the rows that were drawn."""
        assert self._drawn is not None
        return _draw(len(super().texts), *self._drawn)


class Attention(ModelSide):
    """The attention weights: one row per pair of words (of tokens where the task has no words), one column per head."""

    def __init__(
        self,
        model: Model,
        examples: Examples,
        layers: Sequence[int] | None,
        max_length: int,
        correspondence: Correspondence,
        seed: int,
    ) -> None:
        super().__init__(model, examples, attention_layers(model, layers), correspondence)
        self.attending = AttentionReading("words" if examples.words is not None else "tokens", max_length=max_length)
        self._seed = seed

    @property
    def width(self) -> int:
        return attention_heads(self.model)

    def _reading(self) -> dict[str, Any]:
        return {"attention": self.attending.reading.spec(), "drawn": [self._seed, MOST_ROWS]}

    def _read(self) -> tuple[dict[int, Tensor], np.ndarray, Any]:
        units, max_length = self.attending.pool, self.attending.max_length
        weights = attentions(self.model, self.examples, pool=units, layers=self.layers, max_length=max_length)
        sizes = [text.shape[-1] ** 2 for text in weights[weights.layers[0]]]
        places = _draw(sum(sizes), self._seed, MOST_ROWS)
        rows = {layer: torch.cat([text.flatten(1).T for text in weights[layer]])[places] for layer in weights.layers}
        texts = np.repeat(self.examples.rows, sizes)[places.numpy()]
        return rows, texts, [units if units == "words" else tokenizer_identity(self.model.tokenizer), sizes]


def _draw(count: int, seed: int, most: int) -> Tensor:
    """At most `most` of `count` places, in order; the same ones for every model.

    Rows are thinned out in every text, and each keeps its text's number: few rows of many texts say more than all rows
    of a few, and no text is on both sides of a split.
    """
    return torch.from_numpy(np.sort(np.random.default_rng(seed).permutation(count)[:most]))
