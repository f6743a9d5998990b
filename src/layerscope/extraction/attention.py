"""Attention weights, for families that can give them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.data import Examples, Task
from layerscope.errors import InputError
from layerscope.extraction.attending import Attending, AttentionStreamer, Stack
from layerscope.extraction.batches import Batches
from layerscope.extraction.encode import choices_of, texts_of
from layerscope.extraction.extracting import examples_of
from layerscope.extraction.forward import Runner
from layerscope.extraction.loop import Loop, Portions, Window
from layerscope.extraction.packing import Packed
from layerscope.extraction.reading import Reading
from layerscope.extraction.rows import Rows
from layerscope.extraction.weights import attention_heads, eager, forward
from layerscope.models import Model, load

_BUDGET = 1 << 26  # attention weights of one layer in a batch: heads x texts x time^2


class Attentions:
    """Per layer 1..L, one matrix (attention heads, t, t) for each text, without padding.

    Attributes:
        layers: The layers that there are; layer l is what block l attends to.
        rows: The identity of each text.
        model: The model's name.

    Example:
        >>> import layerscope as ls
        >>> weights = ls.attentions("garden:bert-s0", "pydocs", limit=3, max_length=16)
        >>> len(weights), len(weights[1]), weights[1][0].ndim
        (3, 3, 3)
    """

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
    special: bool = False,
    tokenizer: Any = None,
) -> Attentions:
    """Run a model over a split and keep its attention weights.

    They are the model's own, between all its tokens, unless `pool` says otherwise: then special tokens are dropped and
    rows are brought back to a sum of one.

    Args:
        model: A model whose family gives its attention weights.
        task: The texts.
        split: The split; `validation` where there is one.
        layers: Which layers 1..L; all of them if not given.
        limit: Use only the first N examples.
        max_length: The longest text in tokens; the rest is cut off.
        pool: `words` (summed over attended sub-words, averaged over attending ones) or `tokens`.
        special: With a pool: keep special tokens.
        tokenizer: The tokenizer, where the model does not carry its own.

    Returns:
        The `Attentions`: `result[layer]` lists one tensor (attention heads, t, t) per text.

    Example:
        >>> import layerscope as ls
        >>> weights = ls.attentions("garden:bert-s0", "pydocs", limit=2, max_length=16)
        >>> heads, attending, attended = weights[1][0].shape
        >>> attending == attended, round(float(weights[1][0][0, 0].sum()), 4)
        (True, 1.0)
    """
    model = load(model, tokenizer=tokenizer)
    model.require_blocks("attention")
    examples = examples_of(task, split, limit)
    if pool == "words":
        examples = examples.in_words()
    chosen = attention_layers(model, layers)
    if pool is None:
        weights = _of_tokens(model, examples, chosen, max_length)
    else:
        weights = _between_units(model, examples, chosen, Attending(pool, special, max_length))
    texts = examples.rows[texts_of(examples)]
    rows = Rows(examples.task, examples.split, examples.fingerprint, texts, choices_of(examples))
    return Attentions(weights, rows, model.name)


def _of_tokens(model: Model, examples: Examples, layers: Sequence[int], max_length: int) -> dict[int, list[Tensor]]:
    """The model's own weights, between all its tokens."""
    runner, heads = Runner(model, None, Reading()), attention_heads(model)

    def prepare(window: Window, places: np.ndarray) -> Packed:
        return runner.pack(window.chosen(places)[0])

    def run(packed: Packed) -> tuple[Tensor, ...]:
        return forward(runner, packed.on_device())

    def portions(window: Window) -> Portions:
        return heads * window.items[0].lengths ** 2, None

    loop = Loop([model], Reading(pool="tokens", special=True, max_length=max_length), Batches(_BUDGET))
    kept: dict[int, list[Any]] = {layer: [None] * len(texts_of(examples)) for layer in layers}
    with eager(model), runner.prepared():
        title = f"attention of {model.name} over {examples.task}"
        for window, places, weights in loop.over(examples, run, title, portions, prepare):
            lengths = window.items[0].lengths[places]
            for layer in layers:
                whole = weights[layer - 1].float().cpu()
                for text, place, length in zip(whole, places, lengths, strict=True):
                    kept[layer][window.start + place] = text[:, :length, :length].clone()
    return kept


def _between_units(
    model: Model, examples: Examples, layers: Sequence[int], attending: Attending
) -> dict[int, list[Tensor]]:
    heads = attention_heads(model)
    empty = torch.zeros(heads, 0, 0)  # of a text without a word that is whole
    kept = {layer: [empty] * len(texts_of(examples)) for layer in layers}

    def keep(stack: Stack) -> None:
        whole = stack.weights[0].cpu()
        for place, position in enumerate(stack.positions):
            for layer in layers:
                kept[layer][position] = whole[(layer - 1) * heads : layer * heads, place].clone()

    AttentionStreamer([model], attending).feed(examples, keep)
    return kept


def attention_layers(model: Model, layers: Sequence[int] | None) -> list[int]:
    """The layers 1..L that are wanted; layer 0, the embeddings, attends to nothing."""
    chosen = list(range(1, model.depth + 1)) if layers is None else sorted(set(layers))
    wrong = [layer for layer in chosen if not 1 <= layer <= model.depth]
    if wrong or not chosen:
        raise InputError(f"{model.name} has attention weights of layers 1..{model.depth}, not of {wrong or 'none'}.")
    return chosen
