"""The base of every healing objective: its rows, the module that gives the loss, and the score of its answers.

A gain is how much better a healed model is than another one. Both are scored on the same held-out rows, so what counts
is the spread of the differences, row by row, not that of either score. The interval is that of `paired_interval`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from layerscope.cutting.selection_test import Changes, paired_change, paired_interval
from layerscope.data import Examples
from layerscope.errors import InputError, ModelError
from layerscope.evaluation.evaluator import Evaluator
from layerscope.evaluation.score import Score
from layerscope.extraction.items import Item, Items
from layerscope.extraction.loop import Encoder
from layerscope.extraction.pooling import Reading
from layerscope.models import Model
from layerscope.models.architecture import evaluating
from layerscope.models.fingerprint import tokenizer_identity
from layerscope.models.heads import output_count
from layerscope.models.replay import caches_off
from layerscope.tuning.frozen_cache import PrefixedNetwork
from layerscope.tuning.trainer import ItemRows


@dataclass(frozen=True)
class Gain:
    """How much better one model scores than another, in units of the metric; an end that nothing bounds is infinite."""

    value: float
    low: float
    high: float

    @property
    def sure(self) -> bool:
        """Whether the interval tells which of the two is better."""
        return self.low > 0 or self.high < 0

    def spec(self) -> dict[str, Any]:
        """Return the gain in a form for JSON, which has no infinity."""
        return {name: value if math.isfinite(value) else None for name, value in asdict(self).items()}

    @staticmethod
    def from_spec(value: dict[str, Any]) -> Gain:
        """Return the gain that `spec` described."""
        ends = {"value": math.nan, "low": -math.inf, "high": math.inf}
        return Gain(**{name: default if value.get(name) is None else value[name] for name, default in ends.items()})


UNKNOWN = Gain(math.nan, math.nan, math.nan)


def gain_of(forth: Changes, back: Changes, in_metric: Callable[[float], float] = float) -> Gain:
    """Return the gain of the changes `forth`; those of the other model over the first, `back`, give the upper end.

    `in_metric` turns a change into units of the metric.
    """
    return Gain(*paired_interval(forth, back, in_metric))


def gain_between(evaluator: Evaluator, before: np.ndarray, after: np.ndarray, rows: np.ndarray | None = None) -> Gain:
    """Return how much better the answers `after` score than `before`, on some rows of an evaluator or on all."""
    return Gain(*paired_change(evaluator, before, after, rows))


LOST = "lost"  # what a module gives beside its answers: (rows,) the loss that decides what is kept


@dataclass(frozen=True)
class Distillation:
    """The teacher whose answers are learned from beside the data's, and how much they count."""

    teacher: Model | None = None
    mix: float = 0.5  # the teacher's share of the loss
    keep: int | None = None  # so many of its likeliest outputs are kept; None: it answers anew in every step
    distance: str = "cosine"  # of embeddings: cosine or mse

    def spec(self) -> dict[str, Any]:
        """What decides it, for keys of the store."""
        if self.teacher is None:
            return {}
        return {"teacher": self.teacher.spec(), "mix": self.mix, "kept": self.keep, "distance": self.distance}


@dataclass(frozen=True)
class Part:
    """Rows that are learned from, or scored: their items, and the encoder that makes these."""

    examples: Examples
    encoder: Encoder
    reading: Reading
    items: Items
    counts: Sequence[int] | None = None  # items of each row, where they have choices


@dataclass(eq=False)
class Objective(ABC):
    """A cut model, the rows that it learns from and those that are scored, and a teacher if there is one."""

    model: Model
    learned: Part
    scored: Part
    distillation: Distillation
    key: ClassVar[str]  # its name in keys of the store; it never changes, so that stored healings stay valid
    rows_are: ClassVar[str] = "texts"
    by_token: ClassVar[bool] = False  # whether it is made of two token evaluators, for heads that answer token by token
    needs_teacher: ClassVar[bool] = False  # whether a teacher alone says what is right, so that any texts do
    one_length: ClassVar[bool] = False  # whether rows are of about one length, one item each, padded on the right

    @property
    @abstractmethod
    def metric(self) -> str:
        """The name of its metric."""

    @property
    def majority(self) -> float:
        """The score of always giving the most frequent class; NaN where there are no classes."""
        return float("nan")

    def spec(self) -> dict[str, Any]:
        """Return what decides it besides the training data, for keys of the store."""
        return {"by": self.key, **self.distillation.spec(), **self.settings()}

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return what decides the items, for keys of the store."""

    def rows(self, part: Part, **kept: Any) -> ItemRows:
        """Return the rows for the Trainer; their labels are their numbers. `kept` locates their frozen states."""
        return ItemRows(part.items, part.counts, None, **kept)

    @abstractmethod
    def module(self, tuned: Model, frozen: int, trains_embeddings: bool) -> PrefixedNetwork:
        """Return the network under training, which gives the loss of a batch."""

    @abstractmethod
    def collate(self, tuned: Model) -> Callable[[Sequence[dict[str, Any]]], dict[str, Tensor]]:
        """Return the function that makes batches of rows."""

    @abstractmethod
    def metrics(self, prediction: Any) -> dict[str, float]:
        """Return `score` and `held_out`, the loss that decides which weights are kept, of the Trainer's predictions."""

    @abstractmethod
    def answers(self, model: Model, count: int | None = None) -> np.ndarray:
        """Return a model's answers to the scored rows, or to the first ones, in full precision."""

    @abstractmethod
    def score(self, model: Model, answers: np.ndarray) -> Score:
        """Return the score of answers to all scored rows."""

    @abstractmethod
    def gain(self, before: np.ndarray, after: np.ndarray) -> Gain:
        """Return how much better the answers `after` are than `before`, both to all scored rows, with its interval."""

    def resampled(self) -> str:
        """Return what intervals of held-out rows are over where that is not texts, and why; else nothing."""
        return ""

    def extra_results(self) -> dict[str, Any]:
        """Return what else `training.json` says of the healing."""
        return {}


def whole(part: Part) -> Encoder:
    """Return an encoder that makes the items of a part with every token as a row: for the output of frozen blocks."""

    def encoded(model: Model, examples: Examples, _: Reading) -> list[Item]:
        items = []
        for item in part.encoder(model, examples, part.reading):
            every = np.arange(len(item))
            items.append(Item(item.ids, item.types, every, every, every, item.truncated, item.special))
        return items

    return encoded


class Teacher:
    """A model that only answers: no gradients, no dropout, no caches."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def __call__(self, run: Callable[[Any], Any]) -> Any:
        network = self.model.network
        quiet = evaluating(network) if network.training else nullcontext()
        with torch.no_grad(), quiet, caches_off(network):
            return run(network)


def check_teacher(model: Model, teacher: Model) -> None:
    """Raise InputError unless a teacher reads the same tokens and gives the same outputs on such a device."""
    if teacher.head != model.head:
        raise InputError(
            f"{teacher.name} ({type(teacher.network).__name__}) cannot teach {model.name} "
            f"({type(model.network).__name__}): their heads answer different questions."
        )
    if tokenizer_identity(teacher.require_tokenizer()) != tokenizer_identity(model.require_tokenizer()):
        raise InputError(
            f"{teacher.name} cannot teach {model.name}: their tokenizers differ, so their answers are to other tokens."
        )
    outputs = [output_count(each) for each in (model, teacher)]
    if outputs[0] != outputs[1]:
        raise InputError(
            f"{teacher.name} cannot teach {model.name}: it has {outputs[1]} outputs, and {model.name} has {outputs[0]}."
        )
    if teacher.device.type != model.device.type:
        raise ModelError(f"{teacher.name} is on {teacher.device} and {model.name} on {model.device}; move one of them.")


def mean_loss(losses: np.ndarray) -> float:
    """Return the mean loss over rows."""
    return float(np.asarray(losses, dtype=float).mean())
