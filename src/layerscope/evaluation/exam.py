"""A model examined on a split: which kind of exam a task and a head make, and the exam of heads with classes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
from torch import Tensor

from layerscope.data import Task, metrics, task
from layerscope.errors import DataError, LayerscopeWarning, choose
from layerscope.evaluation.kinds import meeting, refuse
from layerscope.evaluation.outputs import has_default_names, head_names, note_order, outputs_of
from layerscope.evaluation.score import Score
from layerscope.evaluation.sitting import LONGEST, Read, Sitting, joined, portions_of_texts
from layerscope.extraction.encode import Item
from layerscope.extraction.extracting import check_limit
from layerscope.extraction.loop import Window
from layerscope.models import Model, load
from layerscope.models.asking import head_padding
from layerscope.models.lineage import held_out
from layerscope.models.selfcheck import primary

__all__ = [
    "LONGEST",
    "Exam",
    "Sitting",
    "evaluate",
    "exam",
    "has_default_names",
    "head_names",
    "joined",
    "note_order",
    "outputs_of",
    "portions_of_texts",
]


class Exam(Sitting):
    """Heads with classes, a number, or choices: their logits in the task's order, and the score of those."""

    outputs: np.ndarray  # the head's output for each class of the task

    def __post_init__(self) -> None:
        if self.model.head not in ("classes", "choices"):
            refuse(self.model, self.task, self.task.kind)
        if self.examples.labels is None:
            raise DataError(
                f"{self.examples.task} ({self.examples.split}) has no labels, so nothing can be scored; name the "
                "column that holds them (label=, --label)."
            )
        self.outputs = outputs_of(self.model, self.task)
        self._padding = head_padding(self.model)
        self.padding_left = self._padding == "left"  # type: ignore[misc]
        super().__post_init__()

    @property
    def allowed(self) -> tuple[str, ...]:
        return metrics.fitting(self.task.regression)

    @property
    def metric(self) -> str:
        return self.task.metric

    @property
    def _most(self) -> int | None:
        return 1 if self._padding == "none" else None

    @property
    def classes(self) -> np.ndarray | None:
        return None if self.task.regression else self.labels

    def _settings(self) -> dict[str, Any]:
        return {"outputs": self.outputs.tolist()}

    @property
    def labels(self) -> np.ndarray:
        assert self.examples.labels is not None
        return self.examples.labels

    def _shaped(self, inputs: dict[str, Tensor], texts: int, count: int) -> dict[str, Tensor]:
        if self.model.multiple_choice:
            return {name: value.view(texts, count, -1) for name, value in inputs.items()}
        return inputs

    def _reader(self, window: Window, places: np.ndarray, items: Sequence[Item], inputs: dict[str, Tensor]) -> Read:
        return primary

    def _ordered(self, values: np.ndarray) -> np.ndarray:
        """The outputs in the order of the task's classes."""
        return values if self.model.multiple_choice else values[..., self.outputs]

    def _width(self, window: Window, width: int) -> int:
        choices = window.examples.choices
        return width if choices is None else max(map(len, choices))

    def predictions(self, logits: np.ndarray) -> np.ndarray:
        """(.., n) classes, or numbers for a regression."""
        return logits[..., 0] if self.task.regression else logits.argmax(axis=-1)

    def value(self, answers: np.ndarray, rows: Any = None) -> float:
        at = slice(None) if rows is None else rows
        return metrics.score(self.task.metric, self.labels[at], self.predictions(answers)[at])

    def measured(self, answers: np.ndarray, rows: np.ndarray) -> dict[str, float]:
        labels, guesses = self.labels[rows], self.predictions(answers)[rows]
        names = dict.fromkeys([*metrics.fitting(self.task.regression), self.task.metric])
        return {name: metrics.score(name, labels, guesses) for name in names}

    def interval(self, answers: np.ndarray, rows: Any = None) -> tuple[float, float]:
        at = self._at(rows)
        return metrics.bootstrap(self.task.metric, self.labels[at], self.predictions(answers)[at])

    def _majority(self, rows: np.ndarray) -> float:
        return metrics.majority(self.task.metric, self.labels[rows])


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
) -> Sitting:
    """The exam of a model argument on a task argument's split, without the rows that the model learned from.

    The task says how the network is asked, the head what it can answer.
    """
    student, opened = load(model), task(data)
    check_limit(limit)
    kind, opened = _kind(student, opened)
    several = len(opened.splits) > 1  # then a split that was learned from whole is what was asked for
    examples, note = held_out([student], opened.split(split), limit, all_rows, or_all=several)
    if kind is Exam:
        note_order(student, opened)
        return Exam(student, opened.with_metric(metric), examples, max_length, batch_tokens, note)
    if metric is not None:
        choose("metric", metric, metrics.METRICS)
    return kind(student, opened, examples, max_length, batch_tokens, note, metric or _own_metric(kind, opened))


def _kind(student: Model, opened: Task) -> tuple[type[Sitting], Task]:
    """The exam that a task and a head make, and the task as it is read for it."""
    asked, kind = meeting(student, opened)
    if asked == "classes":
        return Exam, opened
    kinds = {
        "running": "RunningText",
        "masked": "Masked",
        "likelihood": "Likelihood",
        "tags": "Tags",
        "embeddings": "Embeddings",
    }
    sitting: type[Sitting] = getattr(import_module(f"layerscope.evaluation.{asked}"), kinds[asked])
    return sitting, opened.as_text() if kind == "text" else opened


def _own_metric(kind: type[Sitting], task: Task) -> str | None:
    """The metric that the task was given, where answers of this kind can be scored by it."""
    return task.given_metric if task.given_metric in kind.scores else None


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
    """Score a model on a task.

    What is asked follows from the task and the model's head: classes, numbers and choices of a head of that kind; the
    next token of running text, or the likelihood of each choice, of a causal language model; masked tokens of a masked
    one; tags of a tagger; the cosine of two embeddings of a bare encoder or a model of sentence-transformers. Where
    task and head do not meet, the error says what would.

    The head's classes are matched to the task's by name (`id2label`). Default names mean the task's order: that of the
    data where it has one, else sorted, with a warning. `ls.task(.., labels=[..])` names the classes in the head's own.

    Args:
        model: A model argument.
        task: A task that goes with its head.
        split: The split; `validation` where there is one.
        limit: Only the first so many examples.
        max_length: The longest text in tokens: as the model allows, at most 512; windows of running text, and choices
            by likelihood, at most 2,048.
        batch_tokens: Tokens per batch, padding included.
        metric: Where it is not the task's own: accuracy, f1, matthews or pearson_spearman (the mean of both);
            perplexity, nll or bits_per_byte; acc or acc_norm; spearman or pearson.
        all_rows: Score also the rows that the model learned from; otherwise they are left out, as far as
            `layerscope.json` beside its weights tells.

    Returns:
        The `Score`: a number, with its metric, whether higher is better, the others that fit, and the number of texts.

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
