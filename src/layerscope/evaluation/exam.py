"""A model examined on a split: which kind of exam a task and a head make, and the exam of heads with classes."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from layerscope.data import Task, metrics, task
from layerscope.errors import DataError, InputError, LayerscopeWarning, check_count, choose
from layerscope.evaluation.generation import Generating, continuation
from layerscope.evaluation.harness import Harness
from layerscope.evaluation.harness_score import LIKELIHOOD
from layerscope.evaluation.kinds import meeting, refuse
from layerscope.evaluation.outputs import has_default_names, head_names, note_order, outputs_of
from layerscope.evaluation.score import Score
from layerscope.evaluation.sitting import LONGEST, Read, Sitting, joined, portions_of_texts
from layerscope.extraction.items import Items
from layerscope.extraction.loop import Window
from layerscope.models import Model
from layerscope.models.asking import head_padding
from layerscope.models.lineage import held_out
from layerscope.models.load import load_whole
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

# What kind of number a score is, by the exam that gave it.
KINDS = {
    "Exam": "classes",
    "RunningText": "perplexity",
    "Masked": "masked tokens",
    "Likelihood": LIKELIHOOD,
    "Tags": "tags",
    "Embeddings": "similarity of embeddings",
}


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
        metrics.check_fits(self.task.metric, self.task.regression, self.task.name)
        self.outputs = outputs_of(self.model, self.task)
        self._padding = head_padding(self.model)
        self.padding_left = self._padding == "left"  # type: ignore[misc]
        super().__post_init__()

    @property
    def allowed(self) -> tuple[str, ...]:
        return metrics.allowed(self.task.regression)

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

    def _reader(self, items: Items, inputs: dict[str, Tensor], more: dict[str, Tensor]) -> Read:
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
        return metrics.score(self.task.metric, self.labels[at], self.predictions(answers)[at], self.task.classes)

    def measured(self, answers: np.ndarray, rows: np.ndarray) -> dict[str, float]:
        labels, guesses = self.labels[rows], self.predictions(answers)[rows]
        names = dict.fromkeys([*metrics.fitting(self.task.regression), self.task.metric])
        return {name: metrics.score(name, labels, guesses, self.task.classes) for name in names}

    def interval(self, answers: np.ndarray, rows: Any = None) -> tuple[float, float]:
        at = self._at(rows)
        return metrics.bootstrap(self.task.metric, self.labels[at], self.predictions(answers)[at], self.task.classes)

    def _majority(self, rows: np.ndarray) -> float:
        return metrics.majority(self.task.metric, self.labels[rows], self.task.classes)


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
    student, opened = load_whole(model, "evaluation (truncation curves, skip maps and advice, too)"), task(data)
    check_count(limit, "limit")
    kind, opened = _kind(student, opened)
    several = len(opened.splits) > 1  # then a split that was learned from whole is what was asked for
    examples, note = held_out([student], opened.split(split), limit, all_rows, or_all=several)
    if kind is Exam:
        note_order(student, opened)
        return Exam(student, opened.with_metric(metric), examples, max_length, batch_tokens, note)
    if metric is not None:
        choose("metric", metric, metrics.METRICS)
    return kind(student, opened, examples, max_length, batch_tokens, note, metric)


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


def evaluate(
    model: Any,
    task: Any = None,
    *,
    split: str | None = None,
    limit: int | None = None,
    max_length: int | None = None,
    batch_tokens: int | None = None,
    metric: str | None = None,
    all_rows: bool = False,
    generate: bool | int | Mapping[str, int] | None = None,
    lm_eval: str | Path | Mapping[str, Any] | Sequence[str | Path | Mapping[str, Any]] | None = None,
) -> Score:
    """Score a model on a task, or on tasks of lm-evaluation-harness.

    What is asked follows from the task and the model's head: classes, numbers and choices of a head of that kind; the
    next token of running text, or the likelihood of each choice, of a causal language model; masked tokens of a masked
    one; tags of a tagger; the cosine of two embeddings of a bare encoder or a model of sentence-transformers. Where
    task and head do not meet, the error says what would.

    The head's classes are matched to the task's by name (`id2label`). Default names mean the task's order: that of the
    data where it has one, else sorted, with a warning. `ls.task(.., labels=[..])` names the classes in the head's own.

    Args:
        model: A model, or what `ls.load` takes.
        task: A task that goes with its head; None where only `lm_eval` is asked for.
        split: The split; `validation` where there is one.
        limit: Use only the first N examples.
        max_length: The longest text in tokens: as the model allows, at most 512; windows of running text, and choices
            by likelihood, at most 2,048.
        batch_tokens: Tokens per batch, padding included.
        metric: Where it is not the task's own: accuracy, f1, matthews or pearson_spearman (the mean of both);
            perplexity, nll or bits_per_byte; acc or acc_norm; spearman or pearson.
        all_rows: Score also the rows that the model learned from; otherwise they are left out, as far as
            `layerscope.json` beside its weights tells.
        generate: Of a causal language model on running text: continue prompts that are cut out of the text, greedily,
            and compare with what follows there. True, a number of prompts (64 if True), or any of `prompts`,
            `prompt_tokens` (64), `new_tokens` (32) and `seed` (0) by name.
        lm_eval: Tasks of lm-evaluation-harness for a causal language model: names such as `hellaswag`, files of your
            own (`my.yaml`), or what would stand in one. Needs the extra `lm-eval`.

    Returns:
        The `Score`: a number, with its metric, whether higher is better, the others that fit, and the number of texts.
        With `lm_eval` and no task it is the first metric of the task that was named (NaN where several were), and its
        `frame` has a row for every task and metric; with both, `.harness` has that.

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
    asked = Generating.asked(generate)
    if task is None:
        whole = load_whole(model, "evaluation")
        return _without_task(whole, limit, max_length, lm_eval, _refused(split, metric, asked, batch_tokens))
    opened = load_whole(model, "evaluation")
    sitting = exam(
        opened,
        task,
        split=split,
        limit=limit,
        max_length=max_length,
        batch_tokens=batch_tokens,
        metric=metric,
        all_rows=all_rows,
    )
    check_generation(sitting, asked)
    judge = None if lm_eval is None else Harness(opened, lm_eval)  # what is wrong with it is said before the work
    answers, cut = sitting.answers_together(sitting.examples)
    sitting.note_cut(cut)
    score = sitting.score(answers)
    if np.isnan(score):
        warnings.warn(
            f"{score.metric} is undefined: every prediction or every label is the same.",
            LayerscopeWarning,
            stacklevel=2,
        )
    elif len(np.unique(sitting.texts)) > 1:
        score.interval = sitting.interval(answers)
    score.kind = KINDS[type(sitting).__name__]
    if asked is not None:
        source, asking, bos = sitting.source  # type: ignore[attr-defined]
        score.more = continuation(opened, source, asking, bos, asked)
        score.metrics = {**score.metrics, **{number.metric: number.value for number in score.more}}
        settings = {**score.provenance["settings"], "generate": dataclasses.asdict(asked)}
        score.provenance = {**score.provenance, "settings": settings}
    if judge is not None:
        score.harness = judge.score(limit, max_length)
    return score


def _without_task(
    model: Model, limit: int | None, max_length: int | None, lm_eval: Any, refused: Sequence[str]
) -> Score:
    """The scores of lm-evaluation-harness alone."""
    if lm_eval is None:
        raise InputError(
            "Name a task to evaluate the model on (task, --task), or tasks of lm-eval (lm_eval=, --lm-eval)."
        )
    if refused:
        raise InputError(
            f"{refused[0]} is about a task of layerscope, and only lm-eval's were named, which say it themselves; "
            "leave it out, or name a task too."
        )
    check_count(limit, "limit")
    return Harness(model, lm_eval).score(limit, max_length)


def _refused(split: str | None, metric: str | None, asked: Generating | None, tokens: int | None) -> list[str]:
    """What was given and has no meaning for lm-evaluation-harness."""
    given = {"split": split, "metric": metric, "generate": asked, "batch_tokens": tokens}
    return [name for name, value in given.items() if value is not None]


def check_generation(sitting: Sitting, asked: Generating | None) -> None:
    """Raise a sentence where a generation check was asked for and there is nothing to continue."""
    if asked is not None and type(sitting).__name__ != "RunningText":
        raise InputError(
            f"generate (--generate) continues running text with a causal language model; {sitting.task.name} is scored "
            f"by {', '.join(sitting.allowed)} here. Give a causal language model running text (kind='text', --kind "
            "text), or leave it out."
        )
