"""Attention weights of models whose families can give them, between tokens or between units that models share.

Such units are words, or the tokens of one tokenizer. A word's row is the mean over its sub-words that attend; its
column is the sum over its sub-words that are attended to (Wu et al. 2020, section 3.4). Tokens that belong to no unit
are dropped, and rows are normalised to a sum of one again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.data import Examples, Task
from layerscope.errors import DataError, InputError, ModelError, choose, device_fault
from layerscope.extraction.encoding import choices_of, encode, texts_of
from layerscope.extraction.extract import examples_of
from layerscope.extraction.forward import Packed, PendingCopy, Runner
from layerscope.extraction.items import Item, Items
from layerscope.extraction.loop import Batches, Loop, Portions, Tally, Window
from layerscope.extraction.pooling import Reading
from layerscope.extraction.row_store import Rows
from layerscope.models import Model, load
from layerscope.models.architecture import evaluating
from layerscope.models.checkpoints import quiet
from layerscope.models.replay import caches_off
from layerscope.models.selfcheck import is_causal, probe_inputs, without_head


def forward(runner: Runner, batch: dict[str, Tensor] | Items | Sequence[Item]) -> tuple[Tensor, ...]:
    """Return the weights (texts, attention heads, time, time) of every block, padding included.

    The model must be `eager`. `batch` is the inputs on the model's device, or the items that they are made of.
    """
    with runner.ready():
        return _all_weights(runner.model, batch if isinstance(batch, dict) else runner.inputs(batch))


def _all_weights(model: Model, inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
    """Run one forward and return its attention weights, or raise ModelError where a block's are missing."""
    result = model.network.base_model(**inputs, output_attentions=True)
    weights = getattr(result, "attentions", None) or ()
    texts, time = inputs["input_ids"].shape
    expected = (texts, attention_heads(model), time, time)
    if len(weights) != model.depth or any(w is None or w.shape != expected for w in weights):
        raise _no_weights(model)
    return tuple(weights)


def _no_weights(model: Model, reason: str = "") -> ModelError:
    """Return the error for a model whose attention weights cannot be read."""
    return ModelError(
        f"{model.name} ({model.architecture.family}) does not give attention weights of its {model.depth} blocks"
        f"{reason}; compare its states instead, or another family's attention."
    )


def attention_heads(model: Model) -> int:
    """Return how many attention heads a block has."""
    heads = getattr(model.network.config, "num_attention_heads", None)
    if not isinstance(heads, int):
        raise _no_weights(model, ": its config has no number of attention heads")
    return heads


@contextmanager
def eager(model: Model) -> Iterator[None]:
    """Switch a model to plain attention, the only kind that returns its weights, while the block runs."""
    network = model.network
    before = network.config._attn_implementation
    if before != "eager":
        with quiet():  # where it has no effect, the check below raises
            network.set_attn_implementation("eager")
    try:
        _check_weights(model)
        yield
    finally:
        if before != "eager":
            network.set_attn_implementation(before)


def _check_weights(model: Model) -> None:
    """Raise ModelError unless the weights that a model returns can be those that it uses.

    Their rows must sum to one, over real tokens only, and over none that come later in a causal model.
    """
    network = model.network
    if network.config._attn_implementation != "eager":
        raise ModelError(
            f"The attention of {model.name} ({model.architecture.family}) cannot be switched to one that shows its "
            "weights; "
            f'open it with transformers and attn_implementation="eager", and give that network.'
        )
    inputs = probe_inputs(without_head(model), padded=True)
    with torch.inference_mode(), evaluating(network), caches_off(network):
        try:
            weights = torch.stack(_all_weights(model, inputs)).float()  # (blocks, rows, heads, time, time)
        except ModelError:
            raise
        except Exception as error:  # a family without attention fails in its own way
            if device_fault(error) is not None:
                raise
            raise _no_weights(model, f" ({type(error).__name__})") from error
    real = inputs["attention_mask"].bool()
    rows = weights.transpose(2, 3)[:, real]  # (blocks, real tokens, heads, time)
    tolerance = 1e-3 if network.dtype in (torch.float32, torch.float64) else 3e-2
    seen = real[:, None, :].expand(-1, real.shape[1], -1)[real]  # (real tokens, time): what is not padding
    if not bool(((rows.sum(dim=-1) - 1).abs() < tolerance).all()):
        raise _no_weights(model, ": the rows of what it shows do not sum to one")
    if bool((rows * ~seen[:, None, :]).abs().max() > tolerance):
        raise _no_weights(model, ": what it shows attends to padding")
    if is_causal(model) and bool(weights.triu(1).transpose(2, 3)[:, real].abs().max() > tolerance):
        raise _no_weights(model, ": it never looks ahead, and what it shows does")


UNITS = ("words", "tokens")
_ATTENTION_BUDGET = {"cpu": 1 << 24, "cuda": 1 << 27}  # attention weights of all models and layers in a stack
_AFTER = 1 << 30  # the number of the first special token behind the words


@dataclass(frozen=True)
class AttentionReading:
    """The options of how texts are read for attention: units, special tokens, and the longest text in tokens."""

    pool: str = "words"
    special: bool = False
    max_length: int = 128

    def __post_init__(self) -> None:
        choose("unit of attention (pool)", self.pool, UNITS)

    @property
    def reading(self) -> Reading:
        """The options of an extraction that reads texts in the same way."""
        special = self.special and self.pool == "tokens"
        subword = "mean" if self.pool == "words" else "last"
        return Reading(self.pool, subword=subword, special=special, max_length=self.max_length)


@dataclass
class Stack:
    """The weights of texts with t units each: for each model (layers x heads, texts, t, t), float32 on its device."""

    weights: list[Tensor]
    texts: np.ndarray  # the number of each text in its split
    positions: np.ndarray  # the index of each text (or choice of it) among all that were fed


@dataclass
class AttentionStreamer:
    """Runs several models over the same texts; every stack holds all layers of all models."""

    models: Sequence[Model]
    attending: AttentionReading
    _runners: list[Runner] = field(init=False)

    def __post_init__(self) -> None:
        self._runners = [Runner(model, None, Reading()) for model in self.models]
        budget = min(_ATTENTION_BUDGET.get(m.device.type, 1 << 24) for m in self.models)
        self._loop = Loop(self.models, self.attending.reading, Batches(budget))

    def feed(self, examples: Examples, update: Callable[[Stack], None]) -> Tally:
        """Run every model over every text once, and call `update` with stacks of texts that have equally many units.

        Returns how many texts were cut off, and how many words were left out.
        """
        tally = Tally()
        title = "attention of " + " + ".join(model.name for model in self.models)
        with ExitStack() as plain:
            for model, runner in zip(self.models, self._runners, strict=True):
                plain.enter_context(eager(model))
                plain.enter_context(runner.prepared())
            waiting: PendingCopy | None = None  # of the window before: read when this one is under way
            for window, advance in self._loop.each_window(examples, title):
                sums = []
                for places, weights in self._loop.through(window, self._run, self._portions, advance, self._prepare):
                    sums.append(torch.stack([part.sum().to(weights[0].device) for part in weights]))
                    rows = window.examples.rows[window.text[places]]
                    update(Stack(weights, rows, window.start + places))
                tally.add(window.tally)
                self._check_finite(waiting)
                waiting = PendingCopy(torch.stack(sums).isfinite().all(dim=0)) if sums else None
            self._check_finite(waiting)
        return tally

    def _check_finite(self, finite: PendingCopy | None) -> None:
        """Raise DataError where the sum of a model's weights in a window is not finite: a NaN stays in a sum."""
        for model, is_finite in zip(self.models, () if finite is None else finite.numpy(), strict=False):
            if not is_finite:
                raise DataError(
                    f"{model.name} gives attention weights that are not finite; the weights are broken or the float "
                    "type is too small for them."
                )

    def is_causal(self, source: int, examples: Examples) -> bool:
        """Return whether a model never attends to what comes later, which is tried on the longest text."""
        model = self.models[source]
        longest = int(np.argmax([len(text) for text in examples.texts]))
        items = encode(model, examples.take([longest]), self.attending.reading).at([0])
        with eager(model):
            weights = forward(self._runners[source], items)
        return not any(bool(w.float().triu(1).any()) for w in weights)

    def _portions(self, window: Window) -> Portions:
        """Return costs and kinds, so that texts share a batch only if they have as many units."""
        if self.attending.special and self.attending.pool == "words":
            per_text = [self._with_special(items) for items in zip(*window.items, strict=True)]
            window.items = [Items.from_list(items) for items in zip(*per_text, strict=True)]
        tokens = np.asarray([items.lengths for items in window.items])  # (models, texts)
        heads = np.asarray([m.depth * attention_heads(m) for m in self.models])
        return heads @ tokens**2, window.items[0].rows

    def _with_special(self, items: Sequence[Item]) -> Sequence[Item]:
        """Make special tokens units of their own in one text's items, which must then be alike for all models."""
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
        """Return for each model the batch, and how many units each of its texts has."""
        return [
            (runner.pack(items, {"members": members_of(items)}), int(items.rows[0]))
            for runner, items in zip(self._runners, window.chosen(places), strict=True)
        ]

    def _run(self, ready: Sequence[tuple[Packed, int]]) -> list[Tensor]:
        """Return each model's weights between units (layers x heads, texts, units, units) of a prepared batch."""
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
    """Make every special token of an item a unit, numbered ..., -2, -1 before the words and by large numbers after."""
    positions = np.flatnonzero(item.special)
    if not len(positions):
        return
    first = int(np.argmin(item.special))  # the first token that is not special
    before = int((positions < first).sum())
    numbers = np.concatenate([np.arange(-before, 0), _AFTER + np.arange(len(positions) - before)])
    units = np.concatenate([item.unit[item.segment], numbers])
    item.take = np.concatenate([item.take, positions])
    item.unit, item.segment = np.unique(units, return_inverse=True)


def members_of(items: Items) -> np.ndarray:
    """Return (texts, units, time), 1 where a token is part of a unit; all items must have equally many units."""
    members = np.zeros((len(items), int(items.rows[0]), int(items.lengths.max())), np.int64)
    members[items.owner, items.segment, items.take] = 1
    return members


def between_units(weights: Tensor, members: Tensor) -> Tensor:
    """Return weights between units (texts, heads, units, units), from those between tokens (texts, heads, time, time).

    They are summed over attended tokens and averaged over attending ones. Weights on tokens of no unit are dropped, and
    the row is divided by what is left; a row with nothing left stays 0.
    """
    texts, heads, time, _ = weights.shape
    units = members.shape[1]
    attended = weights.reshape(texts, heads * time, time) @ members.transpose(1, 2)
    attended = attended.view(texts, heads, time, units).transpose(1, 2).reshape(texts, time, heads * units)
    means = members / members.sum(dim=2, keepdim=True)
    between = (means @ attended).view(texts, units, heads, units).transpose(1, 2)
    return normalised(between)


def normalised(rows: Tensor) -> Tensor:
    """Return rows divided by their sums; rows of zeros stay zeros."""
    total = rows.sum(dim=-1, keepdim=True)
    return rows / torch.where(total > 0, total, torch.ones_like(total))


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
        weights = _token_weights(model, examples, chosen, max_length)
    else:
        weights = _unit_weights(model, examples, chosen, AttentionReading(pool, special, max_length))
    texts = examples.rows[texts_of(examples)]
    rows = Rows(examples.task, examples.split, examples.fingerprint, texts, choices_of(examples))
    return Attentions(weights, rows, model.name)


def _token_weights(model: Model, examples: Examples, layers: Sequence[int], max_length: int) -> dict[int, list[Tensor]]:
    """Return the model's own weights between all its tokens, by layer and text."""
    runner, heads = Runner(model, None, Reading()), attention_heads(model)

    def prepare(window: Window, places: np.ndarray) -> Packed:
        return runner.pack(window.chosen(places)[0])

    def run(packed: Packed) -> tuple[Tensor, ...]:
        return forward(runner, packed.on_device())

    def portions(window: Window) -> Portions:
        return heads * window.items[0].lengths ** 2, None

    loop = Loop([model], Reading(pool="tokens", special=True, max_length=max_length), Batches(_BUDGET))
    collected: dict[int, list[Any]] = {layer: [None] * len(texts_of(examples)) for layer in layers}
    with eager(model), runner.prepared():
        title = f"attention of {model.name} over {examples.task}"
        for window, places, weights in loop.over(examples, run, title, portions, prepare):
            lengths = window.items[0].lengths[places]
            for layer in layers:
                whole = weights[layer - 1].float().cpu()
                for text, place, length in zip(whole, places, lengths, strict=True):
                    collected[layer][window.start + place] = text[:, :length, :length].clone()
    return collected


def _unit_weights(
    model: Model, examples: Examples, layers: Sequence[int], attending: AttentionReading
) -> dict[int, list[Tensor]]:
    """Return the model's weights between units, by layer and text."""
    heads = attention_heads(model)
    empty = torch.zeros(heads, 0, 0)  # of a text without a word that is whole
    collected = {layer: [empty] * len(texts_of(examples)) for layer in layers}

    def keep(stack: Stack) -> None:
        whole = stack.weights[0].cpu()
        for place, position in enumerate(stack.positions):
            for layer in layers:
                collected[layer][position] = whole[(layer - 1) * heads : layer * heads, place].clone()

    AttentionStreamer([model], attending).feed(examples, keep)
    return collected


def attention_layers(model: Model, layers: Sequence[int] | None) -> list[int]:
    """Return the layers 1..L that are wanted, or raise InputError; layer 0, the embeddings, attends to nothing."""
    chosen = list(range(1, model.depth + 1)) if layers is None else sorted(set(layers))
    wrong = [layer for layer in chosen if not 1 <= layer <= model.depth]
    if wrong or not chosen:
        raise InputError(f"{model.name} has attention weights of layers 1..{model.depth}, not of {wrong or 'none'}.")
    return chosen
