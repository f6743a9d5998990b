"""Where a task and a head meet: what is asked of which head, and what to say where they do not."""

from __future__ import annotations

from layerscope.data import Task
from layerscope.errors import InputError, ModelError
from layerscope.models import Model
from layerscope.models.heads import WORDS

_TASKS = {
    "single": "has one text per row",
    "pair": "has two texts per row",
    "choice": "has choices",
    "tags": "has a tag for every word",
    "text": "is running text",
}
# What is asked of a head by a task of a kind: the name of an exam.
_MEET = {
    ("classes", "single"): "classes",
    ("classes", "pair"): "classes",
    ("choices", "choice"): "classes",
    ("tags", "tags"): "tags",
    ("next", "text"): "running",
    ("next", "choice"): "likelihood",
    ("masked", "text"): "masked",
    ("none", "pair"): "embeddings",
}
_HEADS_FOR = {
    "single": "a classifier; train one with layerscope tune (ls.tune)",
    "pair": "a classifier (train one with layerscope tune, ls.tune) or, where the label is a number, a bare encoder or "
    "a model of sentence-transformers",
    "choice": "a model with a head for choices, or a causal language model",
    "tags": "a model for token classification",
    "text": "a causal or a masked language model",
}
_TASKS_FOR = {
    "classes": "texts or pairs with labels",
    "choices": "texts with choices",
    "tags": "words with tags (tags=, --tags; ewt-upos)",
    "masked": "running text (kind='text', --kind text; wikitext)",
    "next": "running text (kind='text', --kind text; wikitext), or texts with choices",
    "none": "pairs with a number as their label (stsb)",
}


def meeting(model: Model, task: Task) -> tuple[str, str]:
    """What is asked (classes, running, masked, likelihood, tags or embeddings), and the task's kind as it is read.

    Texts without labels, and those that may be read so, are running text to a language model.
    """
    head, kind = model.head, task.kind
    if head in ("next", "masked") and kind in ("single", "pair", "tags") and (task.running or not task.labelled):
        kind = "text"
    asked = _MEET.get((head, kind))
    if asked == "embeddings" and not task.regression:
        asked = None
    if asked is None:
        refuse(model, task, kind)
    assert asked is not None
    return asked, kind


def refuse(model: Model, task: Task, kind: str) -> None:
    """Raise the sentence that says what would do."""
    head = model.head
    name = f"{model.name} ({type(model.network).__name__})"
    goes = _TASKS_FOR.get(head)
    rest = f" {name} goes with {goes}." if goes else ""
    needs = f"{task.name} {_TASKS[kind]}, and {name} {WORDS[head]}. Such a task goes with {_HEADS_FOR[kind]}.{rest}"
    if head == "none" and kind == "single":
        raise ModelError(f"{model.name} is a bare encoder: it has no head to evaluate. {needs}")
    raise InputError(needs)
