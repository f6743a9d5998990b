"""The one loop over texts, through which hidden states, attention, answers and frozen blocks' output all go.

Texts are tokenised a window at a time, in another thread while earlier windows run; within a window they are batched by
what they cost, and batches too are made ahead. Nothing here asks the device for a value, since the host would wait for
it. What of the texts is not read is counted on the way, and reported once at the end.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, repeat
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np
import torch

from layerscope.data import Examples
from layerscope.distributed import Team
from layerscope.errors import InputError, is_out_of_memory, log
from layerscope.extraction.encoding import choices_of, encode, texts_of
from layerscope.extraction.items import Item, Items
from layerscope.extraction.pooling import Reading
from layerscope.models import Model
from layerscope.models.architecture import block_modules
from layerscope.models.fingerprint import tokenizer_identity
from layerscope.models.wrap import WrappedModel
from layerscope.progress import progress

_AHEAD = 4  # batches that are made and not yet run

S = TypeVar("S")
T = TypeVar("T")


class Batches:
    """Puts portions of similar cost into batches under a budget, which is halved where memory runs out."""

    def __init__(self, budget: int, most: int | None = None, unit: str = "attention weights") -> None:
        if budget < 1:
            raise InputError(f"batch_tokens is {budget}; it must be at least 1.")
        self.budget = budget
        self._most = most  # portions per batch
        self._unit = unit  # what costs are counted in

    def over(
        self,
        costs: np.ndarray,
        run: Callable[[Any], T],
        kinds: np.ndarray | None = None,
        prepare: Callable[[np.ndarray], Any] | None = None,
    ) -> Iterator[tuple[np.ndarray, T]]:
        """Yield the places of each batch and what `run(places)` returned.

        The costliest come first, so that memory runs out at once or never. Only portions of one kind share a batch, and
        those of kind 0 are left out. With `prepare`, `run` is given what that made of the places; it works ahead, in
        another thread.
        """
        for kind in [None] if kinds is None else np.unique(kinds[kinds > 0])[::-1]:
            waiting = np.arange(len(costs)) if kind is None or kinds is None else np.flatnonzero(kinds == kind)
            waiting = waiting[np.argsort(-costs[waiting], kind="stable")]
            while len(waiting):
                for places, result in self._until_memory_runs_out(waiting, costs, run, prepare):
                    yield places, result
                    waiting = waiting[len(places) :]

    def _until_memory_runs_out(
        self,
        waiting: np.ndarray,
        costs: np.ndarray,
        run: Callable[[Any], T],
        prepare: Callable[[np.ndarray], Any] | None,
    ) -> Iterator[tuple[np.ndarray, T]]:
        """Run the batches that the present budget makes, up to the first that does not fit, then lower the budget."""
        planned = self._planned(waiting, costs)
        made = ((p, p) for p in planned) if prepare is None else ahead(planned, lambda p: (p, prepare(p)), _AHEAD)
        for places, ready in made:
            try:
                result = run(ready)
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                self._halve(len(places), int(costs[places[0]]), error)
                return
            yield places, result

    def _planned(self, waiting: np.ndarray, costs: np.ndarray) -> list[np.ndarray]:
        """Return the places that wait, sorted by cost, in batches that fit into the budget."""
        batches, start = [], 0
        while start < len(waiting):
            count = max(1, self.budget // max(1, int(costs[waiting[start]])))
            batches.append(waiting[start : start + min(count, self._most or count)])
            start += len(batches[-1])
        return batches

    def _halve(self, portions: int, cost: int, error: Exception) -> None:
        """Halve the budget after a batch that did not fit, or raise InputError where it had a single text."""
        if portions == 1:
            raise InputError(
                f"A single text of {cost} {self._unit} does not fit into memory; lower max_length or use another "
                "device."
            ) from error
        self.budget = max(1, portions // 2) * max(1, cost)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        log.warning("Out of memory; going on with %d texts of this length per batch.", max(1, portions // 2))


def ahead(parts: Iterable[S], prepare: Callable[[S], T], depth: int = 1) -> Iterator[T]:
    """Yield `prepare(part)` of every part in order; while one is used, up to `depth` more are made in another thread.

    The parts themselves are iterated over in that thread too.
    """
    coming = iter(parts)
    thread = ThreadPoolExecutor(1)
    waiting: deque[Future[list[T]]] = deque()

    def make() -> list[T]:
        """Prepare the next part, if there is one."""
        return [prepare(part) for part in islice(coming, 1)]

    try:
        waiting.extend(thread.submit(make) for _ in range(depth + 1))
        while ready := waiting.popleft().result():
            yield ready[0]
            del ready  # it may be large, and is no longer wanted while the next one is waited for
            waiting.append(thread.submit(make))
    finally:
        thread.shutdown(wait=True, cancel_futures=True)


@dataclass
class Tally:
    """Counts of the rows that texts became, and of what was not read."""

    rows: int = 0
    truncated: int = 0  # texts longer than max_length, in any model
    words_left_out: int = 0  # words that some model does not see whole

    def add(self, other: Tally) -> None:
        self.rows += other.rows
        self.truncated += other.truncated
        self.words_left_out += other.words_left_out


def cut_texts(examples: Examples, per_model: Sequence[Items]) -> int:
    """Return how many texts are cut off for some model, in any of their choices."""
    cut = np.any([items.truncated for items in per_model], axis=0)
    return len(np.unique(texts_of(examples)[cut]))


def note_unread(tally: Tally, examples: Examples, models: Sequence[Model], max_length: int) -> None:
    """Warn about what of the examples some model has not read, if anything; `tally` is this process's part."""
    team, total = Team.current(), Tally()
    for part in team.gather(tally):
        total.add(part)
    if team.is_main:
        limit = min(max_length, *(model.positions or max_length for model in models))
        note_cut(total.truncated, len(examples), examples.task, limit)
        note_left_out(total.words_left_out)


def note_left_out(words: int) -> None:
    """Warn about dropped words, if any."""
    if words:
        log.warning("%d words are left out: they are cut off or have no token.", words)


def note_cut(count: int, texts: int, task: str, limit: int) -> None:
    """Warn about texts that are cut off, if any."""
    if count:
        log.warning("%d of %d texts of %s are cut off at %d tokens.", count, texts, task, limit)


_ON_CPU = 1024  # tokens per batch, padding included: small batches stay in a CPU's caches
_LEAST, _MOST = 4096, 32768  # the same on CUDA
_ELSEWHERE = 16384  # the same on other devices
# On a GPU: parameters times tokens of a batch in float32. That takes long enough (60 ms on an H200) that the overhead
# of a batch is small, and larger batches would only have more padding.
_WORK = 1.4e12
_HALF = 8  # times as much in 16 bits
# Texts that are tokenised and sorted together on CUDA, by the tokens of a batch: how many the first window has, and how
# many times larger each next one is. Nothing can run before the first window is tokenised, and the next must be ready
# when it has run, or the device waits. So the first is small, and windows grow slowly where a batch has many tokens,
# since the model is then small and quick.
_FIRST = {4096: (1024, 16), 8192: (1536, 5), 16384: (1536, 5), 32768: (2048, 2)}
_LARGEST = 65536


def block_parameters(model: Model) -> int:
    """Return how many parameters a token passes: those of blocks, as often as they run; all of a wrapped network."""
    wrapped = isinstance(model, WrappedModel)
    blocks = [model.network] if wrapped else block_modules(model.network.base_model, model.architecture)
    return sum(parameter.numel() for block in blocks for parameter in block.parameters())


def growing_windows(tokens: int, most: int | None = None) -> Iterator[int]:
    """Yield how many texts each window has, `most` at most, where an ordinary batch has this many tokens."""
    size, times = _FIRST[max(_LEAST, tokens)]
    most = _LARGEST if most is None else most
    while size < most:
        yield size
        size *= times
    yield from repeat(most)


def default_tokens(model: Model) -> int:
    """Return the tokens of an ordinary batch for a model on its device: a power of two."""
    if model.device.type == "cpu":
        return _ON_CPU
    if model.device.type != "cuda":
        return _ELSEWHERE
    return gpu_tokens(model)


def gpu_tokens(model: Model) -> int:
    """Return the tokens of an ordinary batch for a model on a GPU."""
    work = _WORK * (_HALF if model.network.dtype.itemsize == 2 else 1)
    tokens = work / max(1, block_parameters(model))
    return int(2 ** round(math.log2(min(max(tokens, _LEAST), _MOST))))


WINDOW = 4096  # texts that are tokenised and sorted together on a CPU
_CHARACTERS = 1 << 23  # of a window, at most, unless the next allows for more
_CHARACTERS_PER_TEXT = 256  # of a window, on average
_WAITING = 2  # windows that are tokenised and not yet run, where a device must not wait for the host
_WAITING_ON_CPU = 1

Advance = Callable[[float], None]
Encoder = Callable[[Model, Examples, Reading], Items | Sequence[Item]]
Portions = tuple[np.ndarray, np.ndarray | None]  # the cost of each portion, and its kind: only one kind in a batch


@dataclass
class Window:
    """Some examples with each model's tokens: one item per text, or one per choice."""

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
        """Return the items of every model at some places."""
        return [items.at(places) for items in self.items]


def by_item(window: Window) -> Portions:
    """Return every item as a portion, whose cost is its length for the model that has most tokens for it."""
    return np.max([items.lengths for items in window.items], axis=0), None


@dataclass
class Loop:
    """Runs several models over the same texts, in the same batches."""

    models: Sequence[Model]
    reading: Reading
    batches: Batches
    encoder: Encoder = encode  # makes items of examples: one per text, or one per choice
    largest: int | None = None  # texts of a window, at most

    @staticmethod
    def over_tokens(
        models: Sequence[Model],
        reading: Reading,
        tokens: int | None = None,
        most: int | None = None,
        encoder: Encoder = encode,
    ) -> Loop:
        """Return a loop whose batches have at most this many tokens, or as many as suit the devices."""
        default = min(default_tokens(model) for model in models)
        return Loop(models, reading, Batches(default if tokens is None else tokens, most, "tokens"), encoder)

    def over(
        self,
        examples: Examples,
        run: Callable[..., T],
        title: str,
        portions: Callable[[Window], Portions] = by_item,
        prepare: Callable[[Window, np.ndarray], Any] | None = None,
    ) -> Iterator[tuple[Window, np.ndarray, T]]:
        """Yield what `run(window, places)` returns for all batches (see `through`), with a progress bar."""
        for window, advance in self.each_window(examples, title):
            for places, result in self.through(window, run, portions, advance, prepare):
                yield window, places, result
            del window

    def each_window(self, examples: Examples, title: str) -> Iterator[tuple[Window, Advance]]:
        """Yield the windows of examples, for `through`, each with the function that moves the progress bar."""
        with progress(title, len(examples)) as advance:
            for window in self.windows(self.parts(examples)):
                yield window, advance
                del window

    def parts(self, examples: Examples) -> Iterator[Examples]:
        """Return the examples, a window at a time."""
        return in_parts(examples, self._sizes())

    def parts_of_stream(self, texts: Iterable[str]) -> Iterator[Examples]:
        """Return texts that come one after the other, however many there are, a window at a time."""
        return stream_in_parts(texts, self._sizes())

    def _sizes(self) -> Iterator[int]:
        """Return how many texts the windows have: a constant on a CPU, growing numbers elsewhere."""
        return repeat(WINDOW) if self.on_cpu else growing_windows(min(map(default_tokens, self.models)), self.largest)

    @property
    def on_cpu(self) -> bool:
        """Whether every model computes on the host, so that nothing is ever under way elsewhere."""
        return all(model.device.type == "cpu" for model in self.models)

    def windows(self, parts: Iterable[Examples]) -> Iterator[Window]:
        """Yield the parts as windows; while one goes through the models, the next are tokenised in another thread."""
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
        """Run one window, and yield the places of each batch's portions with what `run(window, places)` returned.

        With `prepare`, `run` is given what `prepare(window, places)` made ahead, in another thread.
        """
        costs, kinds = portions(window)
        kinds = self._separated(window, len(costs), kinds)
        if prepare is None:
            results = self.batches.over(costs, lambda places: run(window, places), kinds)
        else:
            results = self.batches.over(costs, run, kinds, lambda places: prepare(window, places))
        for places, result in results:
            yield places, result
            advance(len(places) * len(window.examples) / len(costs))

    def _separated(self, window: Window, count: int, kinds: np.ndarray | None) -> np.ndarray | None:
        """Return the kinds of `count` portions, split further so that texts which must not share a batch do not.

        Those are texts of different lengths where a model's states change with padding, and short texts and long ones
        where a long text changes how all others of its batch are read.
        """
        apart = []
        for model, items in zip(self.models, window.items, strict=True):
            if model.architecture.unpadded:
                apart.append(items.lengths)
            elif model.long_above is not None:
                is_long = items.lengths > model.long_above
                apart.append(is_long if len(is_long) == count else np.bincount(window.text, is_long) > 0)
        if not apart:
            return kinds
        before = np.ones(count, np.int64) if kinds is None else kinds
        numbers = np.unique(np.vstack([before, *apart]), axis=1, return_inverse=True)[1].reshape(-1) + 1
        return np.where(before > 0, numbers, 0)

    def items(self, examples: Examples) -> list[Items]:
        """Return each model's tokens of all examples at once, for callers that use them in another order."""
        windows = [window.items for window in self.windows(parts_of(examples))]
        return [Items.join(parts) for parts in zip(*windows, strict=True)]

    def _encoded(self, examples: Examples) -> Window:
        """Return the window of some examples, with the rows that all models have."""
        if self.reading.pool == "words":
            examples = examples.in_words()
        items = [Items.from_list(self.encoder(model, examples, self.reading)) for model in self.models]
        # Tokens of different tokenizers are not the same rows.
        if self.reading.pool == "tokens" and len(self.models) > 1 and not self._one_tokenizer:
            raise InputError(
                "The pool 'tokens' needs models with one and the same tokenizer; for models with different "
                "tokenizers use the pool 'words'."
            )
        window = Window(examples, items)
        agree(window, self.reading)
        return window

    @cached_property
    def _one_tokenizer(self) -> bool:
        """Whether all models have the same tokenizer; cached, as every window asks."""
        return len({tokenizer_identity(model.require_tokenizer()) for model in self.models}) == 1


def parts_of(examples: Examples) -> Iterator[Examples]:
    """Return the examples in parts of one size."""
    return (examples.take(slice(start, start + WINDOW)) for start in range(0, len(examples), WINDOW))


def in_parts(examples: Examples, sizes: Iterator[int]) -> Iterator[Examples]:
    """Yield the examples in parts of these sizes, smaller where texts are long; a short rest goes with the last."""
    start = 0
    while start < len(examples):
        size, rest = next(sizes), len(examples) - start
        part = examples.take(slice(start, start + (rest if rest <= 1.5 * size else size)))
        if (count := _within(part.texts, size)) < len(part):
            part = part.take(slice(count))
        yield part
        start += len(part)


def stream_in_parts(texts: Iterable[str], sizes: Iterator[int]) -> Iterator[Examples]:
    """Yield texts as examples without labels, numbered from 0, in parts of these sizes; one part is in memory."""
    coming, start = iter(texts), 0
    waiting: list[str] = []
    name = f"stream {uuid4().hex}"  # in place of a fingerprint, which is not known before the stream's end
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
    """Return how many of the texts, counted from the first, a window of that size has room for."""
    ends = np.cumsum([len(text) for text in texts])
    return max(1, int(np.searchsorted(ends, max(_CHARACTERS, _CHARACTERS_PER_TEXT * size), side="right")))


def agree(window: Window, reading: Reading) -> None:
    """Keep only rows that every model has, and count the others: a word cut off for one model is left out for all."""
    window.tally.truncated = cut_texts(window.examples, window.items)
    if reading.pool == "words":
        assert window.examples.words is not None
        if len(window.items) > 1:
            window.items = common_rows(window.items)
        words = sum(map(len, window.examples.words))
        window.tally.words_left_out = words - int(window.items[0].rows.sum())


def common_rows(per_model: Sequence[Items]) -> list[Items]:
    """Return the items of several models with only the rows that all of them have."""
    most = max(int(items.unit.max(initial=0)) for items in per_model) + 1
    numbers = [np.repeat(np.arange(len(items)), items.rows) * most + items.unit for items in per_model]
    common = numbers[0]
    for more in numbers[1:]:
        common = np.intersect1d(common, more)
    return [items.keep(np.isin(rows, common)) for items, rows in zip(per_model, numbers, strict=True)]
