"""A model with a head, examined on a labelled split: its logits in the task's order, and their score."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from layerscope.data import Examples, Task, metrics, task
from layerscope.errors import DataError, InputError, LayerscopeWarning, ModelError, log
from layerscope.extract.batches import Batches, ahead, default_tokens
from layerscope.extract.encode import Item, encode
from layerscope.extract.forward import Runner
from layerscope.extract.reading import Reading
from layerscope.extract.run import examples_of
from layerscope.models import Model, load
from layerscope.models.identity import fingerprint
from layerscope.models.selfcheck import primary
from layerscope.progress import progress

LONGEST = 512  # tokens, where the model allows more and nothing else is asked for
WINDOW = 1024  # texts that are tokenised and sorted by length together
SCORES = "_layerscope_scores"  # networks carry what was measured of them, for the card of a saved checkpoint

Act = Callable[[dict[str, Tensor]], Tensor]  # inputs of a batch -> (.., texts, outputs)


@dataclass
class Exam:
    """One model, one split: which texts, what the labels are, and how the head's outputs stand for classes."""

    model: Model
    task: Task
    examples: Examples
    max_length: int | None = None
    batch_tokens: int | None = None
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
        self.outputs = outputs_of(self.model, self.task)
        limit = min(self.model.positions or LONGEST, LONGEST) if self.max_length is None else self.max_length
        self.reading = Reading("cls", max_length=limit)
        self._runner = Runner(self.model, [0], self.reading)
        alone = self.model.network.config.pad_token_id is None and self.model.anatomy.summary == "last"
        tokens = default_tokens(self.model.device) if self.batch_tokens is None else self.batch_tokens
        self._batches = Batches(tokens, 1 if alone else None)

    @property
    def labels(self) -> np.ndarray:
        assert self.examples.labels is not None
        return self.examples.labels

    @property
    def ordinary_tokens(self) -> int:
        """Tokens of an ordinary batch."""
        return self._batches.tokens

    def logits(self, act: Act | None = None, examples: Examples | None = None, title: str = "") -> np.ndarray:
        """(.., n, classes) in the data's order; `act` may answer for several models at once, in leading dimensions."""
        examples = self.examples if examples is None else examples
        title = title or f"{self.model.name} on {examples.task} ({examples.split})"
        parts, truncated = [], 0
        windows = (examples.take(slice(start, start + WINDOW)) for start in range(0, len(examples), WINDOW))
        with progress(title, len(examples)) as advance:
            for window, items in ahead(windows, lambda w: (w, encode(self.model, w, self.reading))):
                truncated += sum(item.truncated for item in items)
                parts.append(self._window(window, items, act or self._plain, advance))
        if truncated:
            log.warning("%d texts of %s are cut off at %d tokens.", truncated, examples.task, self.reading.max_length)
        return joined(parts)

    def _plain(self, inputs: dict[str, Tensor]) -> Tensor:
        return primary(self.model.network(**inputs))

    def _window(self, examples: Examples, items: list[Item], act: Act, advance: Callable[[float], None]) -> np.ndarray:
        """(.., n, classes) of one window; texts with the same number of choices go together."""
        counts = np.ones(len(examples), np.int64)
        if examples.choices is not None:
            counts = np.asarray([len(c) for c in examples.choices])
        first = np.cumsum(counts) - counts
        found: np.ndarray | None = None
        for texts, logits in self._all_batches(items, counts, first, act):
            values = logits.float().cpu().numpy()
            if not np.isfinite(values).all():  # the most likely class of a NaN would be a wrong answer
                raise ModelError(
                    f"The outputs of {self.model.name} are not finite for some texts of {examples.task} "
                    f"({examples.split}); the weights are broken or the float type is too small for them."
                )
            if examples.choices is None:
                values = values[..., self.outputs]
            if found is None:
                width = int(counts.max()) if examples.choices is not None else values.shape[-1]
                found = np.full((*values.shape[:-2], len(examples), width), -np.inf, dtype=np.float32)
            found[..., texts, : values.shape[-1]] = values
            advance(len(texts))
        assert found is not None
        return found

    def _all_batches(
        self, items: list[Item], counts: np.ndarray, first: np.ndarray, act: Act
    ) -> Iterator[tuple[np.ndarray, Tensor]]:
        for count in np.unique(counts):
            texts = np.flatnonzero(counts == count)
            own = [[items[first[i] + c] for c in range(count)] for i in texts]
            lengths = np.asarray([count * max(map(len, group)) for group in own])

            def run(chosen: np.ndarray, own: list[list[Item]] = own, count: int = int(count)) -> Tensor:
                inputs = self._runner.inputs([item for i in chosen for item in own[i]], padding_left=self._left)
                if self.model.multiple_choice:
                    inputs = {name: value.view(len(chosen), count, -1) for name, value in inputs.items()}
                with self._runner.ready():
                    return act(inputs)

            for chosen, logits in self._batches.over(lengths, run):
                yield texts[chosen], logits

    @property
    def _left(self) -> bool:
        return self.model.anatomy.reads_last_position

    def predictions(self, logits: np.ndarray) -> np.ndarray:
        """(.., n) classes, or numbers for a regression."""
        return logits[..., 0] if self.task.regression else logits.argmax(axis=-1)

    def score(self, logits: np.ndarray, rows: Any = None) -> float:
        """The task's metric of (n, classes) logits, over all rows or some."""
        at = slice(None) if rows is None else rows
        return metrics.score(self.task.metric, self.labels[at], self.predictions(logits)[at])

    @property
    def majority(self) -> float:
        """The score of always giving the most frequent class."""
        return metrics.majority(self.task.metric, self.labels)


def exam(
    model: Any,
    data: Any,
    *,
    split: str | None = None,
    limit: int | None = None,
    max_length: int | None = None,
    batch_tokens: int | None = None,
) -> Exam:
    """The exam of a model argument on a task argument's split."""
    opened = task(data)
    return Exam(load(model), opened, examples_of(opened, split, limit), max_length, batch_tokens)


def evaluate(
    model: Any,
    task: Any,
    *,
    split: str | None = None,
    limit: int | None = None,
    max_length: int | None = None,
    batch_tokens: int | None = None,
) -> float:
    """The task's main metric of a model with a head: accuracy, F1, Matthews, or the mean of Pearson and Spearman.

    The head's classes are matched to the task's by name (`id2label`); default names mean the task's order. Texts are
    as long as the model allows, at most 512 tokens, unless `max_length` says otherwise.
    """
    found = exam(model, task, split=split, limit=limit, max_length=max_length, batch_tokens=batch_tokens)
    value = found.score(found.logits())
    if np.isnan(value):
        warnings.warn(
            f"{found.task.metric} is undefined: every prediction or every label is the same.",
            LayerscopeWarning,
            stacklevel=2,
        )
    remember(found, value)
    return value


def remember(exam: Exam, value: float) -> None:
    """Write a score on the network, with the weights that it holds for."""
    network, examples = exam.model.network, exam.examples
    record = {
        "weights": fingerprint(exam.model),
        "task": examples.task,
        "split": examples.split,
        "metric": exam.task.metric,
        "score": value,
        "n": len(examples),
    }
    kept = [s for s in getattr(network, SCORES, []) if (s["task"], s["split"]) != (record["task"], record["split"])]
    setattr(network, SCORES, [*kept, record])


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
    wanted = [_plain_name(label) for label in task.label_names or ()]
    have = [_plain_name(config.id2label[i]) for i in range(config.num_labels)]
    if len(have) != len(wanted):
        raise InputError(
            f"{task.name} has {_count(wanted, 'class', 'es')}, and the head of {name} has {len(have)} outputs; give a "
            "model that was tuned for this task."
        )
    if all(re.fullmatch(r"label_?\d+", label) for label in have):
        return np.arange(len(wanted))
    if sorted(have) == sorted(wanted):
        return np.asarray([have.index(label) for label in wanted])
    raise InputError(
        f"The classes of {task.name} are {', '.join(task.label_names or ())}, and the head of {name} calls its outputs "
        f"{', '.join(map(str, config.id2label.values()))}. Which is which is not guessed: set config.id2label to the "
        "task's names."
    )


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
