"""What attends to what, in units that models share: words, or the tokens of one tokenizer.

A word's row is the mean over its sub-words that attend; its column the sum over its sub-words that are attended to
(Wu et al. 2020, section 3.4). Tokens that belong to no unit are dropped, and the rows brought back to a sum of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from layerscope.data import Examples
from layerscope.errors import DataError, InputError, choose
from layerscope.extraction.batches import Batches
from layerscope.extraction.encode import encode
from layerscope.extraction.forward import Runner
from layerscope.extraction.items import Item, Items
from layerscope.extraction.loop import Loop, Portions, Window
from layerscope.extraction.packing import Coming, Packed
from layerscope.extraction.reading import Reading
from layerscope.extraction.tally import Tally
from layerscope.extraction.weights import attention_heads, eager, forward
from layerscope.models import Model

UNITS = ("words", "tokens")
_BUDGET = {"cpu": 1 << 24, "cuda": 1 << 27}  # attention weights of all models and layers in a stack
_AFTER = 1 << 30  # the number of the first special token behind the words


@dataclass(frozen=True)
class Attending:
    """How texts are read for attention: units, whether special tokens stay, and the longest text in tokens."""

    pool: str = "words"
    special: bool = False
    max_length: int = 128

    def __post_init__(self) -> None:
        choose("unit of attention (pool)", self.pool, UNITS)

    @property
    def reading(self) -> Reading:
        """The same as the options of an extraction."""
        special = self.special and self.pool == "tokens"
        subword = "mean" if self.pool == "words" else "last"
        return Reading(self.pool, subword=subword, special=special, max_length=self.max_length)


@dataclass
class Stack:
    """Texts of t units each: for each model (layers x attention heads, texts, t, t), float32 on its device."""

    weights: list[Tensor]
    texts: np.ndarray  # the number of each text in its split
    positions: np.ndarray  # the place of each text (or choice of it) among all that were fed


@dataclass
class AttentionStreamer:
    """Several models over the same texts: every stack holds all layers of all models."""

    models: Sequence[Model]
    attending: Attending
    _runners: list[Runner] = field(init=False)

    def __post_init__(self) -> None:
        self._runners = [Runner(model, None, Reading()) for model in self.models]
        budget = min(_BUDGET.get(m.device.type, 1 << 24) for m in self.models)
        self._loop = Loop(self.models, self.attending.reading, Batches(budget))

    def feed(self, examples: Examples, update: Callable[[Stack], None]) -> Tally:
        """Every text goes through every model once; stacks of equal length go to `update`.

        Returns how many texts were cut off, and how many words were left out.
        """
        tally = Tally()
        title = "attention of " + " + ".join(model.name for model in self.models)
        with ExitStack() as plain:
            for model, runner in zip(self.models, self._runners, strict=True):
                plain.enter_context(eager(model))
                plain.enter_context(runner.prepared())
            waiting: Coming | None = None  # of the window before: read when this one is under way
            for window, advance in self._loop.each_window(examples, title):
                sums = []
                for places, weights in self._loop.through(window, self._run, self._portions, advance, self._prepare):
                    sums.append(torch.stack([part.sum().to(weights[0].device) for part in weights]))
                    rows = window.examples.rows[window.text[places]]
                    update(Stack(weights, rows, window.start + places))
                tally.add(window.tally)
                self._check_finite(waiting)
                waiting = Coming(torch.stack(sums).isfinite().all(dim=0)) if sums else None
            self._check_finite(waiting)
        return tally

    def _check_finite(self, finite: Coming | None) -> None:
        """Whether what the weights of each model add up to is finite, of a window: a NaN is never lost in a sum."""
        for model, is_finite in zip(self.models, () if finite is None else finite.numpy(), strict=False):
            if not is_finite:
                raise DataError(
                    f"{model.name} gives attention weights that are not finite; the weights are broken or the float "
                    "type is too small for them."
                )

    def is_causal(self, source: int, examples: Examples) -> bool:
        """Whether a model never attends to what comes later: seen on the longest text, not believed."""
        model = self.models[source]
        longest = int(np.argmax([len(text) for text in examples.texts]))
        items = encode(model, examples.take([longest]), self.attending.reading).at([0])
        with eager(model):
            weights = forward(self._runners[source], items)
        return not any(bool(w.float().triu(1).any()) for w in weights)

    def _portions(self, window: Window) -> Portions:
        """Only texts with the same number of units go together; a text without any is left out."""
        if self.attending.special and self.attending.pool == "words":
            per_text = [self._with_special(items) for items in zip(*window.items, strict=True)]
            window.items = [Items.of(items) for items in zip(*per_text, strict=True)]
        tokens = np.asarray([items.lengths for items in window.items])  # (models, texts)
        heads = np.asarray([m.depth * attention_heads(m) for m in self.models])
        return heads @ tokens**2, window.items[0].rows

    def _with_special(self, items: Sequence[Item]) -> Sequence[Item]:
        """Special tokens as units of their own, if every model has as many of them before and after the words."""
        for item in items:
            add_special(item)
        units = items[0].unit
        for model, item in zip(self.models, items, strict=True):
            if not np.array_equal(units, item.unit):
                raise InputError(
                    f"special=True needs models with the same special tokens around a text, and {model.name} has "
                    f"others than {self.models[0].name}; leave special tokens out to compare these two."
                )
        return items

    def _prepare(self, window: Window, places: np.ndarray) -> list[tuple[Packed, int]]:
        """For each model the batch, and how many units each of its texts has."""
        return [
            (runner.pack(items, {"members": members_of(items)}), int(items.rows[0]))
            for runner, items in zip(self._runners, window.chosen(places), strict=True)
        ]

    def _run(self, ready: Sequence[tuple[Packed, int]]) -> list[Tensor]:
        per_model = []
        for model, runner, (packed, count) in zip(self.models, self._runners, ready, strict=True):
            heads, inputs = attention_heads(model), packed.on_device()
            members, texts = inputs.pop("members").float(), len(inputs["input_ids"])
            whole = torch.empty(model.depth * heads, texts, count, count, device=model.device)
            for block, weights in enumerate(forward(runner, inputs)):
                part = between_units(weights.float(), members.to(weights.device))
                whole[block * heads : (block + 1) * heads] = part.transpose(0, 1)
            per_model.append(whole)
        return per_model


def add_special(item: Item) -> None:
    """Make every special token a unit: ..., -2, -1 before the words, large numbers after them."""
    positions = np.flatnonzero(item.special)
    if not len(positions):
        return
    first = int(np.argmin(item.special))  # the first token that is none
    before = int((positions < first).sum())
    numbers = np.concatenate([np.arange(-before, 0), _AFTER + np.arange(len(positions) - before)])
    units = np.concatenate([item.unit[item.segment], numbers])
    item.take = np.concatenate([item.take, positions])
    item.unit, item.segment = np.unique(units, return_inverse=True)


def members_of(items: Items) -> np.ndarray:
    """(texts, units, time): 1 where a token is part of a unit; all items have the same number of units."""
    members = np.zeros((len(items), int(items.rows[0]), int(items.lengths.max())), np.int64)
    members[items.owner, items.segment, items.take] = 1
    return members


def between_units(weights: Tensor, members: Tensor) -> Tensor:
    """(texts, heads, units, units) from (texts, heads, time, time): sum over attended tokens, mean over attending ones.

    What goes to tokens of no unit is dropped and the row divided by what is left; a row with nothing left stays 0.
    """
    texts, heads, time, _ = weights.shape
    units = members.shape[1]
    attended = weights.reshape(texts, heads * time, time) @ members.transpose(1, 2)
    attended = attended.view(texts, heads, time, units).transpose(1, 2).reshape(texts, time, heads * units)
    means = members / members.sum(dim=2, keepdim=True)
    between = (means @ attended).view(texts, units, heads, units).transpose(1, 2)
    return normalised(between)


def normalised(rows: Tensor) -> Tensor:
    """Rows over their sums; rows of zeros stay so."""
    total = rows.sum(dim=-1, keepdim=True)
    return rows / torch.where(total > 0, total, torch.ones_like(total))
