"""The search for plans: the rules that propose them, and what a rule may look at.

A rule knows the model's depth, how many blocks are to go, and the texts that choose. Some rules go by how far the
layers lie from one another, token by token. The texts are read as the evaluator reads them, so that windows of running
text, both texts of a pair and all choices count; tokens that the tokenizer adds (separators, a first token) and padding
do not.

Each rule is a file of `cutting/rules/`.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from layerscope import metrics
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.sweep import sweep
from layerscope.errors import InputError, choose
from layerscope.evaluation.evaluator import Evaluator
from layerscope.extraction.items import Items
from layerscope.models import Replay
from layerscope.registry import RULES
from layerscope.similarity.registry import Undefined, measure
from layerscope.similarity.row_means import RowSums
from layerscope.store import Artifact

_MEASURES = ("cosine", "angular")
_FILE = "distances.safetensors"


@dataclass(frozen=True)
class LayerDistances:
    """Means over tokens, for every two of the layers 0..L: of the cosine, and of arccos(cosine) / pi.

    They are NaN where layers have different widths, or a token has no direction in one of them.
    """

    cosine: np.ndarray
    angular: np.ndarray
    tokens: int

    @property
    def influence(self) -> np.ndarray:
        """(L,) 1 - the cosine of each block's input and output."""
        return 1 - np.diagonal(self.cosine, offset=1)


class Distances(Artifact):
    """The distances of a model's layers over the rows of an evaluator, made by one forward."""

    kind = "distances"
    version = 1

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator

    def spec(self) -> dict[str, Any]:
        return self.evaluator.spec()

    def build(self, folder: Path) -> None:
        evaluator, measures = self.evaluator, [measure(name) for name in _MEASURES]

        def of_batch(items: Items, inputs: dict[str, Tensor]) -> RowSums:
            states = Replay(evaluator.subject, inputs).states
            layers = range(len(states))
            part = RowSums(measures, [state.shape[-1] for state in states], layers, layers, evaluator.model.device)
            at = torch.from_numpy(text_tokens(items, states[0].shape[1], evaluator.padding_left))
            part.update([state.flatten(0, 1)[at.to(state.device)] for state in states])
            return part

        sums = reduce(RowSums.merge, evaluator.over_batches(of_batch, f"distances of {evaluator.model.name}"))
        tables = {name: torch.from_numpy(_table(sums, name)) for name in _MEASURES}
        save_file({**tables, "tokens": torch.tensor(sums.n)}, folder / _FILE)

    def measured(self) -> LayerDistances:
        """Return the distances, from the store if they are there."""
        tensors = load_file(self.produce() / _FILE)
        return LayerDistances(tensors["cosine"].numpy(), tensors["angular"].numpy(), int(tensors["tokens"]))


def text_tokens(items: Items, time: int, padding_left: bool) -> np.ndarray:
    """Return where the tokens of the texts themselves stand in a padded batch that is flattened row by row."""
    places = []
    for row, item in enumerate(items):
        tokens = np.arange(len(item))
        if len(item.special) == len(item):
            tokens = tokens[~np.asarray(item.special, dtype=bool)]
        places.append(row * time + (time - len(item) if padding_left else 0) + tokens)
    return np.concatenate(places)


def _table(sums: RowSums, name: str) -> np.ndarray:
    """Return (layers, layers) means over tokens; NaN where a token has no direction, or widths differ."""
    values = np.full((len(sums.rows), len(sums.columns)), np.nan)
    for i, j in np.ndindex(values.shape):
        with suppress(Undefined):
            values[i, j] = sums.value(name, i, j)
    return values


SHALLOW = 12  # blocks; up to here every size is tried
_SIZES = 8  # of deeper models, from one block to half of them
EVALUATIONS = 256  # of each rule that searches, at most


@dataclass(frozen=True)
class Search:
    """A search for blocks that can go. Scores and distances are of the rows that choose, never of others."""

    evaluator: Evaluator
    rows: np.ndarray
    sizes: tuple[int, ...]  # how many blocks the plans leave out, in order
    max_span: int | None = None
    max_evaluations: int = EVALUATIONS
    seed: int = 0

    @property
    def depth(self) -> int:
        """The number of the model's blocks."""
        return self.evaluator.model.depth

    @property
    def lengths(self) -> tuple[int, ...]:
        """The sizes that a skipped span may have."""
        return tuple(size for size in self.sizes if self.max_span is None or size <= self.max_span)

    def without(self, blocks: Iterable[int]) -> LayerPlan:
        """Return the plan that leaves these blocks out."""
        gone = set(blocks)
        return LayerPlan([block for block in range(1, self.depth + 1) if block not in gone])

    @cached_property
    def distances(self) -> LayerDistances:
        """The distances of the layers, over the tokens of the rows that choose."""
        return Distances(self._part).measured()

    def worths(self, plans: Sequence[LayerPlan], title: str) -> list[float]:
        """Return the score of each plan on the rows that choose, with its sign turned so that more is better.

        A plan is evaluated once, however many rules and steps of a search ask for it.
        """
        evaluator = self.evaluator
        new = [plan for plan in dict.fromkeys(plans) if plan not in self._worths]
        if new:
            part = sweep(self._part, new, title, note=False)
            answers = np.zeros((len(evaluator.examples), part.shape[-1]), part.dtype)
            for plan, logits in zip(new, part, strict=True):
                answers[self.rows] = logits
                self._worths[plan] = metrics.upward(evaluator.metric, evaluator.value(answers, self.rows))
        return [self._worths[plan] for plan in plans]

    @cached_property
    def _worths(self) -> dict[LayerPlan, float]:
        """The scores so far."""
        return {}

    @cached_property
    def _part(self) -> Evaluator:
        """The evaluator on the rows that choose alone, for its answers; scores are made by the whole one."""
        part = copy.copy(self.evaluator)
        part.examples = self.evaluator.examples.take(self.rows)
        return part


def usual_sizes(depth: int) -> tuple[int, ...]:
    """Return how many blocks may go: any number, or, of a deep model, some numbers up to half of them."""
    if depth <= SHALLOW:
        return tuple(range(1, depth))
    return tuple(sorted({round(size) for size in np.geomspace(1, depth // 2, _SIZES)}))


def checked_sizes(remove: int | Sequence[int], depth: int) -> tuple[int, ...]:
    """Return the numbers of blocks that are to go, sorted; raise InputError where they are not possible."""
    sizes = tuple(remove) if isinstance(remove, Iterable) else (remove,)
    if not sizes or any(isinstance(size, bool) or not hasattr(size, "__index__") for size in sizes):
        raise InputError(f"remove is {remove!r}; how many blocks go is a whole number, or several: [1, 2, 4].")
    for size in sizes:
        if not 1 <= size < depth:
            raise InputError(f"{size} blocks were to go; this model has {depth}, so 1..{depth - 1} of them can.")
    return tuple(sorted({int(size) for size in sizes}))


class Rule(ABC):
    """A way to propose plans. It may look at the texts that choose, through its `Search`, and at no others."""

    name: ClassVar[str]
    source: ClassVar[str] = ""
    looks: ClassVar[bool] = False  # whether the plans depend on texts
    begins_with: ClassVar[type[Rule] | None] = None  # the rule whose search it goes on from, which is done once

    @classmethod
    def usual(cls, depth: int, max_span: int | None) -> bool:
        """Return whether it is tried on a model of this depth without being named."""
        return True

    @abstractmethod
    def plans(self, search: Search) -> list[LayerPlan]:
        """Return the plans that it proposes, each once."""

    # The rest estimates the work beforehand.

    def stand_ins(self, search: Search) -> list[LayerPlan]:
        """Return plans that take about as long as those that it will propose, or these where it looks at nothing."""
        if not self.looks:
            return self.plans(search)
        firsts = [((search.depth - size) // 2 + 1, size) for size in search.sizes]  # spans in the middle
        return [LayerPlan.skipped(search.depth, first, first + size - 1) for first, size in firsts]

    def evaluations(self, search: Search) -> int:
        """Return how many plans it evaluates on the texts that choose, at most, without the rule it begins with."""
        return 0

    def block_runs(self, search: Search) -> int:
        """Return how many blocks it runs for each text that chooses, at most, without the rule it begins with."""
        return search.depth if self.looks else 0


def chosen_rules(asked: str | Sequence[str] | None, depth: int, max_span: int | None = None) -> list[Rule]:
    """Return the rules of some names, or those that fit a model of this depth."""
    if asked is None:
        return [rule() for rule in RULES.values() if rule.usual(depth, max_span)]
    names = [name.strip() for name in asked.split(",")] if isinstance(asked, str) else list(asked)
    if not names:
        raise InputError(f"rules is empty; name some of {', '.join(RULES)}, or leave it out.")
    return [RULES[choose("rule", name, RULES)]() for name in dict.fromkeys(names)]
