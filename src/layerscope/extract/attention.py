"""Attention weights, for families that can give them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.data import Examples, Task
from layerscope.errors import InputError
from layerscope.extract.attending import Attending, AttentionStreamer, Stack
from layerscope.extract.encode import Item, choices_of, encode, texts_of
from layerscope.extract.forward import Runner
from layerscope.extract.reading import Reading
from layerscope.extract.rows import Rows
from layerscope.extract.run import examples_of
from layerscope.extract.weights import attention_heads, eager, forward
from layerscope.models import Model, load
from layerscope.progress import progress

_WINDOW = 512
_BUDGET = 1 << 26  # attention weights of one layer in a batch: heads x texts x time^2


@dataclass
class AttentionBatch:
    """Texts of like length: layer number 1..L -> (texts, attention heads, time, time), padding included."""

    weights: dict[int, Tensor]
    items: list[Item]
    order: np.ndarray  # the position of each text in the window


class Attentions:
    """Per layer 1..L, one matrix (attention heads, t, t) a text, without padding."""

    def __init__(self, weights: dict[int, list[Tensor]], rows: Rows, model: str) -> None:
        self._weights = weights
        self.rows = rows
        self.layers = sorted(weights)
        self.model = model

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, layer: int) -> list[Tensor]:
        if layer not in self._weights:
            raise InputError(
                f"There are no attention weights of layer {layer!r}; there are those of "
                f"{self.layers[0]}..{self.layers[-1]} (layer l is what block l attends to)."
            )
        return self._weights[layer]

    def __repr__(self) -> str:
        return f"Attentions({self.model}, layers {self.layers[0]}..{self.layers[-1]}, {len(self)} texts)"


def attentions(
    model: str | Path | Model | Any,
    task: str | Task | Any,
    *,
    split: str | None = None,
    layers: Sequence[int] | None = None,
    limit: int | None = None,
    max_length: int = 128,
    pool: str | None = None,
    keep_special: bool = False,
    tokenizer: Any = None,
) -> Attentions:
    """The attention weights of a model over a split: `result[layer]` lists (attention heads, t, t), one a text.

    They are the model's own, between all its tokens, unless `pool` says `words` (summed over attended sub-words,
    averaged over attending ones) or `tokens`: then special tokens are dropped and rows brought back to a sum of one,
    but for `keep_special=True`.
    """
    model = load(model, tokenizer=tokenizer)
    examples = examples_of(task, split, limit)
    if pool is not None:
        return _between_units(
            model, examples, attention_layers(model, layers), Attending(pool, keep_special, max_length)
        )
    of_text, choice = texts_of(examples), choices_of(examples)
    found: dict[int, list[Any]] = {layer: [None] * len(of_text) for layer in attention_layers(model, layers)}
    with progress(f"attention of {model.name} over {examples.task}", len(examples)) as advance:
        start = 0
        for window in range(0, len(examples), _WINDOW):
            part = examples.take(slice(window, window + _WINDOW))
            for batch in attention_batches(model, part, tuple(found), max_length):
                for place, (position, item) in enumerate(zip(batch.order, batch.items, strict=True)):
                    for layer, weights in batch.weights.items():
                        found[layer][start + position] = weights[place, :, : len(item), : len(item)].float().cpu()
            start += len(texts_of(part))
            advance(len(part))
    rows = Rows(examples.task, examples.split, examples.fingerprint, examples.rows[of_text], choice)
    return Attentions(found, rows, model.name)


def _between_units(model: Model, examples: Examples, layers: Sequence[int], attending: Attending) -> Attentions:
    heads, of_text = attention_heads(model), texts_of(examples)
    empty = torch.zeros(heads, 0, 0)  # of a text without a word that is whole
    found = {layer: [empty] * len(of_text) for layer in layers}

    def keep(stack: Stack) -> None:
        whole = stack.weights[0].cpu()
        for place, position in enumerate(stack.positions):
            for layer in layers:
                found[layer][position] = whole[(layer - 1) * heads : layer * heads, place].clone()

    AttentionStreamer([model], attending).feed(examples, keep)
    rows = Rows(examples.task, examples.split, examples.fingerprint, examples.rows[of_text], choices_of(examples))
    return Attentions(found, rows, model.name)


def attention_layers(model: Model, layers: Sequence[int] | None) -> list[int]:
    """The layers 1..L that are wanted; layer 0, the embeddings, attends to nothing."""
    chosen = list(range(1, model.depth + 1)) if layers is None else sorted(set(layers))
    wrong = [layer for layer in chosen if not 1 <= layer <= model.depth]
    if wrong or not chosen:
        raise InputError(f"{model.name} has attention weights of layers 1..{model.depth}, not of {wrong or 'none'}.")
    return chosen


def attention_batches(
    model: Model, examples: Examples, layers: Sequence[int], max_length: int
) -> Iterator[AttentionBatch]:
    """The examples' attention weights in batches of like length, on the model's device."""
    items = encode(model, examples, Reading(pool="tokens", special=True, max_length=max_length))
    lengths = np.asarray([len(item) for item in items])
    runner = Runner(model, None, Reading())
    heads = attention_heads(model)
    waiting = np.argsort(-lengths, kind="stable")
    with eager(model):
        while len(waiting):
            count = max(1, _BUDGET // (heads * int(lengths[waiting[0]]) ** 2))
            chosen, waiting = waiting[:count], waiting[count:]
            batch = [items[i] for i in chosen]
            weights = forward(runner, batch)
            yield AttentionBatch({layer: weights[layer - 1] for layer in layers}, batch, chosen)
