"""Which output of a head stands for which class of a task: matched by name, by the order that was given, or refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from layerscope.data import Task
from layerscope.errors import InputError, log, some
from layerscope.models import Model


def outputs_of(model: Model, task: Task) -> np.ndarray:
    """Return for each class of the task the head's output that stands for it, or raise InputError."""
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
        raise InputError(f"{name} gives several labels per text (problem_type), and {task.name} has one.")
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
    """Return the names of a head's outputs; raise InputError where the names are not those of outputs 0, 1, .."""
    config = model.network.config
    if set(config.id2label) != set(range(config.num_labels)):
        raise InputError(
            f"The head of {model.name} has outputs 0..{config.num_labels - 1}, and its config names outputs "
            f"{some(config.id2label)}; set config.id2label to one name for each output, counted from 0."
        )
    return [str(config.id2label[i]).strip() for i in range(config.num_labels)]


def has_default_names(model: Model) -> bool:
    """Return whether a head's outputs are called LABEL_0, LABEL_1, .. in this order, the default of transformers."""
    names = [re.fullmatch(r"label_?(\d+)", name, re.IGNORECASE) for name in head_names(model)]
    return all(match is not None and int(match[1]) == i for i, match in enumerate(names))


def note_order(model: Model, task: Task) -> None:
    """Warn which class each output is taken for, where neither the head nor the data says so."""
    names = task.label_names
    if names is None or task.kind == "choice" or task.is_ordered or task.head_order is not None:
        return
    if model.has_head and has_default_names(model) and len(names) == len(head_names(model)):
        if _by_name(names, head_names(model)) is not None:
            return
        pairs = ", ".join(f"{output} is {name}" for output, name in zip(head_names(model), names, strict=True))
        log.warning(
            "The outputs of %s have no names, so they are read as the classes of %s in sorted order: %s. Where that "
            "is wrong, name the classes in the order of the outputs: labels=, --labels.",
            *(model.name, task.name, pairs),
        )


def _by_name(wanted: Sequence[str], have: Sequence[str]) -> np.ndarray | None:
    """Return the place of each wanted name among those of a head, or None where they are not the same names.

    Names that differ only in case, spaces and hyphens count as the same where the exact ones do not match.
    """
    for spelled in (str, lambda label: re.sub(r"[\s\-]+", "_", str(label).strip().lower())):
        ours, theirs = [spelled(name) for name in wanted], [spelled(name) for name in have]
        if len(set(theirs)) == len(theirs) and sorted(ours) == sorted(theirs):
            return np.asarray([theirs.index(name) for name in ours])
    return None


def _count(things: Sequence[Any], name: str, more: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else more}"
