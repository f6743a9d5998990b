"""The one loop over texts: window, tokenise, sort, batch, run, hand over.

Hidden states, attention, answers and the frozen blocks' output all go through it. Texts are tokenised a window at a
time, in another thread while the window before is run; within a window they are batched by what they cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch

from layerscope.data import Examples
from layerscope.errors import InputError, log
from layerscope.extraction.encode import Item, choices_of, encode, texts_of
from layerscope.extraction.reading import Reading
from layerscope.models import Model
from layerscope.models.identity import tokenizer_identity
from layerscope.progress import progress

WINDOW = 4096  # texts that are tokenised and sorted together
_BUDGET = {"cpu": 1024, "cuda": 16384}  # tokens per batch, padding included; on a CPU small batches stay in its caches

S = TypeVar("S")
T = TypeVar("T")
Advance = Callable[[float], None]
Encoder = Callable[[Model, Examples, Reading], list[Item]]
Portions = tuple[np.ndarray, np.ndarray | None]  # the cost of each portion, and its kind: only one kind in a batch


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
class Window:
    """Examples with each model's tokens: one item per text, or one per choice."""

    examples: Examples
    items: list[list[Item]]  # per model
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

    def chosen(self, places: np.ndarray) -> list[list[Item]]:
        """Some items of every model."""
        return [[items[i] for i in places] for items in self.items]


def by_item(window: Window) -> Portions:
    """Every item by itself, as long as it is for the model with most tokens."""
    return np.max([[len(item) for item in items] for items in window.items], axis=0), None


@dataclass
class Loop:
    """Several models over the same texts, in the same batches."""

    models: Sequence[Model]
    reading: Reading
    batches: Batches
    encoder: Encoder = encode  # what makes items of examples: one per text, or one per choice

    @staticmethod
    def over_tokens(
        models: Sequence[Model],
        reading: Reading,
        tokens: int | None = None,
        most: int | None = None,
        encoder: Encoder = encode,
    ) -> Loop:
        """A loop whose batches have at most so many tokens (what suits the devices if not given)."""
        usual = min(default_tokens(model.device) for model in models)
        return Loop(models, reading, Batches(usual if tokens is None else tokens, most, "tokens"), encoder)

    def over(
        self,
        examples: Examples,
        run: Callable[[Window, np.ndarray], T],
        title: str,
        portions: Callable[[Window], Portions] = by_item,
    ) -> Iterator[tuple[Window, np.ndarray, T]]:
        """What `run(window, places)` gives for every batch of all windows, with a progress bar."""
        with progress(title, len(examples)) as advance:
            for window in self.windows(parts_of(examples)):
                for places, result in self.through(window, run, portions, advance):
                    yield window, places, result

    def windows(self, parts: Iterable[Examples]) -> Iterator[Window]:
        """The parts as windows; while one goes through the models, the next is tokenised in another thread."""
        start = 0
        for window in ahead(parts, self._encoded):
            window.start = start
            start += len(window.items[0])
            yield window

    def through(
        self,
        window: Window,
        run: Callable[[Window, np.ndarray], T],
        portions: Callable[[Window], Portions] = by_item,
        advance: Advance = lambda _: None,
    ) -> Iterator[tuple[np.ndarray, T]]:
        """The same for one window: the places of each batch's portions, and what came out."""
        costs, kinds = portions(window)
        kinds = self._of_one_length(window, kinds)
        for places, result in self.batches.over(costs, lambda places: run(window, places), kinds):
            yield places, result
            advance(len(places) * len(window.examples) / len(costs))

    def _of_one_length(self, window: Window, kinds: np.ndarray | None) -> np.ndarray | None:
        """Kinds that tell lengths apart too, where a model's states change with padding."""
        strict = [items for model, items in zip(self.models, window.items, strict=True) if model.anatomy.unpadded]
        if not strict:
            return kinds
        lengths = np.asarray([[len(item) for item in items] for items in strict])
        own = np.ones(lengths.shape[1], np.int64) if kinds is None else kinds
        numbers = np.unique(np.vstack([own, lengths]), axis=1, return_inverse=True)[1].reshape(-1) + 1
        return np.where(own > 0, numbers, 0)

    def items(self, examples: Examples) -> list[list[Item]]:
        """Each model's tokens of all examples at once, for what comes back to them in an order of its own."""
        per_model: list[list[Item]] = [[] for _ in self.models]
        for window in self.windows(parts_of(examples)):
            for items, more in zip(per_model, window.items, strict=True):
                items.extend(more)
        return per_model

    def _encoded(self, examples: Examples) -> Window:
        if self.reading.pool == "words":
            examples = examples.in_words()
        window = Window(examples, [self.encoder(model, examples, self.reading) for model in self.models])
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
    """The examples a window at a time."""
    return (examples.take(slice(start, start + WINDOW)) for start in range(0, len(examples), WINDOW))


def agree(window: Window, reading: Reading) -> None:
    """Keep the rows that every model has: a word cut off for one model is left out for all."""
    tally, per_model = window.tally, window.items
    tally.truncated = cut_texts(window.examples, per_model)
    if reading.pool == "words":
        assert window.examples.words is not None
        for items, words in zip(zip(*per_model, strict=True), window.examples.words, strict=True):
            common = items[0].unit
            for item in items[1:]:
                common = np.intersect1d(common, item.unit)
            for item in items:
                item.keep(common)
            tally.words_left_out += len(words) - len(common)


def cut_texts(examples: Examples, per_model: Sequence[Sequence[Item]]) -> int:
    """How many texts are cut off for some model, in any of their choices."""
    cut = [any(item.truncated for item in items) for items in zip(*per_model, strict=True)]
    return len(np.unique(texts_of(examples)[cut]))


def note_cut(count: int, texts: int, task: str, limit: int) -> None:
    """Say how many of the texts that are used are cut off, where any is."""
    if count:
        log.warning("%d of %d texts of %s are cut off at %d tokens.", count, texts, task, limit)


def default_tokens(device: torch.device) -> int:
    """Tokens of an ordinary batch on a device."""
    return _BUDGET.get(device.type, 16384)


class Batches:
    """Puts portions of like cost into batches under a budget; where memory runs out, later batches are smaller."""

    def __init__(self, budget: int, most: int | None = None, unit: str = "attention weights") -> None:
        if budget < 1:
            raise InputError(f"batch_tokens is {budget}; it must be at least 1.")
        self.budget = budget
        self._most = most  # portions per batch
        self._unit = unit  # what costs are counted in

    def over(
        self, costs: np.ndarray, run: Callable[[np.ndarray], T], kinds: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, T]]:
        """Places of a batch and what `run(places)` gave, the costliest first: memory runs out at once or never.

        Only portions of one kind go together, and those of kind 0 are left out.
        """
        for kind in [None] if kinds is None else np.unique(kinds[kinds > 0])[::-1]:
            waiting = np.arange(len(costs)) if kind is None or kinds is None else np.flatnonzero(kinds == kind)
            waiting = waiting[np.argsort(-costs[waiting], kind="stable")]
            while len(waiting):
                count = max(1, self.budget // max(1, int(costs[waiting[0]])))
                places = waiting[: min(count, self._most or count)]
                try:
                    result = run(places)
                except (torch.OutOfMemoryError, RuntimeError) as error:
                    if not _is_out_of_memory(error):
                        raise
                    self._halve(len(places), int(costs[waiting[0]]), error)
                    continue
                yield places, result
                waiting = waiting[len(places) :]

    def _halve(self, portions: int, cost: int, error: Exception) -> None:
        if portions == 1:
            raise InputError(
                f"A single text of {cost} {self._unit} does not fit into memory; lower max_length or use another "
                "device."
            ) from error
        self.budget = max(1, portions // 2) * max(1, cost)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        log.warning("Out of memory; going on with %d texts of this length per batch.", max(1, portions // 2))


def ahead(parts: Iterable[S], prepare: Callable[[S], T]) -> Iterator[T]:
    """`prepare` of every part in order; while one is used, the next is prepared in another thread."""
    with ThreadPoolExecutor(1) as thread:
        coming = None
        for part in parts:
            ready, coming = coming, thread.submit(prepare, part)
            if ready is not None:
                yield ready.result()
        if coming is not None:
            yield coming.result()


def _is_out_of_memory(error: Exception) -> bool:
    text = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in text or "can't allocate memory" in text
