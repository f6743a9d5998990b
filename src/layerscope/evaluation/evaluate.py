"""`ls.evaluate`, and the choice of the evaluator that fits a model's head and a task."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np

from layerscope import metrics
from layerscope.data import Examples, Task, TaskSource, task
from layerscope.errors import InputError, LayerscopeWarning, check_count, choose, log
from layerscope.evaluation.classification import ClassificationEvaluator
from layerscope.evaluation.embedding_similarity import single_texts
from layerscope.evaluation.evaluator import Evaluator, refuse
from layerscope.evaluation.generation import GenerationOptions, continuation
from layerscope.evaluation.label_order import note_order
from layerscope.evaluation.lm_eval import Harness
from layerscope.evaluation.perplexity import PerplexityEvaluator
from layerscope.evaluation.score import Score
from layerscope.evaluation.synthetic_tasks import synthetic_tasks
from layerscope.models import Model, ModelSource
from layerscope.models.heads import HEADS
from layerscope.models.lineage import held_out, learned, marks
from layerscope.models.load import load_whole


def select_evaluator(model: Model, task: Task) -> tuple[type[Evaluator], Task]:
    """Return the evaluator class for a model's head and a task, and the task as that evaluator reads it.

    A language model reads texts without labels, and texts that may be read so, as running text. Raises InputError where
    the head cannot answer the task.
    """
    evaluators, kind = HEADS[model.head].evaluators, task.kind
    if "text" in evaluators and kind in ("single", "pair", "tags") and (task.running or not task.labelled):
        kind = "text"
    if kind not in evaluators:
        refuse(model, task, kind)
    evaluator: type[Evaluator] = resolve_name(f"layerscope.evaluation.{evaluators[kind]}")
    if not evaluator.fits(task):
        refuse(model, task, kind)
    return evaluator, task.as_text() if kind == "text" else task


def make_evaluator(
    model: Any,
    data: Any,
    *,
    split: str | None = None,
    limit: int | None = None,
    max_length: int | None = None,
    batch_tokens: int | None = None,
    metric: str | None = None,
    all_rows: bool = False,
    used: Sequence[Examples] = (),
) -> Evaluator:
    """Return the evaluator of a model on a split of a task, without the rows that the model learned from.

    `used` are texts that patch the model. Rows that hold one of them are never scored, wherever they come from.
    """
    loaded, opened = load_whole(model, "evaluation (truncation curves, skip maps and advice, too)"), task(data)
    check_count(limit, "limit")
    kind, opened = select_evaluator(loaded, opened)
    # Where a task has several splits, one that the model learned from as a whole was asked for by name: it is scored.
    several = len(opened.splits) > 1
    # Rows that it learned from are known by the identity of the whole split.
    read = opened.split(split, limit=None if learned(loaded.network) or used else limit)
    patching = holds_texts(loaded, read, used)
    if patching.all():
        raise InputError(
            f"All {len(read)} rows of {read.task} ({read.split}) hold texts that patch {loaded.name}, so none is left "
            "to score it on; give other texts to patch on (--patch, --texts), or other data to score."
        )
    if patching.any():
        log.warning(
            "%d of the %d rows of %s (%s) hold texts that patch %s, and are not scored.",
            *(patching.sum(), len(read), read.task, read.split, loaded.name),
        )
        read = read.take(~patching)
    examples, note = held_out([loaded], read, limit, all_rows, or_all=several)
    if patching.any():
        note = "; ".join(part for part in (note, "held out: rows without texts that patch the model") if part)
    if kind is ClassificationEvaluator:
        note_order(loaded, opened)
        return ClassificationEvaluator(loaded, opened.with_metric(metric), examples, max_length, batch_tokens, note)
    if metric is not None:
        choose("metric", metric, metrics.METRICS)
    return kind(loaded, opened, examples, max_length, batch_tokens, note, metric)


def holds_texts(model: Model, examples: Examples, others: Sequence[Examples]) -> np.ndarray:
    """Return (n,) whether each row has the texts of a row of other examples, whatever its number and its label.

    Where a model reads every text by itself, as embedding models do, a row counts that shares one text.
    """
    if not others:
        return np.zeros(len(examples), dtype=bool)
    parts = [examples, *others] if model.has_head else list(map(single_texts, (examples, *others)))
    shared = np.isin(marks(parts[0]), np.concatenate([marks(part) for part in parts[1:]]))
    return np.isin(examples.rows, parts[0].rows[shared])


def evaluate(
    model: ModelSource,
    task: TaskSource | None = None,
    *,
    split: str | None = None,
    limit: int | None = None,
    max_length: int | None = None,
    batch_tokens: int | None = None,
    metric: str | None = None,
    all_rows: bool = False,
    generate: bool | int | Mapping[str, int] | None = None,
    new_tokens: int | None = None,
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
        model: A checkpoint whose head can answer the task: a folder, a hub id, `id@revision`, a GGUF file or a `Model`.
        task: A task of the registry (`layerscope tasks` lists them), a file, a folder, a hub id, or a `Task`. It is
            left out where only tasks of lm-evaluation-harness are asked for.
        split: The split; `validation` where there is one, else the only one.
        limit: Use only the first N examples.
        max_length: The longest text in tokens: what the model allows, at most 512 (running text: 2,048).
        batch_tokens: Tokens per batch, padding included.
        metric: Where it is not the task's own: accuracy, f1, matthews or pearson_spearman (the mean of both);
            perplexity, nll or bits_per_byte; acc or acc_norm; spearman or pearson.
        all_rows: Score also the rows that the model learned from; otherwise they are left out, as far as
            `layerscope.json` beside its weights tells.
        generate: Language models on running text: continue N prompts that are cut out of it, greedily, and compare with
            what follows there; and answer N questions each of four kinds (additions, closing brackets, copying a list,
            the last word of a repeated sentence). In Python also True (64), or `prompts`, `prompt_tokens` (64),
            `new_tokens` (32) and `seed` (0) by name.
        new_tokens: With generated text: by how many tokens each prompt is continued; 32 if not given.
        lm_eval: Tasks of lm-evaluation-harness for a causal language model: names such as `hellaswag`, or files of your
            own (`my.yaml`); in Python also what would stand in one. Needs the extra `lm-eval`.

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
    if new_tokens is not None:
        if not generate:
            raise InputError(
                "new_tokens (--new-tokens) is for a generation check; give generate (--generate) too, or leave it out."
            )
        prompts = {} if generate is True else generate if isinstance(generate, Mapping) else {"prompts": generate}
        generate = {**prompts, "new_tokens": new_tokens}
    asked = GenerationOptions.asked(generate)
    if task is None:
        whole = load_whole(model, "evaluation")
        task_only = {"split": split, "metric": metric, "generate": asked, "batch_tokens": batch_tokens}
        refused = [name for name, value in task_only.items() if value is not None]
        return _without_task(whole, limit, max_length, lm_eval, refused)
    opened = load_whole(model, "evaluation")
    evaluator = make_evaluator(
        opened,
        task,
        split=split,
        limit=limit,
        max_length=max_length,
        batch_tokens=batch_tokens,
        metric=metric,
        all_rows=all_rows,
    )
    check_generation(evaluator, asked)
    # Made before the model is run, so that tasks of lm-eval that cannot be asked are refused at once.
    harness = None if lm_eval is None else Harness(opened, lm_eval)
    answers, cut = evaluator.answers_together(evaluator.examples)
    evaluator.note_cut(cut)
    score = evaluator.score(answers)
    if np.isnan(score):
        warnings.warn(f"{score.metric} is undefined: {evaluator.undefined}.", LayerscopeWarning, stacklevel=3)
    if asked is not None:
        source, prompt_options, bos = evaluator.source  # type: ignore[attr-defined]
        score.more = continuation(opened, source, prompt_options, bos, asked) + synthetic_tasks(opened, bos, asked)
        score.metrics = {**score.metrics, **{number.metric: number.value for number in score.more}}
        settings = {**score.provenance["settings"], "generate": dataclasses.asdict(asked)}
        score.provenance = {**score.provenance, "settings": settings}
    if harness is not None:
        score.harness = harness.score(limit, max_length)
    return score


def _without_task(
    model: Model, limit: int | None, max_length: int | None, lm_eval: Any, refused: Sequence[str]
) -> Score:
    """Return the scores of lm-evaluation-harness alone; `refused` names arguments that have no meaning for it."""
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


def check_generation(evaluator: Evaluator, asked: GenerationOptions | None) -> None:
    """Raise InputError where a generation check was asked for and the task is not running text."""
    if asked is not None and not isinstance(evaluator, PerplexityEvaluator):
        raise InputError(
            f"generate (--generate) continues running text with a causal language model; {evaluator.task.name} is "
            f"scored by {', '.join(evaluator.allowed)} here. Give a causal language model running text (kind='text', "
            "--kind text), or leave it out."
        )
