"""Streaming: every text goes through every model once, and its rows go to whoever wants them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from layerscope.data import Examples
from layerscope.errors import DataError, InputError
from layerscope.extract.batches import Batches, ahead, default_tokens
from layerscope.extract.encode import Item, choices_of, encode, texts_of
from layerscope.extract.forward import Runner
from layerscope.extract.reading import Reading
from layerscope.extract.rows import Rows
from layerscope.models import Model
from layerscope.models.identity import tokenizer_fingerprint
from layerscope.progress import progress

WINDOW = 4096  # texts that are tokenised and sorted by length together

Window = tuple[Examples, list[list[Item]]]  # examples with each model's tokens


@dataclass
class Batch:
    """Rows of one forward: for each model, layer -> (rows, width) float32 on its device."""

    states: list[dict[int, Tensor]]
    rows: Rows
    labels: np.ndarray | None


class Consumer(Protocol):
    """Anything that takes batches: a store of rows, statistics, a file."""

    def update(self, batch: Batch) -> None: ...


@dataclass
class Tally:
    """What happened to the texts on the way."""

    rows: int = 0
    truncated: int = 0  # texts longer than max_length, in any model
    words_left_out: int = 0  # words that some model does not see whole

    def add(self, other: Tally) -> None:
        self.rows += other.rows
        self.truncated += other.truncated
        self.words_left_out += other.words_left_out


@dataclass
class Streamer:
    """Several models over the same texts, in the same batches."""

    models: Sequence[Model]
    layers: Sequence[int] | None
    reading: Reading
    batch_tokens: int | None = None
    _runners: list[Runner] = field(init=False)
    _batches: Batches = field(init=False)

    def __post_init__(self) -> None:
        self._runners = [Runner(model, self.layers, self.reading) for model in self.models]
        tokens = self.batch_tokens
        self._batches = Batches(min(default_tokens(m.device) for m in self.models) if tokens is None else tokens)

    def feed(self, examples: Examples, consumers: Sequence[Consumer], title: str) -> Tally:
        """All examples, window by window, with a progress bar."""
        total = Tally()
        windows = (examples.take(slice(start, start + WINDOW)) for start in range(0, len(examples), WINDOW))
        with progress(title, len(examples)) as advance:
            for window in self.encoded(windows):
                total.add(self.feed_window(window, consumers, advance))
        return total

    def encoded(self, windows: Iterable[Examples]) -> Iterator[Window]:
        """The windows as tokens; while one goes through the models, the next is tokenised in another thread."""

        def tokens(examples: Examples) -> Window:
            return examples, [encode(model, examples, self.reading) for model in self.models]

        return ahead(windows, tokens)

    def feed_window(self, window: Window, consumers: Sequence[Consumer], advance: Callable[[float], None]) -> Tally:
        """One window of examples. Every batch goes to every consumer."""
        examples, per_model = window
        tally = agree(self.models, self.reading, examples, per_model)
        rows_of = _RowMaker(self, examples, per_model[0])
        lengths = np.max([[len(item) for item in items] for items in per_model], axis=0)

        def run(chosen: np.ndarray) -> list[dict[int, Tensor]]:
            return [r.run([items[i] for i in chosen]) for r, items in zip(self._runners, per_model, strict=True)]

        for chosen, states in self._batches.over(lengths, run):
            batch = rows_of(chosen, states)
            tally.rows += len(batch.rows)
            if len(batch.rows):
                _check_finite(batch, self.models)
                for consumer in consumers:
                    consumer.update(batch)
            advance(len(chosen) * len(examples) / len(lengths))
        return tally


def agree(models: Sequence[Model], reading: Reading, examples: Examples, per_model: list[list[Item]]) -> Tally:
    """Keep the rows that every model has: a word cut off for one model is left out for all."""
    tally = Tally(truncated=sum(any(i.truncated for i in items) for items in zip(*per_model, strict=True)))
    if reading.pool == "tokens" and len({tokenizer_fingerprint(m.require_tokenizer()) for m in models}) > 1:
        raise InputError(
            "The pool 'tokens' needs models with one and the same tokenizer; for models with different "
            "tokenizers use the pool 'words'."
        )
    if reading.pool == "words":
        assert examples.words is not None
        for items, words in zip(zip(*per_model, strict=True), examples.words, strict=True):
            common = items[0].unit
            for item in items[1:]:
                common = np.intersect1d(common, item.unit)
            for item in items:
                item.keep(common)
            tally.words_left_out += len(words) - len(common)
    return tally


def stream(
    models: Model | Sequence[Model],
    examples: Examples,
    *consumers: Consumer,
    layers: Sequence[int] | None = None,
    batch_tokens: int | None = None,
    **reading: Any,
) -> Tally:
    """Run the models over the examples once, and give every batch of rows to every consumer's `update`.

    Memory does not grow with the number of examples. `reading` takes pool, subword, special, max_length,
    final_norm and autocast, as `ls.extract` does.
    """
    many = [models] if isinstance(models, Model) else list(models)
    streamer = Streamer(many, layers, Reading(**reading), batch_tokens)
    return streamer.feed(examples, consumers, " + ".join(model.name for model in many))


class _RowMaker:
    """The identity and the labels of a batch's rows."""

    def __init__(self, streamer: Streamer, examples: Examples, items: list[Item]) -> None:
        self.examples = examples
        self.items = items
        self.text, self.choice = texts_of(examples), choices_of(examples)
        self.units = units_of(streamer.reading, streamer.models[0])

    def __call__(self, chosen: np.ndarray, states: list[dict[int, Tensor]]) -> Batch:
        counts = [len(self.items[i].unit) for i in chosen]
        item = np.repeat(chosen, counts)
        text = self.text[item]
        unit = np.concatenate([self.items[i].unit for i in chosen])
        examples = self.examples
        rows = Rows(
            examples.task,
            examples.split,
            examples.fingerprint,
            examples.rows[text],
            None if self.choice is None else self.choice[item],
            unit if self.units else None,
            self.units,
        )
        labels = None if examples.labels is None else examples.labels[text]
        return Batch(states, rows, labels)


def units_of(reading: Reading, model: Model) -> str | None:
    """What a row is a part of a text: a word, a token of a certain tokenizer, or nothing of the kind."""
    if reading.pool == "tokens":
        return f"token of {tokenizer_fingerprint(model.require_tokenizer())[:12]}"
    return "word" if reading.pool == "words" else None


def _check_finite(batch: Batch, models: Sequence[Model]) -> None:
    for model, states in zip(models, batch.states, strict=True):
        sums = torch.stack([state.sum() for state in states.values()])
        if bool(torch.isfinite(sums).all()):
            continue
        for layer, state in states.items():
            bad = (~torch.isfinite(state)).any(dim=1)
            if bool(bad.any()):
                row = batch.rows.row[int(bad.nonzero()[0])]
                raise DataError(
                    f"Layer {layer} of {model.name} is not finite for row {row} of {batch.rows.task} "
                    f"({batch.rows.split}); the weights are broken or the float type is too small for them."
                )
