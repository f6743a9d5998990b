"""Streaming: every text goes through every model once, and its rows go to whoever wants them."""

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
from layerscope.extraction.finite import first_not_finite
from layerscope.extraction.forward import Runner
from layerscope.extraction.items import Items
from layerscope.extraction.loop import Advance, Loop, Window
from layerscope.extraction.own import runner_of
from layerscope.extraction.packing import Coming, Packed
from layerscope.extraction.reading import Reading
from layerscope.extraction.rows import Rows
from layerscope.extraction.tally import Tally
from layerscope.models import Model
from layerscope.models.identity import tokenizer_identity
from layerscope.progress import progress


@dataclass
class Batch:
    """Rows of one forward: for each model, layer -> (rows, width) float32 on its device."""

    states: list[dict[int, Tensor]]
    rows: Rows
    labels: np.ndarray | None


@dataclass
class _Ready:
    """A batch on the host: what each model is given, and which rows will come out."""

    packed: list[Packed]
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
    _known_units: dict[str | None, str | None] = field(init=False, default_factory=dict)  # by what splits words

    def __post_init__(self) -> None:
        self._runners = [runner_of(model, self.layers, self.reading) for model in self.models]
        self.loop = Loop.over_tokens(self.models, self.reading, self.batch_tokens)

    def feed(self, examples: Examples, consumers: Sequence[Consumer], title: str) -> Tally:
        """All examples, window by window, with a progress bar."""
        return self._feed(self.loop.parts(examples), consumers, title, len(examples))

    def feed_texts(self, texts: Iterable[str], consumers: Sequence[Consumer], title: str) -> Tally:
        """The same for texts that come one after the other, however many there are."""
        return self._feed(self.loop.parts_of_stream(texts), consumers, title, None)

    def _feed(self, parts: Iterable[Examples], consumers: Sequence[Consumer], title: str, texts: int | None) -> Tally:
        tally = Tally()
        checks: deque[Callable[[], None]] = deque()  # of the windows before, which they keep in memory
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
        """Every network ready for as many windows as there are, and then as it was."""
        with ExitStack() as stack:
            for runner in self._runners:
                stack.enter_context(runner.prepared())
            yield

    def feed_window(self, window: Window, consumers: Sequence[Consumer], advance: Advance) -> Tally:
        """One window of examples. Every batch goes to every consumer, and all states of the window must be finite."""
        checks: deque[Callable[[], None]] = deque()
        with self.prepared():
            tally = self._through(window, consumers, advance, checks)
            for check in checks:
                check()
        return tally

    def _through(
        self, window: Window, consumers: Sequence[Consumer], advance: Advance, checks: deque[Callable[[], None]]
    ) -> Tally:
        """The same without waiting for the device: what is added to the checks does, and raises if it must.

        By then the next window may be under way, so that the device has work while the host reads.
        """
        tally, sums = window.tally, []
        for places, batch in self.loop.through(window, self._run, advance=advance, prepare=self._prepare):
            tally.rows += len(batch.rows)
            if len(batch.rows):
                sums.append((places, _sums(batch)))
                for consumer in consumers:
                    consumer.update(batch)
        if sums:
            finite = Coming(torch.stack([total for _, total in sums]).isfinite())
            checks.append(lambda: self._check_finite(window, [places for places, _ in sums], finite))
        return tally

    def _prepare(self, window: Window, places: np.ndarray) -> _Ready:
        items = window.chosen(places)
        packed = [runner.pack_rows(own) for runner, own in zip(self._runners, items, strict=True)]
        return _Ready(packed, *self._rows(window, places, items[0]))

    def _run(self, ready: _Ready) -> Batch:
        states = [runner.run(packed) for runner, packed in zip(self._runners, ready.packed, strict=True)]
        return Batch(states, ready.rows, ready.labels)

    def _rows(self, window: Window, places: np.ndarray, items: Items) -> tuple[Rows, np.ndarray | None]:
        """The identity and the labels of the rows of some items."""
        examples, item = window.examples, np.repeat(places, items.rows)
        text, units = window.text[item], self._units(examples)
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

    def _check_finite(self, window: Window, batches: Sequence[np.ndarray], finite: Coming) -> None:
        """A NaN or an infinity is never lost in a sum; a batch whose sums are not finite is run again and looked at."""
        for at in np.flatnonzero(~finite.numpy()).tolist():
            batch = self._run(self._prepare(window, batches[at]))
            for model, states in zip(self.models, batch.states, strict=True):
                for layer, state in states.items():
                    if (place := first_not_finite(state)) is not None:
                        raise _not_finite(model, layer, batch.rows, place)

    def _units(self, examples: Examples) -> str | None:
        if examples.words_by not in self._known_units:
            self._known_units[examples.words_by] = units_of(self.reading, self.models[0], examples)
        return self._known_units[examples.words_by]


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
    streamer = Streamer(many, layers, Reading(**reading), batch_tokens)
    title = " + ".join(model.name for model in many)
    if isinstance(examples, Examples):
        return streamer.feed(examples, consumers, title)
    return streamer.feed_texts(checked_texts(examples), consumers, title)


def checked_texts(texts: Any) -> Iterator[str]:
    """The texts of an iterable, or the error that says what is not one."""
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        raise InputError(
            f"{type(texts).__name__} was given as the texts to stream; give the examples of a task, such as "
            'ls.task("sst2").split("train"), or an iterable of texts.'
        )
    return (_checked(text, row) for row, text in enumerate(texts))


def _checked(text: Any, row: int) -> str:
    if not isinstance(text, str):
        raise InputError(f"Text {row} of the stream is a {type(text).__name__}; every text must be a string.")
    return text


def units_of(reading: Reading, model: Model, examples: Examples) -> str | None:
    """Which part of a text a row is: a word, a token of a certain tokenizer, or None where it is the whole text.

    Words by an expression are others than those between spaces.
    """
    if reading.pool == "tokens":
        return f"token of {tokenizer_identity(model.require_tokenizer())[:12]}"
    if reading.pool != "words":
        return None
    return "word" if examples.words_by in (None, WHITESPACE) else f"word by {examples.words_by}"


def _sums(batch: Batch) -> Tensor:
    """The sum of every state of a batch, of all models and layers: one number, left on the device."""
    totals = [state.sum() for states in batch.states for state in states.values()]
    return torch.stack([total.to(totals[0].device) for total in totals]).sum()


def _not_finite(model: Model, layer: int, rows: Rows, place: int) -> DataError:
    return DataError(
        f"Layer {layer} of {model.name} is not finite for row {rows.row[place]} of {rows.task} ({rows.split}); the "
        "weights are broken or the float type is too small for them."
    )
