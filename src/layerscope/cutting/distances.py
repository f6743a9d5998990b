"""How far the layers of a model lie from one another, token by token: what rules of cutting go by.

The texts are those of an exam, read as the exam reads them, so that windows of running text, both texts of a pair and
all choices count. Tokens that the tokenizer adds (separators, a first token) and padding do not.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from layerscope.evaluation.sitting import Sitting
from layerscope.extraction.items import Items
from layerscope.models import Replay
from layerscope.similarity.registry import Undefined, measure
from layerscope.similarity.row_sums import RowSums
from layerscope.store import Artifact

_MEASURES = ("cosine", "angular")
_FILE = "distances.safetensors"


@dataclass(frozen=True)
class LayerDistances:
    """Means over tokens, for every two of the layers 0..L: of the cosine, and of arccos(cosine) / pi.

    NaN where layers have different widths, or a token has no direction in one of them.
    """

    cosine: np.ndarray
    angular: np.ndarray
    tokens: int

    @property
    def influence(self) -> np.ndarray:
        """(L,) 1 - the cosine of each block's input and output."""
        return 1 - np.diagonal(self.cosine, offset=1)


class Distances(Artifact):
    """The distances of a model's layers over the rows of an exam: one forward."""

    kind = "distances"
    version = 1

    def __init__(self, exam: Sitting) -> None:
        self.exam = exam

    def spec(self) -> dict[str, Any]:
        return self.exam.spec()

    def build(self, folder: Path) -> None:
        exam, measures = self.exam, [measure(name) for name in _MEASURES]

        def of_batch(items: Items, inputs: dict[str, Tensor]) -> RowSums:
            states = Replay(exam.subject, inputs).states
            layers = range(len(states))
            part = RowSums(measures, [state.shape[-1] for state in states], layers, layers, exam.model.device)
            at = torch.from_numpy(text_tokens(items, states[0].shape[1], exam.padding_left))
            part.update([state.flatten(0, 1)[at.to(state.device)] for state in states])
            return part

        sums = reduce(RowSums.merge, exam.over_batches(of_batch, f"distances of {exam.model.name}"))
        tables = {name: torch.from_numpy(_table(sums, name)) for name in _MEASURES}
        save_file({**tables, "tokens": torch.tensor(sums.n)}, folder / _FILE)

    def measured(self) -> LayerDistances:
        """The distances, from the store if they are there."""
        tensors = load_file(self.produce() / _FILE)
        return LayerDistances(tensors["cosine"].numpy(), tensors["angular"].numpy(), int(tensors["tokens"]))


def text_tokens(items: Items, time: int, padding_left: bool) -> np.ndarray:
    """Where the tokens of the texts themselves stand in a padded batch that is read row by row."""
    places = []
    for row, item in enumerate(items):
        own = np.arange(len(item))
        if len(item.special) == len(item):
            own = own[~np.asarray(item.special, dtype=bool)]
        places.append(row * time + (time - len(item) if padding_left else 0) + own)
    return np.concatenate(places)


def _table(sums: RowSums, name: str) -> np.ndarray:
    """(layers, layers) means over tokens; NaN where a token has no direction, or layers have different widths."""
    values = np.full((len(sums.rows), len(sums.columns)), np.nan)
    for i, j in np.ndindex(values.shape):
        with suppress(Undefined):
            values[i, j] = sums.value(name, i, j)
    return values
