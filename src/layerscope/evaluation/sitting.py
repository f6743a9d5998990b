"""A model examined on a split, whatever is asked: the loop over its texts, and what every kind of exam owes.

An exam gives a few numbers for each row (logits of a text, the loss and the number of its tokens, a cosine), from which
every score follows. What is run is the subject: the network, or only its body where the head is asked apart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from torch import Tensor

from layerscope.data import Examples, Task, metrics
from layerscope.errors import InputError, ModelError
from layerscope.evaluation.score import Score
from layerscope.extraction.encode import encode
from layerscope.extraction.forward import Runner
from layerscope.extraction.items import Item, Items
from layerscope.extraction.loop import Encoder, Loop, Portions, Window
from layerscope.extraction.packing import Coming, Packed
from layerscope.extraction.reading import Reading
from layerscope.extraction.tally import note_cut
from layerscope.models import Model
from layerscope.models.anatomy import evaluating
from layerscope.results import provenance_of
from layerscope.team import Team

T = TypeVar("T")
Read = Callable[[Any], Tensor]  # what the subject gives for a batch -> (texts, numbers)
Act = Callable[[dict[str, Tensor], Read], Tensor]  # inputs of a batch, and how to read -> (.., texts, numbers)

LONGEST = 512  # tokens, where the model allows more and nothing else is asked for


@dataclass
class Question:
    """Some texts on the host, ready for the device."""

    items: Items  # those of a text one after the other
    texts: int
    count: int  # items of each text
    packed: Packed
    more: tuple[str, ...]  # names of what is packed beside the network's inputs


@dataclass
class Sitting(ABC):
    """One model, one split: which texts, how they are read, and what the answers are worth."""

    model: Model
    task: Task
    examples: Examples
    max_length: int | None = None
    batch_tokens: int | None = None
    note: str = ""  # which rows these are, where they are not all of the split's
    metric_name: str | None = None  # another metric than the usual one: as the task asks, if not given
    padding_left: ClassVar[bool] = False
    usual: ClassVar[int] = LONGEST  # tokens of a text, where nothing else is asked for
    largest: ClassVar[int | None] = None  # texts of a window
    scores: ClassVar[tuple[str, ...]] = ()  # the metrics that there are, the usual one first
    rows_are: ClassVar[str] = "texts"

    def __post_init__(self) -> None:
        self.metric_name = self.metric_name or self.task.asked_metric
        if self.metric_name is not None and self.metric_name not in self.allowed:
            raise InputError(
                f"{self.metric_name} is not a metric of {self.model.name} on {self.task.name}, whose answers are "
                f"scored by {', '.join(self.allowed)}."
            )
        if self.model.anatomy.unpadded and self.examples.choices is not None:
            raise ModelError(
                f"The states of {self.model.name} ({self.model.anatomy.family}) change with padding, and the choices "
                "of one text are padded to one length; give a classifier or a bare encoder of this family, or another "
                "family."
            )
        self.reading = self._reading(self._longest())
        self._runner = Runner(self.subject, [0], self.reading)
        self._loop = Loop.over_tokens([self.subject], self.reading, self.batch_tokens, self._most, self._encoded)
        self._loop.largest = self.largest

    @property
    def allowed(self) -> tuple[str, ...]:
        """The metrics that the answers can be scored by."""
        return self.scores

    @property
    def metric(self) -> str:
        """What the score is."""
        return self.metric_name or self.allowed[0]

    @property
    def higher_is_better(self) -> bool:
        return metrics.higher_is_better(self.metric)

    @property
    def subject(self) -> Model:
        """What is run on a batch."""
        return self.model

    @property
    def _most(self) -> int | None:
        """How many texts may be in a batch."""
        return None

    def _longest(self) -> int:
        return min(self.model.positions or self.usual, self.usual) if self.max_length is None else self.max_length

    def _reading(self, longest: int) -> Reading:
        return Reading("cls", max_length=longest)

    def _encoded(self, model: Model, examples: Examples, reading: Reading) -> Items | list[Item]:
        """The items of some examples: one per text, or one per choice."""
        return encode(model, examples, reading)

    @property
    def texts(self) -> np.ndarray:
        """(n,) the text that each row is of: rows of one text stay together when rows are dealt out."""
        return np.arange(len(self.examples))

    @property
    def classes(self) -> np.ndarray | None:
        """(n,) the class of each row, where it has one: so that rows are dealt out in proportion."""
        return None

    def spec(self) -> dict[str, Any]:
        """What decides the answers, for keys of the store."""
        parts = {"model": self.model.spec(), "examples": self.examples.spec(), "reading": self.reading.spec()}
        return {**parts, "asked": type(self).__name__, **self._settings()}

    def _settings(self) -> dict[str, Any]:
        """What else decides the answers."""
        return {}

    def provenance(self, **settings: Any) -> dict[str, Any]:
        """Where results of this exam come from."""
        about = {"metric": self.metric, "max_length": self.reading.max_length, **self._told(), **settings}
        if self.note:
            about["rows"] = self.note
        return provenance_of([self.model], self.examples, about)

    def _told(self) -> dict[str, Any]:
        """How the model was asked, in the provenance of results."""
        return {}

    def of(self, model: Model) -> Self:
        """The same exam of another model with the same tokenizer and head."""
        import copy

        other = copy.copy(self)
        other.model = model
        other.__post_init__()
        return other

    def taken(self, rows: Any) -> Self:
        """The same exam on some of its rows, by a slice or positions; each keeps its identity."""
        import copy

        other = copy.copy(self)
        other.examples = self.examples.take(rows)
        other.__post_init__()
        return other

    def encoded(self) -> Items:
        """The items of all rows, in their order."""
        return self._loop.items(self.examples)[0]

    @property
    def encoder(self) -> Encoder:
        """What makes items of rows."""
        return self._encoded

    @property
    def ordinary_tokens(self) -> int:
        """Tokens of an ordinary batch."""
        return self._loop.batches.budget

    def logits(self, act: Act | None = None, title: str = "", note: bool = True) -> np.ndarray:
        """(.., n, numbers) in the data's order; `act` may answer for several models at once, in leading dimensions.

        Says how many of the texts are cut off, unless `note` is false.
        """
        answers, cut = self.answers(self.examples, act, title)
        if note:
            self.note_cut(cut)
        return answers

    def note_cut(self, count: int) -> None:
        """Say how many of the texts are cut off, where any is."""
        limit = min(self.reading.max_length, self.model.positions or self.reading.max_length)
        note_cut(count, len(self.examples), self.examples.task, limit)

    def answers_together(self, examples: Examples, act: Act | None = None, title: str = "") -> tuple[np.ndarray, int]:
        """As `answers`, for processes that come here together: they share the texts, and each gets all numbers."""
        team = Team.current()
        if team.size == 1:
            return self.answers(examples, act, title)
        own = examples.take(slice(team.rank, None, team.size))
        parts = team.gather(self.answers(own, act, title) if len(own) else None)
        there = [(rank, *part) for rank, part in enumerate(parts) if part is not None]
        width = max(numbers.shape[-1] for _, numbers, _ in there)
        first = there[0][1]
        whole = np.full((*first.shape[:-2], len(examples), width), -np.inf, dtype=first.dtype)
        for rank, numbers, _ in there:
            whole[..., rank :: team.size, : numbers.shape[-1]] = numbers
        return whole, sum(cut for _, _, cut in there)

    def answers(self, examples: Examples, act: Act | None = None, title: str = "") -> tuple[np.ndarray, int]:
        """The numbers of some examples, and how many of them are cut off."""
        title = title or f"{self.model.name} on {examples.task} ({examples.split})"
        answer = act or self._plain
        parts: list[np.ndarray] = []
        waiting: list[tuple[Window, list[tuple[np.ndarray, Coming]]]] = []
        cut = 0

        def run(question: Question) -> Coming:
            return Coming(self._answers(question, answer).float())

        with evaluating(self.model.network), self._runner.prepared():
            for window, advance in self._loop.each_window(examples, title):
                batches = list(self._loop.through(window, run, portions_of_texts, advance, self._question))
                parts += [self._read(*before) for before in waiting]  # when the next one is under way
                waiting = [(window, batches)]
                cut += window.tally.truncated
            parts += [self._read(*last) for last in waiting]
        return joined(parts), cut

    def _read(self, window: Window, batches: Sequence[tuple[np.ndarray, Coming]]) -> np.ndarray:
        """(.., texts of the window, numbers) from its batches; only here the device is waited for."""
        whole = np.empty(0, np.float32)
        for k, (places, result) in enumerate(batches):
            values = result.numpy()
            if not np.isfinite(values).all():
                raise ModelError(
                    f"The outputs of {self.model.name} are not finite for some texts of {window.examples.task} "
                    f"({window.examples.split}); the weights are broken or the float type is too small for them."
                )
            values = self._ordered(values)
            if not k:
                shape = (*values.shape[:-2], len(window.examples), self._width(window, values.shape[-1]))
                whole = np.full(shape, -np.inf, dtype=np.float32)
            whole[..., places, : values.shape[-1]] = values
        return whole

    def _plain(self, inputs: dict[str, Tensor], read: Read) -> Tensor:
        return read(self.subject.network(**inputs))

    def _question(self, window: Window, places: np.ndarray) -> Question:
        """Some texts, each with all its choices, ready for the device."""
        counts = _choices(window)
        first, count = (np.cumsum(counts) - counts)[places], int(counts[places[0]])
        items = window.items[0].at((first[:, None] + np.arange(count)).reshape(-1))
        more = self._more(items)
        return Question(
            items, len(places), count, self._runner.pack(items, more, padding_left=self.padding_left), tuple(more)
        )

    def _more(self, items: Items) -> dict[str, np.ndarray]:
        """What else is needed on the device to read the numbers: whole numbers by name, which no network knows."""
        return {}

    def _answers(self, question: Question, act: Act) -> Tensor:
        """(.., texts, numbers) of one batch."""
        with self._runner.ready(), question.packed.known_padding():
            inputs = question.packed.on_device()
            more = {name: inputs.pop(name) for name in question.more}
            shaped = self._shaped(inputs, question.texts, question.count)
            return self._told_apart(act(shaped, self._reader(question.items, inputs, more)), question)

    def over_batches(self, measure: Callable[[Items, dict[str, Tensor]], T], title: str) -> Iterator[T]:
        """What `measure(items, inputs)` makes of each batch of the texts, as the subject reads them."""

        def run(question: Question) -> T:
            with self._runner.ready(), question.packed.known_padding():
                inputs = question.packed.on_device()
                own = {name: value for name, value in inputs.items() if name not in question.more}
                return measure(question.items, self._shaped(own, question.texts, question.count))

        with evaluating(self.model.network), self._runner.prepared():
            for window, advance in self._loop.each_window(self.examples, title):
                for _, result in self._loop.through(window, run, portions_of_texts, advance, self._question):
                    yield result

    def tokens(self, most: int) -> float:
        """About how many tokens all texts have, judged by the first ones."""
        first = self.examples.take(slice(most))
        items = self._encoded(self.subject, first, self.reading)
        return sum(map(len, items)) * len(self.examples) / max(1, len(first))

    def _shaped(self, inputs: dict[str, Tensor], texts: int, count: int) -> dict[str, Tensor]:
        """The inputs as the subject takes them; `count` is how many items each text has."""
        return inputs

    def _told_apart(self, numbers: Tensor, question: Question) -> Tensor:
        """(.., texts, numbers) from what was read of the items."""
        return numbers

    @abstractmethod
    def _reader(self, items: Items, inputs: dict[str, Tensor], more: dict[str, Tensor]) -> Read:
        """How the numbers of a batch are read from what the subject gives for it."""

    def _ordered(self, values: np.ndarray) -> np.ndarray:
        """The numbers in the order in which they are kept."""
        return values

    def _width(self, window: Window, width: int) -> int:
        """How many numbers the rows of a window have, at most."""
        return width

    @abstractmethod
    def measured(self, answers: np.ndarray, rows: np.ndarray) -> dict[str, float]:
        """Every metric of (n, numbers) answers, over some rows."""

    def value(self, answers: np.ndarray, rows: Any = None) -> float:
        """The metric of (n, numbers) answers, over all rows or some."""
        return self.measured(answers, self._at(rows))[self.metric]

    @abstractmethod
    def interval(self, answers: np.ndarray, rows: Any = None) -> tuple[float, float]:
        """An interval for the metric, by the bootstrap over texts; NaN where there is only one."""

    def score(self, answers: np.ndarray, rows: Any = None, note: str = "") -> Score:
        """The metric as a result, with every other that fits; `note` says which rows these are."""
        at = self._at(rows)
        known = self.measured(answers, at)
        return Score(
            known[self.metric],
            metric=self.metric,
            metrics=known,
            n=len(at),
            majority=self._majority(at),
            provenance=self.provenance(),
            note="; ".join(part for part in (note, self.note) if part),
            rows_are=self.rows_are,
        )

    def _at(self, rows: Any) -> np.ndarray:
        return np.arange(len(self.examples)) if rows is None else np.asarray(rows)

    @property
    def majority(self) -> float:
        """The score of always giving the most frequent class; NaN where there are no classes."""
        return self._majority(self._at(None))

    def _majority(self, rows: np.ndarray) -> float:
        return float("nan")


def _choices(window: Window) -> np.ndarray:
    """How many items each text of a window has."""
    choices = window.examples.choices
    return np.ones(len(window.examples), np.int64) if choices is None else np.asarray([len(c) for c in choices])


def portions_of_texts(window: Window) -> Portions:
    """A text with all its choices is one portion; texts with the same number of choices go together."""
    counts = _choices(window)
    longest = np.maximum.reduceat(window.items[0].lengths, np.cumsum(counts) - counts)
    return counts * longest, counts


def joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """(.., n, numbers) of several windows in a row; where one has fewer choices, the rest are impossible."""
    most = max(part.shape[-1] for part in parts)
    wide = [np.pad(p, [(0, 0)] * (p.ndim - 1) + [(0, most - p.shape[-1])], constant_values=-np.inf) for p in parts]
    return np.concatenate(wide, axis=-2)
