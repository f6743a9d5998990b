"""The base of every evaluator: it runs a model over the texts of a split and scores the answers.

An evaluator gives a few numbers for each row (the logits of a text, the loss and the number of its tokens, a cosine),
from which every score follows. What runs is the `subject`: the whole network, or only its body where the evaluator
applies the head itself.

`without_groups` scores the same answers without each of some groups of texts. Every evaluator of the same texts deals
them out to the same groups, so that a difference of two scores has a jackknife interval that is paired by text.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Self, TypeVar

import numpy as np
from torch import Tensor

from layerscope import metrics
from layerscope.data import Examples, Task
from layerscope.distributed import Team
from layerscope.errors import InputError, ModelError
from layerscope.evaluation.score import UNKNOWN, Score
from layerscope.extraction.encoding import encode
from layerscope.extraction.forward import Packed, PendingCopy, Runner
from layerscope.extraction.items import Item, Items
from layerscope.extraction.loop import Encoder, Loop, Portions, Window, note_cut
from layerscope.extraction.pooling import Reading
from layerscope.models import Model
from layerscope.models.architecture import evaluating
from layerscope.models.heads import HEADS, TASKS
from layerscope.resampling import folds
from layerscope.results import provenance_of

T = TypeVar("T")
Read = Callable[[Any], Tensor]  # what the subject gives for a batch -> (texts, numbers)
Act = Callable[[dict[str, Tensor], Read], Tensor]  # inputs of a batch, and how to read -> (.., texts, numbers)

LONGEST = 512  # tokens, where the model allows more and nothing else is asked for


@dataclass
class Question:
    """A batch of texts on the host, packed for the device."""

    items: Items  # the items of a text follow one another
    texts: int
    count: int  # items of each text
    packed: Packed
    more: tuple[str, ...]  # names of what is packed beside the network's inputs


def refuse(model: Model, task: Task, kind: str) -> NoReturn:
    """Raise InputError where a head and a task of this kind do not fit; the message names what would fit either."""
    name = f"{model.name} ({type(model.network).__name__})"
    head, (is_like, wanted) = HEADS[model.head], TASKS[kind]
    rest = f" {name} goes with {head.tasks}." if head.tasks else ""
    needs = f"{task.name} {is_like}, and {name} {head.words}. Such a task goes with {wanted}.{rest}"
    if not model.has_head and kind == "single":
        raise ModelError(f"{model.name} is a bare encoder: it has no head to evaluate. {needs}")
    raise InputError(needs)


@dataclass
class Evaluator(ABC):
    """Evaluates one model on one split: it decides how texts are read, runs the model and scores the answers."""

    model: Model
    task: Task
    examples: Examples
    max_length: int | None = None
    batch_tokens: int | None = None
    note: str = ""  # which rows these are, where they are not all of the split's
    metric_name: str | None = None  # the metric that was asked for; if not given, the task's own, else the usual one
    key: ClassVar[str]  # its name in keys of the store; it never changes, so that stored answers stay valid
    score_kind: ClassVar[str]  # what kind of number its scores are, in words
    padding_left: ClassVar[bool] = False
    usual: ClassVar[int] = LONGEST  # tokens of a text, where nothing else is asked for
    largest: ClassVar[int | None] = None  # texts of a window
    scores: ClassVar[tuple[str, ...]] = ()  # the names of its metrics, the usual one first
    rows_are: ClassVar[str] = "texts"
    undefined: ClassVar[str] = "every prediction or every label is the same"  # why a score is NaN
    rows_overlap: ClassVar[bool] = False  # whether the rows of a text may reach into the next one
    units_version: ClassVar[int] = 1  # raised when the same rows come to be resampled by other units
    not_healed: ClassVar[str] = ""  # why no model can be healed on it; messages put it after the task's name

    @classmethod
    def fits(cls, task: Task) -> bool:
        """Return whether the labels of a task of the right kind can be scored."""
        return True

    def __post_init__(self) -> None:
        self.metric_name = self.metric_name or self.task.asked_metric
        if self.metric_name is not None and self.metric_name not in self.allowed:
            raise InputError(
                f"{self.metric_name} is not a metric of {self.model.name} on {self.task.name}, whose answers are "
                f"scored by {', '.join(self.allowed)}."
            )
        if self.model.architecture.unpadded and self.examples.choices is not None:
            raise ModelError(
                f"The states of {self.model.name} ({self.model.architecture.family}) change with padding, and the "
                "choices of one text are padded to one length; give a classifier or a bare encoder of this family, or "
                "another family."
            )
        self.reading = self._reading(self._longest())
        self._runner = Runner(self.subject, [0], self.reading)
        self._loop = Loop.over_tokens([self.subject], self.reading, self.batch_tokens, self._most, self._encoded)
        self._loop.largest = self.largest

    @property
    def allowed(self) -> tuple[str, ...]:
        """The metrics by which the answers can be scored."""
        return self.scores

    @property
    def metric(self) -> str:
        """The name of the metric that the score is."""
        return self.metric_name or self.allowed[0]

    @property
    def higher_is_better(self) -> bool:
        return metrics.higher_is_better(self.metric)

    @property
    def subject(self) -> Model:
        """The model that runs on a batch."""
        return self.model

    @property
    def _most(self) -> int | None:
        """The largest number of texts in a batch; None where there is no limit."""
        return None

    def _longest(self) -> int:
        return min(self.model.positions or self.usual, self.usual) if self.max_length is None else self.max_length

    def _reading(self, longest: int) -> Reading:
        return Reading("cls", max_length=longest)

    def _encoded(self, model: Model, examples: Examples, reading: Reading) -> Items | list[Item]:
        """Return the items of some examples: one for each text, or one for each choice."""
        return encode(model, examples, reading)

    @property
    def texts(self) -> np.ndarray:
        """(n,) the number of each row's text; rows of one text stay together when rows are dealt out."""
        return np.arange(len(self.examples))

    def units(self, rows: Any = None) -> np.ndarray:
        """Return the number of the text by which each of some rows is resampled, or each of all."""
        return self.texts[self._at(rows)]

    def resampled(self, rows: Any = None) -> str:
        """Return what intervals and bounds on some rows are over where that is not texts, and why; else nothing."""
        return ""

    def _interval_note(self, rows: np.ndarray, score: float) -> str:
        """Return what the interval of a score is over where that is not texts, or why there is none."""
        if math.isnan(score):
            return "the score is undefined"
        if len(np.unique(self.units(rows))) < 2:
            return f"one {self.rows_are.removesuffix('s')} alone cannot be resampled"
        return self.resampled(rows)

    @property
    def text_count(self) -> int:
        """How many texts there are to deal out, the numbers of which are 0, 1, .."""
        return len(self.examples)

    def made_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the numbers of the texts that some rows are made of, which are all rows of their parts."""
        return rows

    def dealt(self, parts: np.ndarray) -> tuple[Self, np.ndarray]:
        """Return an evaluator with no row of two parts, and the part of each of its rows.

        `parts` is the part of each text; texts of a part below 0 are left out.
        """
        kept = np.flatnonzero(parts >= 0)
        return self if len(kept) == len(parts) else self.subset(kept), parts[kept]

    def by_rows(self) -> Self:
        """Return an evaluator whose rows are dealt out one by one, where its texts cannot be."""
        return self

    @property
    def classes(self) -> np.ndarray | None:
        """(n,) the class of each row, by which rows are dealt out in proportion; None where rows have no class."""
        return None

    def spec(self) -> dict[str, Any]:
        """Return everything that decides the answers, for keys of the store."""
        parts = {"model": self.model.spec(), "examples": self.examples.spec(), "reading": self.reading.spec()}
        return {**parts, "asked": self.key, **self._settings()}

    def _settings(self) -> dict[str, Any]:
        """Return what else decides the answers, beside model, examples and reading."""
        return {}

    def provenance(self, **settings: Any) -> dict[str, Any]:
        """Return the provenance of results that come from this evaluator."""
        recorded = {
            "metric": self.metric,
            "max_length": self.reading.max_length,
            **self._provenance_settings(),
            **settings,
        }
        if self.note:
            recorded["rows"] = self.note
        if over := self.resampled():
            recorded["intervals"] = over
        return provenance_of([self.model], self.examples, recorded)

    def _provenance_settings(self) -> dict[str, Any]:
        """Return the settings of this kind of evaluator that the provenance of results names."""
        return {}

    def with_model(self, model: Model) -> Self:
        """Return this evaluator for another model with the same tokenizer and head."""
        import copy

        other = copy.copy(self)
        other.model = model
        other.__post_init__()
        return other

    def subset(self, rows: Any) -> Self:
        """Return this evaluator on some of its rows, by a slice or positions; each row keeps its identity."""
        import copy

        other = copy.copy(self)
        other.examples = self.examples.take(rows)
        other.__post_init__()
        return other

    def encoded(self) -> Items:
        """Return the items of all rows, in their order."""
        return self._loop.items(self.examples)[0]

    @property
    def encoder(self) -> Encoder:
        """The function that makes items of rows."""
        return self._encoded

    @property
    def ordinary_tokens(self) -> int:
        """The number of tokens of an ordinary batch."""
        return self._loop.batches.budget

    def logits(self, act: Act | None = None, title: str = "", note: bool = True) -> np.ndarray:
        """Return the answers (.., n, numbers) in the data's order.

        `act` may answer for several models at once, in leading dimensions. Logs how many texts are cut off, unless
        `note` is false.
        """
        answers, cut = self.answers(self.examples, act, title)
        if note:
            self.note_cut(cut)
        return answers

    def note_cut(self, count: int) -> None:
        """Log how many of the texts are cut off, if any."""
        limit = min(self.reading.max_length, self.model.positions or self.reading.max_length)
        note_cut(count, len(self.examples), self.examples.task, limit)

    def answers_together(self, examples: Examples, act: Act | None = None, title: str = "") -> tuple[np.ndarray, int]:
        """Return what `answers` does, for processes that call it together: they share the texts."""
        team = Team.current()
        if team.size == 1:
            return self.answers(examples, act, title)
        share = examples.take(slice(team.rank, None, team.size))
        parts = team.gather(self.answers(share, act, title) if len(share) else None)
        there = [(rank, *part) for rank, part in enumerate(parts) if part is not None]
        width = max(numbers.shape[-1] for _, numbers, _ in there)
        first = there[0][1]
        whole = np.full((*first.shape[:-2], len(examples), width), -np.inf, dtype=first.dtype)
        for rank, numbers, _ in there:
            whole[..., rank :: team.size, : numbers.shape[-1]] = numbers
        return whole, sum(cut for _, _, cut in there)

    def answers(self, examples: Examples, act: Act | None = None, title: str = "") -> tuple[np.ndarray, int]:
        """Return the numbers (.., n, numbers) of some examples, and how many of them are cut off."""
        title = title or f"{self.model.name} on {examples.task} ({examples.split})"
        answer = act or self._plain
        parts: list[np.ndarray] = []
        waiting: list[tuple[Window, list[tuple[np.ndarray, PendingCopy]]]] = []
        cut = 0

        def run(question: Question) -> PendingCopy:
            return PendingCopy(self._answers(question, answer).float())

        with evaluating(self.model.network), self._runner.prepared():
            for window, advance in self._loop.each_window(examples, title):
                batches = list(self._loop.through(window, run, portions_of_texts, advance, self._question))
                # Reading waits for the device, so a window is read only when the next one has been submitted.
                parts += [self._read(*before) for before in waiting]
                waiting = [(window, batches)]
                cut += window.tally.truncated
            parts += [self._read(*last) for last in waiting]
        return joined(parts), cut

    def _read(self, window: Window, batches: Sequence[tuple[np.ndarray, PendingCopy]]) -> np.ndarray:
        """Return (.., texts of the window, numbers) from its batches; only here is the device waited for."""
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
        """Return some texts of a window, each with all its choices, packed for the device."""
        counts = _choices(window)
        first, count = (np.cumsum(counts) - counts)[places], int(counts[places[0]])
        items = window.items[0].at((first[:, None] + np.arange(count)).reshape(-1))
        more = self._more(items)
        return Question(
            items, len(places), count, self._runner.pack(items, more, padding_left=self.padding_left), tuple(more)
        )

    def _more(self, items: Items) -> dict[str, np.ndarray]:
        """Return whole numbers by name that the reader needs on the device and the network does not take."""
        return {}

    def _answers(self, question: Question, act: Act) -> Tensor:
        """Return the numbers (.., texts, numbers) of one batch."""
        with self._runner.ready(), question.packed.known_padding():
            inputs = question.packed.on_device()
            more = {name: inputs.pop(name) for name in question.more}
            shaped = self._shaped(inputs, question.texts, question.count)
            return self._per_text(act(shaped, self._reader(question.items, inputs, more)), question)

    def over_batches(self, measure: Callable[[Items, dict[str, Tensor]], T], title: str) -> Iterator[T]:
        """Yield what `measure(items, inputs)` returns for each batch of the texts, as the subject reads them."""

        def run(question: Question) -> T:
            with self._runner.ready(), question.packed.known_padding():
                inputs = question.packed.on_device()
                network_inputs = {name: value for name, value in inputs.items() if name not in question.more}
                return measure(question.items, self._shaped(network_inputs, question.texts, question.count))

        with evaluating(self.model.network), self._runner.prepared():
            for window, advance in self._loop.each_window(self.examples, title):
                for _, result in self._loop.through(window, run, portions_of_texts, advance, self._question):
                    yield result

    def tokens(self, most: int) -> float:
        """Return about how many tokens all texts have, estimated from the first `most` of them."""
        first = self.examples.take(slice(most))
        items = self._encoded(self.subject, first, self.reading)
        return sum(map(len, items)) * len(self.examples) / max(1, len(first))

    def _shaped(self, inputs: dict[str, Tensor], texts: int, count: int) -> dict[str, Tensor]:
        """Return the inputs in the shape that the subject takes; `count` is how many items each text has."""
        return inputs

    def _per_text(self, numbers: Tensor, question: Question) -> Tensor:
        """Return (.., texts, numbers) from the numbers of the items."""
        return numbers

    @abstractmethod
    def _reader(self, items: Items, inputs: dict[str, Tensor], more: dict[str, Tensor]) -> Read:
        """Return the function that reads the numbers of a batch from the subject's output for it."""

    def _ordered(self, values: np.ndarray) -> np.ndarray:
        """Return the numbers in the order in which they are stored."""
        return values

    def _width(self, window: Window, width: int) -> int:
        """Return the largest count of numbers in any row of a window."""
        return width

    @abstractmethod
    def measured(self, answers: np.ndarray, rows: np.ndarray) -> dict[str, float]:
        """Return every metric of (n, numbers) answers, over some rows."""

    def value(self, answers: np.ndarray, rows: Any = None) -> float:
        """Return the metric of (n, numbers) answers, over all rows or some."""
        return self.measured(answers, self._at(rows))[self.metric]

    @abstractmethod
    def interval(self, answers: np.ndarray, rows: Any = None) -> tuple[float, float]:
        """Return a 95% interval of the metric, by the bootstrap over texts; NaN where there is only one text."""

    def score(self, answers: np.ndarray, rows: Any = None, note: str = "") -> Score:
        """Return the metric as a `Score`, with every other metric that fits; `note` says which rows these are."""
        at = self._at(rows)
        values = self.measured(answers, at)
        reason = f"{self.metric} is undefined: {self.undefined}" if np.isnan(values[self.metric]) else ""
        return Score(
            values[self.metric],
            metric=self.metric,
            metrics=values,
            n=len(at),
            majority=self._majority(at),
            provenance=self.provenance(),
            note="; ".join(part for part in (note, self.note, reason) if part),
            rows_are=self.rows_are,
            interval=UNKNOWN if math.isnan(values[self.metric]) else self.interval(answers, at),
            interval_note=self._interval_note(at, values[self.metric]),
            kind=self.score_kind,
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
    """Return how many items each text of a window has."""
    choices = window.examples.choices
    return np.ones(len(window.examples), np.int64) if choices is None else np.asarray([len(c) for c in choices])


def portions_of_texts(window: Window) -> Portions:
    """Return the tokens and the items of each text with all its choices: a text is one portion, which is not split."""
    counts = _choices(window)
    longest = np.maximum.reduceat(window.items[0].lengths, np.cumsum(counts) - counts)
    return counts * longest, counts


def joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return (.., n, numbers) of several windows in a row; choices that a window lacks become -inf."""
    most = max(part.shape[-1] for part in parts)
    wide = [np.pad(p, [(0, 0)] * (p.ndim - 1) + [(0, most - p.shape[-1])], constant_values=-np.inf) for p in parts]
    return np.concatenate(wide, axis=-2)


GROUPS = 20  # of texts, for the jackknife


def groups_of(texts: np.ndarray, count: int = GROUPS) -> np.ndarray:
    """Return the group (0, 1, ..) of every row: whole texts, dealt out evenly; with few texts, one group for each."""
    return folds(texts, min(count, len(np.unique(texts))), seed=0)


def without_groups(evaluator: Evaluator, answers: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """Return (groups, answers): the metric of each of several answers without each group of texts in turn."""
    group = groups_of(evaluator.units())
    rows = [np.flatnonzero(group != g) for g in range(group.max() + 1)]
    return np.asarray([[evaluator.value(part, at) for part in answers] for at in rows], dtype=float)
