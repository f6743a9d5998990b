"""Streaming: every text goes through every model once, and its rows go to every consumer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from layerscope.data import Examples
from layerscope.data.examples import WHITESPACE
from layerscope.errors import DataError, InputError
from layerscope.extraction.forward import Packed, PendingCopy, Runner
from layerscope.extraction.items import Items
from layerscope.extraction.loop import Advance, Loop, Tally, Window
from layerscope.extraction.pooling import Reading
from layerscope.extraction.representations import first_not_finite
from layerscope.extraction.row_store import Rows
from layerscope.extraction.wrapped_forward import runner_of
from layerscope.models import Model
from layerscope.models.fingerprint import tokenizer_identity
from layerscope.progress import progress


@dataclass
class Batch:
    """The rows of one forward: for each model, layer -> (rows, width) float32 on its device."""

    states: list[dict[int, Tensor]]
    rows: Rows
    labels: np.ndarray | None


@dataclass
class _PreparedBatch:
    """A batch on the host: the input of every model's runner, and the rows that will come out."""

    runners: Sequence[Runner]
    packed: list[Packed]
    rows: Rows
    labels: np.ndarray | None

    def run(self) -> Batch:
        """Run every model over the batch."""
        states = [runner.run(packed) for runner, packed in zip(self.runners, self.packed, strict=True)]
        return Batch(states, self.rows, self.labels)


class Consumer(Protocol):
    """Anything that takes batches: a collector of rows, statistics, a file."""

    def update(self, batch: Batch) -> None: ...


@dataclass
class Streamer:
    """Runs several models over the same texts, and gives the pooled states of some layers batch by batch."""

    models: Sequence[Model]
    layers: Sequence[int] | None
    reading: Reading
    batch_tokens: int | None = None
    loop: Loop = field(init=False)
    _runners: list[Runner] = field(init=False)
    _cached_units: dict[str | None, str | None] = field(init=False, default_factory=dict)  # by what splits words

    def __post_init__(self) -> None:
        self._runners = [runner_of(model, self.layers, self.reading) for model in self.models]
        self.loop = Loop.over_tokens(self.models, self.reading, self.batch_tokens)

    def feed(self, examples: Examples, consumers: Sequence[Consumer], title: str) -> Tally:
        """Run all examples, window by window, with a progress bar."""
        return self._feed(self.loop.parts(examples), consumers, title, len(examples))

    def feed_texts(self, texts: Iterable[str], consumers: Sequence[Consumer], title: str) -> Tally:
        """Run texts that come one after the other, however many there are."""
        return self._feed(self.loop.parts_of_stream(texts), consumers, title, None)

    def _feed(self, parts: Iterable[Examples], consumers: Sequence[Consumer], title: str, texts: int | None) -> Tally:
        """Run parts of examples as windows, and check the states of each window while the next one is under way."""
        tally = Tally()
        checks: deque[Callable[[], None]] = deque()  # of earlier windows, which they keep in memory
        with progress(title, texts) as advance, self.prepared():
            for window in self.loop.windows(parts):
                tally.add(self._through(window, consumers, advance, checks))
                del window  # it is large, and no longer wanted while the next one is waited for
                while len(checks) > (0 if self.loop.on_cpu else 1):
                    checks.popleft()()
            for check in checks:
                check()
        return tally

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Prepare every network for all windows of the block, and restore it at its end."""
        with ExitStack() as stack:
            for runner in self._runners:
                stack.enter_context(runner.prepared())
            yield

    def feed_window(self, window: Window, consumers: Sequence[Consumer], advance: Advance) -> Tally:
        """Run one window of examples; every batch goes to every consumer, and all states must be finite."""
        checks: deque[Callable[[], None]] = deque()
        with self.prepared():
            tally = self._through(window, consumers, advance, checks)
            for check in checks:
                check()
        return tally

    def _through(
        self, window: Window, consumers: Sequence[Consumer], advance: Advance, checks: deque[Callable[[], None]]
    ) -> Tally:
        """Run one window without waiting for the device, and add a check of its states, which will wait, to `checks`.

        When the check is made the next window may be under way, so that the device has work while the host reads.
        """
        tally, sums = window.tally, []
        for places, batch in self.loop.through(window, _PreparedBatch.run, advance=advance, prepare=self._prepare):
            tally.rows += len(batch.rows)
            if len(batch.rows):
                # One number for all models and layers, left on the device: a NaN or an infinity is never lost in a sum.
                totals = [state.sum() for states in batch.states for state in states.values()]
                sums.append((places, torch.stack([total.to(totals[0].device) for total in totals]).sum()))
                for consumer in consumers:
                    consumer.update(batch)
        if sums:
            finite = PendingCopy(torch.stack([total for _, total in sums]).isfinite())
            checks.append(lambda: self._check_finite(window, [places for places, _ in sums], finite))
        return tally

    def _prepare(self, window: Window, places: np.ndarray) -> _PreparedBatch:
        """Return the batch of some items of a window, ready to run; the loop calls this ahead, in another thread."""
        per_model = window.chosen(places)
        packed = [runner.pack_rows(items) for runner, items in zip(self._runners, per_model, strict=True)]
        return _PreparedBatch(self._runners, packed, *self._rows(window, places, per_model[0]))

    def _rows(self, window: Window, places: np.ndarray, items: Items) -> tuple[Rows, np.ndarray | None]:
        """Return the identity and the labels of the rows of some items."""
        examples, item = window.examples, np.repeat(places, items.rows)
        if examples.words_by not in self._cached_units:  # units_of hashes the tokenizer
            self._cached_units[examples.words_by] = units_of(self.reading, self.models[0], examples)
        text, units = window.text[item], self._cached_units[examples.words_by]
        rows = Rows(
            examples.task,
            examples.split,
            examples.fingerprint,
            examples.rows[text],
            None if window.choice is None else window.choice[item],
            items.unit if units else None,
            units,
        )
        return rows, None if examples.labels is None else examples.labels[text]

    def _check_finite(self, window: Window, batches: Sequence[np.ndarray], finite: PendingCopy) -> None:
        """Run batches whose sum is not finite again, and raise DataError with the first row that is not."""
        for at in np.flatnonzero(~finite.numpy()).tolist():
            batch = self._prepare(window, batches[at]).run()
            for model, states in zip(self.models, batch.states, strict=True):
                for layer, state in states.items():
                    if (place := first_not_finite(state)) is not None:
                        text = int(np.flatnonzero(window.examples.rows == batch.rows.row[place])[0])
                        raise DataError(
                            f"Layer {layer} of {model.name} is not finite for {window.examples.place(text)}; the "
                            "weights are broken or the float type is too small for them."
                        )


def stream(
    models: Model | Sequence[Model],
    examples: Examples | Iterable[str],
    *consumers: Consumer,
    layers: Sequence[int] | None = None,
    batch_tokens: int | None = None,
    **reading: Any,
) -> Tally:
    """Run models over examples once, and give every batch of rows to every consumer.

    Memory does not grow with the number of examples.

    Args:
        models: One `Model` or several; each batch has the states of all of them.
        examples: The examples, such as `task.split("train")`; or texts, of which as many are read at a time as a
            window holds: a generator, an open file. Rows are then numbered in the order of the texts, from 0.
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
    if not many:
        raise InputError("models is empty; give at least one.")
    streamer = Streamer(many, layers, Reading(**reading), batch_tokens)
    title = " + ".join(model.name for model in many)
    if isinstance(examples, Examples):
        return streamer.feed(examples, consumers, title)
    return streamer.feed_texts(checked_texts(examples), consumers, title)


def checked_texts(texts: Iterable[Any]) -> Iterator[str]:
    """Yield texts; raise InputError at what is not a text."""
    for row, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise InputError(f"Text {row} of the stream is a {type(text).__name__}; every text must be a string.")
        yield text


def units_of(reading: Reading, model: Model, examples: Examples) -> str | None:
    """Return which part of a text a row is: a word, a token of a certain tokenizer, or None for the whole text.

    Words found by an expression are not those between spaces, so the expression is part of the name.
    """
    if reading.pool == "tokens":
        return f"token of {tokenizer_identity(model.require_tokenizer())[:12]}"
    if reading.pool != "words":
        return None
    return "word" if examples.words_by in (None, WHITESPACE) else f"word by {examples.words_by}"
