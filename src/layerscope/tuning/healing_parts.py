"""Which texts heal a cut model and which are held out, and the aim that they and the model's head make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from layerscope.data import Examples, Task
from layerscope.data.resampling import ending
from layerscope.errors import InputError, ModelError, log
from layerscope.evaluation.kinds import meeting
from layerscope.evaluation.masked import Masked
from layerscope.evaluation.running import RunningText
from layerscope.evaluation.tags import Tags
from layerscope.models import Model
from layerscope.models.heads import WORDS
from layerscope.models.lineage import known_rows
from layerscope.probing.labelled import parted
from layerscope.tuning.aims.aim import Aim, Teaching
from layerscope.tuning.aims.classes import ClassAim
from layerscope.tuning.aims.embeddings import EmbeddingAim
from layerscope.tuning.aims.tokens import TokenAim
from layerscope.tuning.hyperparameters import Hyperparameters

HELD_OUT = 0.1  # of running text that comes in one split
WINDOWS = 64  # of held-out running text, where no other number is asked for
_CHARACTERS = 8  # of a token, at most as a rule: so much text is read for so many tokens
_KINDS = {"running": RunningText, "masked": Masked, "tags": Tags}


def asked_of(model: Model, task: Task, taught: bool) -> tuple[str, Task]:
    """What a model is healed by (running, masked, tags, classes or embeddings), and the task as it is read for it."""
    if model.head == "none":
        return "embeddings", task
    if model.head in ("classes", "choices") and not task.labelled:
        if (task.kind == "choice") != model.multiple_choice or task.kind in ("tags", "text"):
            raise InputError(
                f"{task.name} cannot heal {model.name} ({type(model.network).__name__}), which {WORDS[model.head]}; "
                "give texts or choices as it reads them."
            )
        if not taught:
            raise InputError(
                f"{task.name} has no labels; name the column that holds them (label=, --label), or heal on the answers "
                "of the uncut model: distill=True, --distill."
            )
        return "classes", task
    asked, kind = meeting(model, task)
    if asked == "likelihood":
        raise InputError(
            f"{task.name} has choices, and a language model is healed on running text; give that (kind='text', --kind "
            "text), and score the choices afterwards with layerscope evaluate."
        )
    return asked, task.as_text() if kind == "text" else task


def parts_of(task: Task, asked: str, model: Model, limits: tuple[int | None, int | None]) -> tuple[Examples, Examples]:
    """The texts to learn from and those to hold out, without what the model learned from before.

    Of running text in one split the end is held out; of other texts a fifth, drawn with every class in proportion.
    """
    running = asked in ("running", "masked")
    if running and len(task.splits) == 1:
        whole = task.split()
        if len(whole) < 2:
            raise InputError(
                f"{task.name} is one text, and some of it must be held out; give two files, one to learn from and one "
                "to hold out (a folder with train and validation), or one text per line."
            )
        at = ending([len(text) + 1 for text in whole.texts], HELD_OUT)
        learned, held = whole.take(slice(0, at)), whole.take(slice(at, None))
        log.warning(
            "%s (%s) is used for learning and scoring: of its %d texts, the last %d are held out and scored.",
            *(task.name, whole.split, len(whole), len(held)),
        )
    elif running:
        learned, held = task.split(learning=True), task.split()
    else:
        learned, held = parted(task, limits)
    known = known_rows([model], held, in_other_data=len(task.splits) == 1)
    if known.all():
        raise InputError(
            f"{model.name} has learned from all {len(held)} texts of {task.name} ({held.split}) that were to be held "
            "out; give other texts."
        )
    if known.any():
        log.warning("%s learned from %d of the texts to be held out; they are left out.", model.name, known.sum())
        held = held.take(~known)
    return learned, held


def make_aim(
    model: Model, task: Task, asked: str, hyperparameters: Hyperparameters, teaching: Teaching
) -> tuple[Aim, Examples, Examples]:
    """The aim, and the texts that are really learned from and held out."""
    h = hyperparameters
    learned, held = parts_of(task, asked, model, (h.train_limit, h.validation_limit))
    if asked in ("classes", "embeddings"):
        kind = ClassAim if asked == "classes" else EmbeddingAim
        return kind(model, task, learned, held, teaching, h.max_length), learned, held
    sitting = _KINDS[asked]
    if asked != "running":
        learned, held = learned.take(slice(h.train_limit)), held.take(slice(h.validation_limit))
        return _tokens(sitting, model, task, (learned, held), h, teaching), learned, held
    steps = None if h.max_steps is None else h.max_steps * h.batch * h.accumulate
    most = min((n for n in (steps, h.train_limit) if n is not None), default=None)
    windows, learned = _windows(model, task, learned, h.max_length, most)
    scored, held = _windows(model, task, held, h.max_length, h.validation_limit or WINDOWS)
    return TokenAim(windows, scored, teaching), learned, held


def _tokens(
    kind: Any, model: Model, task: Task, parts: Sequence[Examples], h: Hyperparameters, teaching: Teaching
) -> Aim:
    learned, scored = (kind(model, task, part, h.max_length) for part in parts)
    return TokenAim(learned, scored, teaching)


def _windows(
    model: Model, task: Task, examples: Examples, max_length: int, most: int | None
) -> tuple[RunningText, Examples]:
    """At most so many windows of running text, and the texts that they are made of. No more is tokenised than that."""
    if most is None:
        return RunningText(model, task, examples, max_length), examples
    sizes = np.cumsum([len(text) + 2 for text in examples.texts])
    wanted = most * max_length * _CHARACTERS
    while True:
        count = min(int(np.searchsorted(sizes, wanted)) + 1, len(examples))
        sitting = RunningText(model, task, examples.take(slice(0, count)), max_length)
        if len(sitting.examples) >= most or count == len(examples):
            break
        wanted *= 2
    if len(sitting.examples) <= most:
        return sitting, examples.take(slice(0, count))
    return sitting.taken(slice(most)), examples.take(slice(0, sitting.texts_within(most)))


def check_healable(model: Model) -> None:
    """Raise where no training can be trusted on this model, or none of its answers be learned."""
    if model.anatomy.unpadded:
        raise ModelError(
            f"The states of {model.name} ({model.anatomy.family}) change with padding, and training pads the texts of "
            "a batch to one length: what is healed would answer unlike what is evaluated."
        )
    if getattr(model.network, "hf_quantizer", None) is not None:
        raise ModelError(f"{model.name} is quantised; heal the model that it was made from, then quantise that.")
