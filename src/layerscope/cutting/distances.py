"""How far the layers of a model lie from one another, token by token: what rules of cutting go by.

The texts are those of an exam, read as the exam reads them, so that windows of running text, both texts of a pair and
all choices count. Tokens that the tokenizer adds (separators, a first token) and padding do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from layerscope.errors import DataError
from layerscope.evaluation.sitting import Sitting
from layerscope.extraction.encode import Item
from layerscope.models import Replay
from layerscope.store import Artifact

_NUMBERS = 1 << 22  # of states that are compared at once
_FILE = "distances.safetensors"


@dataclass(frozen=True)
class LayerDistances:
    """Means over tokens, for every two of the layers 0..L: of the cosine, and of arccos(cosine) / pi."""

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
        layers = self.exam.model.depth + 1
        sums, tokens = torch.zeros(2, layers, layers, dtype=torch.float64), 0
        for part, count in self.exam.over_batches(self._batch, f"distances of {self.exam.model.name}"):
            sums, tokens = sums + part.double().cpu(), tokens + count
        if not tokens:
            raise DataError(f"{self.exam.examples.task} has no token to compare layers by among the texts that choose.")
        cosine, angular = sums / tokens
        save_file(
            {"cosine": cosine.contiguous(), "angular": angular.contiguous(), "tokens": torch.tensor(tokens)},
            folder / _FILE,
        )

    def measured(self) -> LayerDistances:
        """The distances, from the store if they are there."""
        found = load_file(self.produce() / _FILE)
        return LayerDistances(found["cosine"].numpy(), found["angular"].numpy(), int(found["tokens"]))

    def _batch(self, items: Sequence[Item], inputs: dict[str, Tensor]) -> tuple[Tensor, int]:
        states = Replay(self.exam.subject, inputs).states
        time = states[0].shape[1]
        at = torch.from_numpy(text_tokens(items, time, self.exam.padding_left)).to(states[0].device)
        layers, width = len(states), states[0].shape[-1]
        sums = torch.zeros(2, layers, layers, dtype=torch.float64)
        for part in at.split(max(1, _NUMBERS // (layers * width))):
            rows = torch.stack([state.to(at.device).flatten(0, 1)[part] for state in states], dim=1)
            sums += summed(rows).cpu()
        return sums, len(at)


def text_tokens(items: Sequence[Item], time: int, padding_left: bool) -> np.ndarray:
    """Where the tokens of the texts themselves stand in a padded batch that is read row by row."""
    places = []
    for row, item in enumerate(items):
        own = np.arange(len(item))
        if len(item.special) == len(item):
            own = own[~np.asarray(item.special, dtype=bool)]
        places.append(row * time + (time - len(item) if padding_left else 0) + own)
    return np.concatenate(places)


def summed(rows: Tensor) -> Tensor:
    """(tokens, layers, width) -> (2, layers, layers): the cosines and the angles over pi, summed over tokens.

    In float64, since the angle of two directions that are close is a root of what a product rounds off.
    """
    precise = torch.float32 if rows.device.type == "mps" else torch.float64
    units = torch.nn.functional.normalize(rows.to(precise), dim=-1)
    cosines = (units @ units.transpose(1, 2)).clamp(-1, 1)
    return torch.stack([cosines.sum(dim=0), cosines.arccos().sum(dim=0) / math.pi])
