"""The one loop over texts: window, tokenise, sort, batch, run, hand over.

Hidden states, attention, answers and the frozen blocks' output all go through it. Texts are tokenised a window at a
time, in another thread while the windows before are run; within a window they are batched by what they cost, and the
batches too are made ahead. Nothing here asks the device for a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, repeat
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np

from layerscope.data import Examples
from layerscope.errors import InputError
from layerscope.extraction.batches import Batches, ahead
from layerscope.extraction.costs import default_tokens, growing_windows
from layerscope.extraction.encode import choices_of, encode, texts_of
from layerscope.extraction.items import Item, Items
from layerscope.extraction.reading import Reading
from layerscope.extraction.tally import Tally, cut_texts
from layerscope.models import Model
from layerscope.models.identity import tokenizer_identity
from layerscope.progress import progress

WINDOW = 4096  # texts that are tokenised and sorted together on a CPU
_CHARACTERS = 1 << 23  # of a window
_CHARACTERS_PER_TEXT = 256  # of a window of so many texts that this allows for more
_WAITING = 2  # windows that are tokenised and not yet run, where a device must not wait for the host
_WAITING_ON_CPU = 1

T = TypeVar("T")
Advance = Callable[[float], None]
Encoder = Callable[[Model, Examples, Reading], Items | Sequence[Item]]
Portions = tuple[np.ndarray, np.ndarray | None]  # the cost of each portion, and its kind: only one kind in a batch


@dataclass
class Window:
    """Examples with each model's tokens: one item per text, or one per choice."""

    examples: Examples
    items: list[Items]  # per model
    tally: Tally = field(default_factory=Tally)
    start: int = 0  # items before this window

    @cached_property
    def text(self) -> np.ndarray:
        """For every item the position of its example in the window."""
        return texts_of(self.examples)

    @cached_property
    def choice(self) -> np.ndarray | None:
        """For every item the number of its choice, or None where there are no choices."""
        return choices_of(self.examples)

    def chosen(self, places: np.ndarray) -> list[Items]:
        """Some items of every model."""
        return [items.at(places) for items in self.items]


def by_item(window: Window) -> Portions:
    """Every item by itself, as long as it is for the model with most tokens."""
    return np.max([items.lengths for items in window.items], axis=0), None


@dataclass
class Loop:
    """Several models over the same texts, in the same batches."""

    models: Sequence[Model]
    reading: Reading
    batches: Batches
    encoder: Encoder = encode  # what makes items of examples: one per text, or one per choice
    largest: int | None = None  # texts of a window, at most

    @staticmethod
    def over_tokens(
        models: Sequence[Model],
        reading: Reading,
        tokens: int | None = None,
        most: int | None = None,
        encoder: Encoder = encode,
    ) -> Loop:
        """A loop whose batches have at most so many tokens (what suits the devices if not given)."""
        usual = min(default_tokens(model) for model in models)
        return Loop(models, reading, Batches(usual if tokens is None else tokens, most, "tokens"), encoder)

    def over(
        self,
        examples: Examples,
        run: Callable[..., T],
        title: str,
        portions: Callable[[Window], Portions] = by_item,
        prepare: Callable[[Window, np.ndarray], Any] | None = None,
    ) -> Iterator[tuple[Window, np.ndarray, T]]:
        """What `run(window, places)` gives for every batch of all windows, with a progress bar; see `through`."""
        for window, advance in self.each_window(examples, title):
            for places, result in self.through(window, run, portions, advance, prepare):
                yield window, places, result
            del window

    def each_window(self, examples: Examples, title: str) -> Iterator[tuple[Window, Advance]]:
        """The windows of some examples, for `through`, and how a progress bar is told what is done of them."""
        with progress(title, len(examples)) as advance:
            for window in self.windows(self.parts(examples)):
                yield window, advance
                del window

    def parts(self, examples: Examples) -> Iterator[Examples]:
        """The examples a window at a time."""
        return in_parts(examples, self._sizes())

    def parts_of_stream(self, texts: Iterable[str]) -> Iterator[Examples]:
        """The same of texts that come one after the other, however many there are."""
        return stream_in_parts(texts, self._sizes())

    def _sizes(self) -> Iterator[int]:
        """How many texts the windows have: always as many on a CPU, more and more where batches are large."""
        return repeat(WINDOW) if self.on_cpu else growing_windows(min(map(default_tokens, self.models)), self.largest)

    @property
    def on_cpu(self) -> bool:
        """Whether every model computes on the host, so that nothing is ever under way elsewhere."""
        return all(model.device.type == "cpu" for model in self.models)

    def windows(self, parts: Iterable[Examples]) -> Iterator[Window]:
        """The parts as windows; while one goes through the models, further ones are tokenised in another thread."""
        start = 0
        for window in ahead(parts, self._encoded, _WAITING_ON_CPU if self.on_cpu else _WAITING):
            window.start = start
            start += len(window.items[0])
            yield window
            del window  # it is large, and no longer wanted while the next one is waited for

    def through(
        self,
        window: Window,
        run: Callable[..., T],
        portions: Callable[[Window], Portions] = by_item,
        advance: Advance = lambda _: None,
        prepare: Callable[[Window, np.ndarray], Any] | None = None,
    ) -> Iterator[tuple[np.ndarray, T]]:
        """The same for one window: the places of each batch's portions, and what came out.

        With `prepare`, `run` is given what `prepare(window, places)` made ahead, in another thread.
        """
        costs, kinds = portions(window)
        kinds = self._read_alike(window, len(costs), kinds)
        if prepare is None:
            results = self.batches.over(costs, lambda places: run(window, places), kinds)
        else:
            results = self.batches.over(costs, run, kinds, lambda places: prepare(window, places))
        for places, result in results:
            yield places, result
            advance(len(places) * len(window.examples) / len(costs))

    def _read_alike(self, window: Window, count: int, kinds: np.ndarray | None) -> np.ndarray | None:
        """Kinds of `count` portions that also tell apart what must not share a batch.

        That is texts of different lengths where a model's states change with padding, and short texts and long ones
        where a long text changes how all others of its batch are read.
        """
        apart = []
        for model, items in zip(self.models, window.items, strict=True):
            if model.anatomy.unpadded:
                apart.append(items.lengths)
            elif model.long_above is not None:
                is_long = items.lengths > model.long_above
                apart.append(is_long if len(is_long) == count else np.bincount(window.text, is_long) > 0)
        if not apart:
            return kinds
        own = np.ones(count, np.int64) if kinds is None else kinds
        numbers = np.unique(np.vstack([own, *apart]), axis=1, return_inverse=True)[1].reshape(-1) + 1
        return np.where(own > 0, numbers, 0)

    def items(self, examples: Examples) -> list[Items]:
        """Each model's tokens of all examples at once, for what comes back to them in an order of its own."""
        windows = [window.items for window in self.windows(parts_of(examples))]
        return [Items.join(parts) for parts in zip(*windows, strict=True)]

    def _encoded(self, examples: Examples) -> Window:
        if self.reading.pool == "words":
            examples = examples.in_words()
        window = Window(examples, [Items.of(self.encoder(model, examples, self.reading)) for model in self.models])
        self._check_units()
        agree(window, self.reading)
        return window

    def _check_units(self) -> None:
        """Tokens of different tokenizers are not the same rows."""
        if self.reading.pool == "tokens" and len(self.models) > 1 and not self._one_tokenizer:
            raise InputError(
                "The pool 'tokens' needs models with one and the same tokenizer; for models with different "
                "tokenizers use the pool 'words'."
            )

    @cached_property
    def _one_tokenizer(self) -> bool:
        return len({tokenizer_identity(model.require_tokenizer()) for model in self.models}) == 1


def parts_of(examples: Examples) -> Iterator[Examples]:
    """The examples in parts of one size."""
    return (examples.take(slice(start, start + WINDOW)) for start in range(0, len(examples), WINDOW))


def in_parts(examples: Examples, sizes: Iterator[int]) -> Iterator[Examples]:
    """The examples in parts of these sizes, or of fewer where the texts are long; a short rest goes with the last."""
    start = 0
    while start < len(examples):
        size, rest = next(sizes), len(examples) - start
        part = examples.take(slice(start, start + (rest if rest <= 1.5 * size else size)))
        if (count := _within(part.texts, size)) < len(part):
            part = part.take(slice(count))
        yield part
        start += len(part)


def stream_in_parts(texts: Iterable[str], sizes: Iterator[int]) -> Iterator[Examples]:
    """Texts as examples without labels, numbered from 0, in parts of these sizes; only the part is in memory."""
    coming, start = iter(texts), 0
    waiting: list[str] = []
    name = f"stream {uuid4().hex}"  # what it holds is not known before its end
    for size in sizes:
        waiting += islice(coming, max(0, size - len(waiting)))
        if not waiting:
            return
        count = _within(waiting, size)
        part, waiting = waiting[:count], waiting[count:]
        examples = Examples("texts", "stream", part, np.arange(start, start + count))
        object.__setattr__(examples, "_whole", (name, name))
        yield examples
        start += count


def _within(texts: Sequence[str], size: int) -> int:
    """How many of the texts, from the first on, a window of that size has room for."""
    ends = np.cumsum([len(text) for text in texts])
    return max(1, int(np.searchsorted(ends, max(_CHARACTERS, _CHARACTERS_PER_TEXT * size), side="right")))


def agree(window: Window, reading: Reading) -> None:
    """Keep the rows that every model has: a word cut off for one model is left out for all."""
    window.tally.truncated = cut_texts(window.examples, window.items)
    if reading.pool == "words":
        assert window.examples.words is not None
        if len(window.items) > 1:
            window.items = common_rows(window.items)
        words = sum(map(len, window.examples.words))
        window.tally.words_left_out = words - int(window.items[0].rows.sum())


def common_rows(per_model: Sequence[Items]) -> list[Items]:
    """The items of several models with the rows that all of them have."""
    most = max(int(items.unit.max(initial=0)) for items in per_model) + 1
    numbers = [np.repeat(np.arange(len(items)), items.rows) * most + items.unit for items in per_model]
    common = numbers[0]
    for more in numbers[1:]:
        common = np.intersect1d(common, more)
    return [items.keep(np.isin(own, common)) for items, own in zip(per_model, numbers, strict=True)]
