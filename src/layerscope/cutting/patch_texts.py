"""The texts of a patch: in sets that share none, they solve it, choose it, and tell what it is worth.

Texts are known by what they say, wherever they stand: one that occurs twice is in one set, and no text that is scored
is in any.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from layerscope.data import Examples, Task
from layerscope.data import task as open_task
from layerscope.data.registry import registry
from layerscope.errors import InputError, log
from layerscope.evaluation.divergence import DivergenceEvaluator
from layerscope.evaluation.embedding_similarity import single_texts
from layerscope.evaluation.evaluate import holds_texts, select_evaluator
from layerscope.evaluation.evaluator import Evaluator
from layerscope.evaluation.label_order import has_default_names, head_names
from layerscope.evaluation.perplexity import PerplexityEvaluator
from layerscope.models import Model
from layerscope.models.architecture import evaluating
from layerscope.models.heads import HEADS, PAIR_LABELS, TASKS
from layerscope.models.lineage import learned, marks, trained
from layerscope.models.selfcheck import primary, probe_inputs
from layerscope.resampling import folds

TOKENS = 40_960  # of running text, where nothing else is asked for
WINDOW = 512
TEXTS = 2_500
_OTHER = 200  # texts of a second domain
_LEAST_TOKENS = 16_000  # to solve on
_LEAST_TEXTS = 10
_CHARACTERS = 8  # of a token, at most as a rule: so much text is read for so many tokens
_FEW_CHARACTERS = 3  # of a token, at least as a rule: so much text fits into a window
_DOCUMENTS = 40  # of running text, where they are long
_MOST_CHARACTERS = 8 << 20  # of these documents together


@dataclass(frozen=True)
class PatchTexts:
    """The texts of patches, in sets that share none: they solve, they choose, and they tell what it is worth.

    `other` may hold texts of another domain, on which a patch must not be worse than the plain cut either.
    """

    solving: Evaluator
    choosing: Evaluator
    held: Evaluator
    learned: Examples  # all of these that the model is not to be scored on
    other: Evaluator | None = None
    others: Examples | None = None  # the texts of the other domain as they were given

    @property
    def used(self) -> list[Examples]:
        """All texts that have a part in the patch, the decision whether it is applied included."""
        return [part for part in (self.learned, self.others) if part is not None]

    def spec(self) -> dict[str, Any]:
        """Return what decides them, for keys of the store."""
        parts = {"solving": self.solving, "choosing": self.choosing, "held": self.held, "other": self.other}
        return {name: None if part is None else part.spec() for name, part in parts.items()}


def deal(
    model: Model,
    task: Task,
    examples: Examples | None = None,
    *,
    held: Examples | None = None,
    scored: Examples | None = None,
    other: Task | None = None,
    limit: int | None = None,
    max_length: int | None = None,
    like: Task | None = None,
) -> PatchTexts:
    """Return texts in three sets: three fifths solve, a fifth chooses, a fifth is held out.

    Args:
        model: The whole model.
        task: How texts are read; labels are not used.
        examples: The texts; those of the task's training split, where it has one, if not given.
        held: Texts to hold out, in place of the fifth.
        scored: Texts that the patched model will be scored on: they have no part in the patch.
        other: Texts of another domain.
        limit: Use only the first N texts, or windows of running text. If not given, 2,500 texts are drawn, or 40,960
            tokens of running text are taken.
        max_length: The longest text in tokens; of running text, a window: 512 if not given.
        like: The task that the model is for, where it is known: a pair cannot be read as a text.
    """
    kind, task = _reader(model, task, like)
    apart = [part for part in (held, scored) if part is not None]
    examples = _without(model, task.split(learning=True) if examples is None else examples, apart, "patch (--patch)")
    parts = 5 if held is None else 4
    running, length = kind is PerplexityEvaluator, max_length
    if running:
        length = min(max_length or WINDOW, model.positions or WINDOW)
        sets, examples = _running_sets(model, task, examples, length, limit, parts)
    else:
        examples = _drawn(examples, TEXTS) if limit is None else examples.first(limit)
        # A text that occurs in several pairs is read by itself, and must not be solved on and held out.
        rows = examples if model.has_head else single_texts(examples)
        numbers = _parts_of(_alike(marks(rows).tolist()), parts, examples)
        sets = [kind(model, task, rows.take(np.flatnonzero(numbers == k)), length) for k in range(parts - 2)]
    if held is not None:
        sets.append(kind(model, task, held, length))
    if running and (tokens := sum(map(len, sets[0].encoded()))) < _LEAST_TOKENS:
        log.warning(
            "%s gives %s tokens to solve a patch on; with less than %s it takes back less of what a cut costs.",
            *(task.name, f"{tokens:,}", f"{_LEAST_TOKENS:,}"),
        )
    beside, others = None, None
    if other is not None:
        kind, read = _reader(model, other, like)
        others = _without(model, read.split(learning=True), [examples, *apart], "other (--other)")
        others = _drawn(others, _OTHER)
        # A cut may predict texts of another domain better by chance, so a language model is judged there by how far its
        # predictions are from the whole model's. One text at a time, since that takes all of its logits.
        judged = _drawn(_cut_up(others, length * _FEW_CHARACTERS), _OTHER) if running and length else others
        kind = DivergenceEvaluator if running else kind
        beside = kind(model, read, judged, length, length if running else None)
    solving, choosing, last = sets
    return PatchTexts(solving, choosing, last, examples, beside, others)


def texts_of(
    model: Model, patch: Any, other: Any, like: Task | None = None, limit: int | None = None
) -> PatchTexts | None:
    """Return the texts of a patch, and of another domain, as a function is given them; None where none is asked for."""
    if patch is None:
        if other is not None:
            raise InputError("other (--other) is for a patch: give the texts that patch as well (--patch).")
        return None
    beside = None if other is None else open_task(other)
    return deal(model, open_task(patch), other=beside, limit=limit, like=like)


def _without(model: Model, examples: Examples, apart: Sequence[Examples], argument: str) -> Examples:
    """Return the examples that share no text with others; raise InputError where none is left."""
    shared = holds_texts(model, examples, apart)
    if shared.all():
        raise InputError(
            f"Every text of {examples.task} ({examples.split}) is scored or has another part in the patch, so none is "
            f"left to patch on; give other texts as {argument}."
        )
    return examples.take(~shared) if shared.any() else examples


def _drawn(examples: Examples, most: int) -> Examples:
    """Return at most so many examples, in their order, drawn from all of them: files are often sorted by class."""
    if len(examples) <= most:
        return examples
    return examples.take(np.sort(np.random.default_rng(0).permutation(len(examples))[:most]))


def _alike(contents: Sequence[Any]) -> np.ndarray:
    """Return the number of each content among the different ones, in the order in which these come first."""
    numbers: dict[Any, int] = {}
    return np.asarray([numbers.setdefault(content, len(numbers)) for content in contents])


def _parts_of(groups: np.ndarray, parts: int, examples: Examples) -> np.ndarray:
    """Return the set of each text: 0 for three of the parts, then 1 and 2; texts of one group are in one set."""
    count = len(np.unique(groups))
    if count < _LEAST_TEXTS:
        raise InputError(
            f"{examples.task} ({examples.split}) has {count} different texts; a patch needs at least {_LEAST_TEXTS}, "
            "to solve on, to choose on and to hold out."
        )
    return np.maximum(folds(groups, parts, seed=0) - 2, 0)


def _running_sets(
    model: Model, task: Task, examples: Examples, length: int, limit: int | None, parts: int
) -> tuple[list[Evaluator], Examples]:
    """Return windows of running text in sets that share no text, and the texts that they are made of.

    Where documents are long, a few of them would fill all windows. If nothing was said of how many to take, more
    documents are drawn then, and some windows taken of each; where there are too few documents, windows are dealt out.
    """
    most = limit or TOKENS // length
    sizes = np.asarray([len(text) + 2 for text in examples.texts])
    count = int(np.searchsorted(np.cumsum(sizes), most * length * _CHARACTERS)) + 1
    if limit is None and count < _DOCUMENTS:
        count = max(count, min(_DOCUMENTS, int(_MOST_CHARACTERS / sizes.mean())))
        examples = _drawn(examples, count)
    examples = examples.take(slice(count))
    whole = PerplexityEvaluator(model, task, examples, length)
    within = whole.texts_within(most) if len(whole.examples) > most else len(examples)
    taken = within if limit is not None else max(within, _DOCUMENTS)
    if taken < len(examples):
        examples = examples.take(slice(taken))
        whole = PerplexityEvaluator(model, task, examples, length)
    texts = _alike(marks(examples).tolist())
    if whole.text_count == len(examples) and len(np.unique(texts)) >= _LEAST_TEXTS:
        parted, of_rows = whole.dealt(_parts_of(texts, parts, examples))
    else:
        whole = whole.subset(slice(most) if limit is not None else _spread(len(whole.examples), most))
        parted = whole
        of_rows = _parts_of(_alike([item.ids.tobytes() for item in whole.encoded()]), parts, examples)
    sets: list[Evaluator] = []
    for k in range(parts - 2):
        rows = np.flatnonzero(of_rows == k)
        share = math.ceil(most * (3 if k == 0 else 1) / parts)
        sets.append(parted.subset(rows[_spread(len(rows), share)] if taken > within else rows))
    return sets, examples


def _spread(count: int, most: int) -> np.ndarray:
    """Return at most so many of the numbers below a count, at equal distances."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(int))


def _cut_up(examples: Examples, size: int) -> Examples:
    """Return pieces of texts as texts, each of at most so many characters, ending at a space where there is one."""
    pieces = [
        found for text in examples.texts for found in re.findall(rf"(?s).{{1,{size}}}(?:\s|$)|.{{1,{size}}}", text)
    ]
    whole = [piece for piece in pieces if piece.strip()]
    more: dict[str, Any] = dict.fromkeys(
        ("pairs", "choices", "words", "tags", "prompts", "labels", "label_names", "lines")
    )
    return replace(examples, texts=whole, rows=np.arange(len(whole)), counted="piece", **more)


def _reader(model: Model, task: Task, like: Task | None) -> tuple[Any, Task]:
    """Return the evaluator that judges a patch of a model on a task's texts, and the task as it is read."""
    head = HEADS[model.head]
    if "text" in head.evaluators:
        return select_evaluator(model, task.as_text())
    for each in (task, like):
        if not model.has_head and each is not None and each.prompt_options.embedding is not None:
            raise InputError(
                f"{each.name} asks for embeddings by {each.prompt_options.embedding} pooling (embedding=, "
                "--embedding), and a patch puts a module behind the pooling that the model has itself; leave the "
                "pooling out, or save the model with it first."
            )
    if not model.has_head:
        with torch.inference_mode(), evaluating(model.network):
            given = primary(model.network(**probe_inputs(model, rows=1)))
        if given.shape[-1] != model.width:
            raise InputError(
                f"{model.name} is a {type(model.network).__name__}, whose head layerscope does not know: it gives "
                f"{given.shape[-1]:,} numbers for a token, and states have {model.width:,}. What it loses by a cut "
                "cannot be judged, so it is not patched; cut it without a patch."
            )
    if model.head not in ("classes", "choices", "tags", "none"):
        raise InputError(
            f"{model.name} ({type(model.network).__name__}) {head.words}, and a patch is judged by classes, choices, "
            "tags, numbers, embeddings or the next token; cut it without one."
        )
    wanted = "choice" if model.multiple_choice else "pair" if model.has_head and _reads_pairs(model, task, like) else ""
    if (wanted and task.kind != wanted) or (task.kind == "choice" and not model.multiple_choice):
        words = {"choice": "several choices for each text", "pair": "two texts in each row"}.get(wanted, "single texts")
        raise InputError(
            f"{task.name} {TASKS[task.kind][0]}, and {model.name} reads {words}; give texts as it reads them (a table "
            "with text=, text_pair= or choices=), with or without labels."
        )
    return DivergenceEvaluator, task


def _reads_pairs(model: Model, task: Task, like: Task | None) -> bool:
    """Return whether a classifier is for pairs of texts: by the task that it is for, its record, or its classes."""
    if (like is not None and like.kind == "pair") or _learned_from_pairs(model):
        return True
    if model.head != "classes" or (like is not None and like.labelled):
        return False
    names = {re.sub(r"[\s-]+", "_", name.lower()) for name in head_names(model)}
    if names & PAIR_LABELS:
        return True
    # Of numbered classes without any record nothing tells; labels beside single texts say that it reads these.
    recorded = learned(model.network) or trained(model.network)
    if task.kind == "single" and not task.labelled and not recorded and has_default_names(model):
        log.warning(
            "Whether %s was tuned on single texts or on pairs is not recorded, and its classes have no names: single "
            "texts are assumed.",
            model.name,
        )
    return False


def _learned_from_pairs(model: Model) -> bool:
    """Return whether a model is known to have been tuned on pairs of texts."""
    entries = (*learned(model.network), *trained(model.network))
    if any(entry.get("pairs") is True for entry in entries):
        return True
    names = {entry["task"].partition("@")[0] for entry in entries}  # records of earlier versions say no more
    return any(
        spec.columns.text_pair and not spec.columns.choices for spec in registry().values() if spec.name in names
    )
