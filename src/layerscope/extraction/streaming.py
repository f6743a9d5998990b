"""Streaming: every text goes through every model once, and its rows go to whoever wants them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from layerscope.data import Examples
from layerscope.errors import DataError
from layerscope.extraction.forward import Runner
from layerscope.extraction.loop import Advance, Loop, Tally, Window, parts_of
from layerscope.extraction.own import runner_of
from layerscope.extraction.reading import Reading
from layerscope.extraction.rows import Rows
from layerscope.models import Model
from layerscope.models.identity import tokenizer_identity
from layerscope.progress import progress


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
class Streamer:
    """Several models over the same texts: pooled states of some layers, batch by batch."""

    models: Sequence[Model]
    layers: Sequence[int] | None
    reading: Reading
    batch_tokens: int | None = None
    loop: Loop = field(init=False)
    _runners: list[Runner] = field(init=False)

    def __post_init__(self) -> None:
        self._runners = [runner_of(model, self.layers, self.reading) for model in self.models]
        self.loop = Loop.over_tokens(self.models, self.reading, self.batch_tokens)

    def feed(self, examples: Examples, consumers: Sequence[Consumer], title: str) -> Tally:
        """All examples, window by window, with a progress bar."""
        total = Tally()
        with progress(title, len(examples)) as advance:
            for window in self.loop.windows(parts_of(examples)):
                total.add(self.feed_window(window, consumers, advance))
        return total

    def feed_window(self, window: Window, consumers: Sequence[Consumer], advance: Advance) -> Tally:
        """One window of examples. Every batch goes to every consumer."""
        tally = window.tally
        for places, states in self.loop.through(window, self._run, advance=advance):
            batch = self._batch(window, places, states)
            tally.rows += len(batch.rows)
            if len(batch.rows):
                _check_finite(batch, self.models)
                for consumer in consumers:
                    consumer.update(batch)
        return tally

    def _run(self, window: Window, places: np.ndarray) -> list[dict[int, Tensor]]:
        return [r.run(items) for r, items in zip(self._runners, window.chosen(places), strict=True)]

    def _batch(self, window: Window, places: np.ndarray, states: list[dict[int, Tensor]]) -> Batch:
        """The states with the identity and the labels of their rows."""
        items, examples = window.items[0], window.examples
        item = np.repeat(places, [len(items[i].unit) for i in places])
        text = window.text[item]
        rows = Rows(
            examples.task,
            examples.split,
            examples.fingerprint,
            examples.rows[text],
            None if window.choice is None else window.choice[item],
            np.concatenate([items[i].unit for i in places]) if self._units else None,
            self._units,
        )
        return Batch(states, rows, None if examples.labels is None else examples.labels[text])

    @cached_property
    def _units(self) -> str | None:
        return units_of(self.reading, self.models[0])


def stream(
    models: Model | Sequence[Model],
    examples: Examples,
    *consumers: Consumer,
    layers: Sequence[int] | None = None,
    batch_tokens: int | None = None,
    **reading: Any,
) -> Tally:
    """Run models over examples once, and give every batch of rows to every consumer.

    Memory does not grow with the number of examples.

    Args:
        models: One `Model` or several; each batch has the states of all of them.
        examples: The examples, such as `task.split("train")`.
        *consumers: Objects with a method `update(batch)`. `batch.states[k][layer]` is (rows, width) of model k,
            `batch.rows` the identity of the rows, `batch.labels` their labels.
        layers: Which layers; all of them if not given.
        batch_tokens: Tokens per batch, padding included.
        **reading: pool, subword, special, max_length, final_norm and autocast, as `ls.extract` takes them.

    Returns:
        How many rows there were, and how many texts were cut off.

    Example:
        >>> import layerscope as ls
        >>> class Mean:
        ...     total, n = 0.0, 0
        ...     def update(self, batch):
        ...         self.total += batch.states[0][1].sum(dim=0)
        ...         self.n += len(batch.rows)
        >>> mean, model = Mean(), ls.load("garden:bert-s0")
        >>> tally = ls.stream(model, ls.task("pydocs").split("validation").take(slice(20)), mean, max_length=16)
        >>> tally.rows, mean.n, tuple((mean.total / mean.n).shape) == (model.width,)
        (20, 20, True)
    """
    many = [models] if isinstance(models, Model) else list(models)
    streamer = Streamer(many, layers, Reading(**reading), batch_tokens)
    return streamer.feed(examples, consumers, " + ".join(model.name for model in many))


def units_of(reading: Reading, model: Model) -> str | None:
    """What a row is a part of a text: a word, a token of a certain tokenizer, or nothing of the kind."""
    if reading.pool == "tokens":
        return f"token of {tokenizer_identity(model.require_tokenizer())[:12]}"
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
