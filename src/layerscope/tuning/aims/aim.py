"""What every kind of healing owes: rows, a module that gives the loss, and what the answers are worth."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from layerscope.data import Examples
from layerscope.errors import InputError, ModelError
from layerscope.evaluation.score import Score
from layerscope.extraction.items import Item, Items
from layerscope.extraction.loop import Encoder
from layerscope.extraction.reading import Reading
from layerscope.models import Model
from layerscope.models.anatomy import evaluating
from layerscope.models.identity import tokenizer_identity
from layerscope.models.replay import caches_off
from layerscope.tuning.freezing import Prefixed
from layerscope.tuning.gains import Gain
from layerscope.tuning.rows import ItemRows

LOST = "lost"  # what a module gives beside its answers: (rows,) the loss that decides what is kept


@dataclass(frozen=True)
class Teaching:
    """Whose answers are learned from beside the data's, and how much they count."""

    teacher: Model | None = None
    mix: float = 0.5  # the teacher's share of the loss
    kept: int | None = None  # so many of its likeliest outputs are kept; None: it answers anew in every step
    distance: str = "cosine"  # of embeddings: cosine or mse

    def spec(self) -> dict[str, Any]:
        """What decides it, for keys of the store."""
        if self.teacher is None:
            return {}
        return {"teacher": self.teacher.spec(), "mix": self.mix, "kept": self.kept, "distance": self.distance}


@dataclass(frozen=True)
class Part:
    """Rows that are learned from, or scored: what makes items of them, and the items."""

    examples: Examples
    encoder: Encoder
    reading: Reading
    items: Items
    counts: Sequence[int] | None = None  # items of each row, where they have choices


@dataclass(eq=False)
class Aim(ABC):
    """A cut model, the rows that it learns from and those that are scored, and a teacher if there is one."""

    model: Model
    learned: Part
    scored: Part
    teaching: Teaching
    rows_are: ClassVar[str] = "texts"
    one_length: ClassVar[bool] = False  # whether rows are of about one length, one item each, padded on the right

    @property
    @abstractmethod
    def metric(self) -> str:
        """What its scores are."""

    @property
    def majority(self) -> float:
        """The score of always giving the most frequent class; NaN where there are no classes."""
        return float("nan")

    def spec(self) -> dict[str, Any]:
        """What decides it besides the lesson, for keys of the store."""
        return {"by": type(self).__name__, **self.teaching.spec(), **self.settings()}

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What decides the items, for keys of the store."""

    def rows(self, part: Part, **kept: Any) -> ItemRows:
        """The rows for the Trainer; their labels are their numbers. `kept`: what is known of their frozen states."""
        return ItemRows(part.items, part.counts, None, **kept)

    @abstractmethod
    def module(self, tuned: Model, frozen: int, trains_embeddings: bool) -> Prefixed:
        """The network under training, which gives the loss of a batch."""

    @abstractmethod
    def collate(self, tuned: Model) -> Callable[[Sequence[dict[str, Any]]], dict[str, Tensor]]:
        """What makes batches of rows."""

    @abstractmethod
    def metrics(self, prediction: Any) -> dict[str, float]:
        """`score` and `held_out`, the loss that decides what is kept, of the Trainer's predictions."""

    @abstractmethod
    def answers(self, model: Model, count: int | None = None) -> np.ndarray:
        """A model's answers to the scored rows, or to the first ones, in full precision."""

    @abstractmethod
    def score(self, model: Model, answers: np.ndarray) -> Score:
        """What answers to all scored rows are worth."""

    @abstractmethod
    def gain(self, before: np.ndarray, after: np.ndarray) -> Gain:
        """How much better the answers `after` are than `before`, both to all scored rows, and how sure that is."""

    def told(self) -> dict[str, Any]:
        """What else is to be said of the healing."""
        return {}


def whole(part: Part) -> Encoder:
    """What makes the items of a part, with every token as a row: for the output of frozen blocks."""

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
    """Raise unless a teacher reads the same tokens and gives the same outputs."""
    if teacher.head != model.head:
        raise InputError(
            f"{teacher.name} ({type(teacher.network).__name__}) cannot teach {model.name} "
            f"({type(model.network).__name__}): their heads answer different questions."
        )
    if tokenizer_identity(teacher.require_tokenizer()) != tokenizer_identity(model.require_tokenizer()):
        raise InputError(
            f"{teacher.name} cannot teach {model.name}: their tokenizers differ, so their answers are to other tokens."
        )
    outputs = [_outputs(each) for each in (model, teacher)]
    if outputs[0] != outputs[1]:
        raise InputError(
            f"{teacher.name} cannot teach {model.name}: it has {outputs[1]} outputs, and {model.name} has {outputs[0]}."
        )
    if teacher.device.type != model.device.type:
        raise ModelError(f"{teacher.name} is on {teacher.device} and {model.name} on {model.device}; move one of them.")


def _outputs(model: Model) -> int:
    config = model.network.config
    if model.head in ("classes", "tags"):
        return int(config.num_labels)
    return model.width if model.head == "none" else 0 if model.head == "choices" else int(config.vocab_size)


def mean_loss(losses: np.ndarray) -> float:
    """The mean loss over rows."""
    return float(np.asarray(losses, dtype=float).mean())
