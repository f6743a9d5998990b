"""A model with a head, examined on a labelled split: its logits in the task's order, and their score."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from layerscope.data import Examples, Task, metrics, task
from layerscope.errors import DataError, InputError, LayerscopeWarning, ModelError, log, some
from layerscope.evaluation.score import Score
from layerscope.extraction.extracting import check_limit
from layerscope.extraction.forward import Runner
from layerscope.extraction.loop import Loop, Portions, Window, note_cut
from layerscope.extraction.reading import Reading
from layerscope.models import Model, load
from layerscope.models.asking import head_padding
from layerscope.models.lineage import held_out
from layerscope.models.selfcheck import primary
from layerscope.results import provenance_of

LONGEST = 512  # tokens, where the model allows more and nothing else is asked for

Act = Callable[[dict[str, Tensor]], Tensor]  # inputs of a batch -> (.., texts, outputs)


@dataclass
class Exam:
    """One model, one split: which texts, what the labels are, and how the head's outputs stand for classes."""

    model: Model
    task: Task
    examples: Examples
    max_length: int | None = None
    batch_tokens: int | None = None
    note: str = ""  # which rows these are, where they are not all of the split's
    outputs: np.ndarray = field(init=False)  # the head's output for each class of the task

    def __post_init__(self) -> None:
        if not self.model.has_head:
            raise ModelError(
                f"{self.model.name} opens as a bare encoder ({type(self.model.network).__name__}): it has no head to "
                "evaluate. Give a classifier checkpoint, or train a head first (layerscope tune, ls.tune)."
            )
        if self.examples.labels is None:
            raise DataError(
                f"{self.examples.task} ({self.examples.split}) has no labels, so nothing can be scored; name the "
                "column that holds them (label=, --label)."
            )
        if self.model.multiple_choice and self.model.anatomy.unpadded:
            raise ModelError(
                f"The states of {self.model.name} ({self.model.anatomy.family}) change with padding, and the choices "
                "of one text are padded to one length; give a classifier or a bare encoder of this family, or another "
                "family."
            )
        self.outputs = outputs_of(self.model, self.task)
        limit = min(self.model.positions or LONGEST, LONGEST) if self.max_length is None else self.max_length
        self.reading = Reading("cls", max_length=limit)
        self._runner = Runner(self.model, [0], self.reading)
        self._padding = head_padding(self.model)
        most = 1 if self._padding == "none" else None
        self._loop = Loop.over_tokens([self.model], self.reading, self.batch_tokens, most)

    def spec(self) -> dict[str, Any]:
        """What decides the logits, for keys of the store."""
        parts = {"model": self.model.spec(), "examples": self.examples.spec(), "reading": self.reading.spec()}
        return {**parts, "outputs": self.outputs.tolist()}

    def provenance(self, **settings: Any) -> dict[str, Any]:
        """Where results of this exam come from."""
        about = {"metric": self.task.metric, "max_length": self.reading.max_length, **settings}
        if self.note:
            about["rows"] = self.note
        return provenance_of([self.model], self.examples, about)

    @property
    def labels(self) -> np.ndarray:
        assert self.examples.labels is not None
        return self.examples.labels

    @property
    def ordinary_tokens(self) -> int:
        """Tokens of an ordinary batch."""
        return self._loop.batches.budget

    def logits(self, act: Act | None = None, title: str = "", note: bool = True) -> np.ndarray:
        """(.., n, classes) in the data's order; `act` may answer for several models at once, in leading dimensions.

        Says how many of the texts are cut off, unless `note` is false.
        """
        logits, cut = self.answers(self.examples, act, title)
        if note:
            self.note_cut(cut)
        return logits

    def note_cut(self, count: int) -> None:
        """Say how many of the texts are cut off, where any is."""
        limit = min(self.reading.max_length, self.model.positions or self.reading.max_length)
        note_cut(count, len(self.examples), self.examples.task, limit)

    def answers(self, examples: Examples, act: Act | None = None, title: str = "") -> tuple[np.ndarray, int]:
        """The logits of some examples, and how many of them are cut off."""
        title = title or f"{self.model.name} on {examples.task} ({examples.split})"
        answer = act or self._plain
        parts: list[np.ndarray] = []
        windows: list[Window] = []

        def run(window: Window, places: np.ndarray) -> Tensor:
            return self._answers(window, places, answer)

        for window, places, logits in self._loop.over(examples, run, title, portions_of_texts):
            values = self._checked(logits.float().cpu().numpy(), examples)
            if not windows or window is not windows[-1]:
                windows.append(window)
                width = int(_choices(window).max()) if examples.choices is not None else values.shape[-1]
                shape = (*values.shape[:-2], len(window.examples), width)
                parts.append(np.full(shape, -np.inf, dtype=np.float32))
            parts[-1][..., places, : values.shape[-1]] = values
        return joined(parts), sum(window.tally.truncated for window in windows)

    def _plain(self, inputs: dict[str, Tensor]) -> Tensor:
        return primary(self.model.network(**inputs))

    def _answers(self, window: Window, places: np.ndarray, act: Act) -> Tensor:
        """The outputs for some texts, each with all its choices."""
        counts = _choices(window)
        first, count = np.cumsum(counts) - counts, int(counts[places[0]])
        items = [window.items[0][first[i] + c] for i in places for c in range(count)]
        inputs = self._runner.inputs(items, padding_left=self._padding == "left")
        if self.model.multiple_choice:
            inputs = {name: value.view(len(places), count, -1) for name, value in inputs.items()}
        with self._runner.ready():
            return act(inputs)

    def _checked(self, values: np.ndarray, examples: Examples) -> np.ndarray:
        """The outputs in the order of the task's classes; the most likely class of a NaN would be a wrong answer."""
        if not np.isfinite(values).all():
            raise ModelError(
                f"The outputs of {self.model.name} are not finite for some texts of {examples.task} "
                f"({examples.split}); the weights are broken or the float type is too small for them."
            )
        return values if examples.choices is not None else values[..., self.outputs]

    def predictions(self, logits: np.ndarray) -> np.ndarray:
        """(.., n) classes, or numbers for a regression."""
        return logits[..., 0] if self.task.regression else logits.argmax(axis=-1)

    def value(self, logits: np.ndarray, rows: Any = None) -> float:
        """The task's metric of (n, classes) logits, over all rows or some."""
        at = slice(None) if rows is None else rows
        return metrics.score(self.task.metric, self.labels[at], self.predictions(logits)[at])

    def score(self, logits: np.ndarray, rows: np.ndarray | None = None, note: str = "") -> Score:
        """The same as a result, with every other metric that fits; `note` says which rows these are."""
        at = np.arange(len(self.labels)) if rows is None else rows
        labels, guesses = self.labels[at], self.predictions(logits)[at]
        known = {name: metrics.score(name, labels, guesses) for name in metrics.fitting(self.task.regression)}
        return Score(
            known[self.task.metric],
            metric=self.task.metric,
            metrics=known,
            n=len(at),
            majority=metrics.majority(self.task.metric, labels),
            provenance=self.provenance(),
            note="; ".join(part for part in (note, self.note) if part),
        )

    @property
    def majority(self) -> float:
        """The score of always giving the most frequent class."""
        return metrics.majority(self.task.metric, self.labels)


def _choices(window: Window) -> np.ndarray:
    """How many items each text of a window has."""
    choices = window.examples.choices
    return np.ones(len(window.examples), np.int64) if choices is None else np.asarray([len(c) for c in choices])


def portions_of_texts(window: Window) -> Portions:
    """A text with all its choices is one portion; texts with the same number of choices go together."""
    counts = _choices(window)
    lengths = np.asarray([len(item) for item in window.items[0]])
    longest = np.maximum.reduceat(lengths, np.cumsum(counts) - counts)
    return counts * longest, counts


def exam(
    model: Any,
    data: Any,
    *,
    split: str | None = None,
    limit: int | None = None,
    max_length: int | None = None,
    batch_tokens: int | None = None,
    metric: str | None = None,
    all_rows: bool = False,
) -> Exam:
    """The exam of a model argument on a task argument's split, without the rows that the model learned from."""
    student, opened = load(model), task(data).with_metric(metric)
    check_limit(limit)
    note_order(student, opened)
    several = len(opened.splits) > 1  # then a split that was learned from whole is what was asked for
    examples, note = held_out([student], opened.split(split), limit, all_rows, or_all=several)
    return Exam(student, opened, examples, max_length, batch_tokens, note)


def evaluate(
    model: Any,
    task: Any,
    *,
    split: str | None = None,
    limit: int | None = None,
    max_length: int | None = None,
    batch_tokens: int | None = None,
    metric: str | None = None,
    all_rows: bool = False,
) -> Score:
    """Score a model with a head on a task.

    The head's classes are matched to the task's by name (`id2label`). Default names mean the task's order: that of the
    data where it has one, else sorted, with a warning. `ls.task(.., labels=[..])` names the classes in the head's own.

    Args:
        model: A model with a head.
        task: A labelled task.
        split: The split; `validation` where there is one.
        limit: Only the first so many examples.
        max_length: The longest text in tokens: as the model allows, at most 512.
        batch_tokens: Tokens per batch, padding included.
        metric: accuracy, f1, matthews or pearson_spearman (the mean of both), where it is not the task's own.
        all_rows: Score also the rows that the model learned from; otherwise they are left out, as far as
            `layerscope.json` beside its weights tells.

    Returns:
        The `Score`: a number, with its metric, the others that fit, and the number of texts.

    Example:
        >>> import pandas, layerscope as ls
        >>> from transformers import AutoModelForSequenceClassification
        >>> bare = ls.load("garden:bert-s0")
        >>> network = AutoModelForSequenceClassification.from_config(bare.network.config)  # with an untrained head
        >>> rows = pandas.DataFrame({"text": ["a file", "the list"] * 10, "label": ["file", "list"] * 10})
        >>> score = ls.evaluate(ls.load(network, tokenizer=bare.tokenizer), rows)
        >>> score.metric, score.n, score.majority
        ('accuracy', 20, 0.5)
    """
    sitting = exam(
        model,
        task,
        split=split,
        limit=limit,
        max_length=max_length,
        batch_tokens=batch_tokens,
        metric=metric,
        all_rows=all_rows,
    )
    score = sitting.score(sitting.logits())
    if np.isnan(score):
        warnings.warn(
            f"{score.metric} is undefined: every prediction or every label is the same.",
            LayerscopeWarning,
            stacklevel=2,
        )
    return score


def outputs_of(model: Model, task: Task) -> np.ndarray:
    """For each class of the task the head's output that stands for it; an error where they do not match."""
    config, name = model.network.config, model.name
    if (task.kind == "choice") != model.multiple_choice:
        kinds = "choices" if task.kind == "choice" else "no choices"
        raise InputError(
            f"{task.name} has {kinds}, and {name} is a {type(model.network).__name__}; give a task and a model that "
            "belong together."
        )
    if model.multiple_choice:
        return np.arange(0)
    if getattr(config, "problem_type", None) == "multi_label_classification":
        raise InputError(f"{name} gives several labels a text (problem_type), and {task.name} has one.")
    if task.regression != (config.num_labels == 1):
        kind = "a number" if task.regression else f"{len(task.label_names or ())} classes"
        raise InputError(
            f"{task.name} has {kind} as its label, and the head of {name} has {config.num_labels} outputs."
        )
    if task.regression:
        return np.arange(1)
    wanted = list(task.label_names or ())
    have = head_names(model)
    if len(have) != len(wanted):
        raise InputError(
            f"{task.name} has {_count(wanted, 'class', 'es')}, and the head of {name} has {len(have)} outputs; give a "
            "model that was tuned for this task."
        )
    matched = _by_name(wanted, have)
    given = task.head_order
    if given is not None:
        asked = np.asarray([given.index(label) for label in wanted])
        if matched is not None and not np.array_equal(asked, matched):
            raise InputError(
                f"labels= (--labels) says that the outputs of {name} are {some(given)}, and its head calls them "
                f"{some(have)}; leave it out, or set config.id2label where the head is wrong."
            )
        return asked
    if matched is not None:
        return matched
    if has_default_names(model):
        return np.arange(len(wanted))
    raise InputError(
        f"The classes of {task.name} are {some(wanted)}, and the head of {name} calls its outputs "
        f"{some(have)}. Which is which is not guessed: name the classes in the order of the outputs (labels=, "
        "--labels), or set config.id2label to the task's names."
    )


def head_names(model: Model) -> list[str]:
    """What a head calls its outputs."""
    config = model.network.config
    return [str(config.id2label[i]).strip() for i in range(config.num_labels)]


def has_default_names(model: Model) -> bool:
    """Whether a head's outputs are called LABEL_0, LABEL_1, .. in this order, as transformers does by itself."""
    names = [re.fullmatch(r"label_?(\d+)", name, re.IGNORECASE) for name in head_names(model)]
    return all(match is not None and int(match[1]) == i for i, match in enumerate(names))


def note_order(model: Model, task: Task) -> None:
    """Say which class each output is taken for, where neither the head nor the data says so."""
    names = task.label_names
    if names is None or task.kind == "choice" or task.is_ordered or task.head_order is not None:
        return
    if model.has_head and has_default_names(model) and len(names) == len(head_names(model)):
        if _by_name(names, head_names(model)) is not None:
            return
        pairs = ", ".join(f"{output} is {name}" for output, name in zip(head_names(model), names, strict=True))
        log.warning(
            "The outputs of %s have no names, so they are taken for the classes of %s in sorted order: %s. Where that "
            "is wrong, name the classes in the order of the outputs: labels=, --labels.",
            *(model.name, task.name, pairs),
        )


def _by_name(wanted: Sequence[str], have: Sequence[str]) -> np.ndarray | None:
    """The place of each name among others: of the same name, or of one that differs in case, spaces and signs only."""
    for spelled in (str, _plain_name):
        ours, theirs = [spelled(name) for name in wanted], [spelled(name) for name in have]
        if len(set(theirs)) == len(theirs) and sorted(ours) == sorted(theirs):
            return np.asarray([theirs.index(name) for name in ours])
    return None


def _count(things: Sequence[Any], name: str, more: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else more}"


def _plain_name(label: Any) -> str:
    """A class name without case, spaces and signs."""
    return re.sub(r"[\s\-]+", "_", str(label).strip().lower())


def joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """(.., n, classes) of several windows in a row; where one has fewer choices, the rest are impossible."""
    most = max(part.shape[-1] for part in parts)
    wide = [np.pad(p, [(0, 0)] * (p.ndim - 1) + [(0, most - p.shape[-1])], constant_values=-np.inf) for p in parts]
    return np.concatenate(wide, axis=-2)
