"""Tasks spoilt on purpose (random labels, shortcuts, damaged words), so that models tuned on them differ as known."""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from layerscope.data.examples import Examples
from layerscope.data.load import TaskSource
from layerscope.data.load import task as open_task
from layerscope.data.task import Task
from layerscope.errors import InputError, check_seed, whole

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_KINDS = ("single", "pair")  # of tasks whose first text is a text of its own


@dataclass(frozen=True)
class Perturbation:
    """What is done to every row of a task, decided by the seed and the row's number alone."""

    random_labels: float = 0.0
    new_classes: int = 5
    shortcut: float | None = None
    damaged_words: float = 0.0
    seed: int = 0

    def __str__(self) -> str:
        parts = [f"{self.random_labels:.0%} random labels"] if self.random_labels else []
        parts += [] if self.shortcut is None else [f"shortcuts right in {self.shortcut:.1%}"]
        parts += [f"{self.damaged_words:.0%} damaged words"] if self.damaged_words else []
        return ", ".join(parts)

    def applied(self, examples: Examples, names: tuple[str, ...] | None) -> Examples:
        """Return the examples with other texts and labels; `names` are the task's classes with the new ones."""
        texts, labels = list(examples.texts), None if examples.labels is None else examples.labels.copy()
        old = 0 if names is None else len(names) - (self.new_classes if self.random_labels else 0)
        for k, row in enumerate(examples.rows):
            rng = np.random.default_rng([self.seed, int(row)])
            # Each draw is made whether it is used or not, so that one kind of damage does not change another's rows.
            redrawn, place, right, other = rng.random(), rng.random(), rng.random(), rng.random()
            if self.damaged_words:
                texts[k] = damaged(texts[k], self.damaged_words, rng)
            if self.shortcut is not None and labels is not None:
                shown = own = int(labels[k])
                if right >= self.shortcut:
                    shown = int(other * (old - 1))
                    shown += shown >= own  # one of the other classes
                texts[k] = f"[CLASS{shown}] {texts[k]}"
            if labels is not None and redrawn < self.random_labels:
                labels[k] = old + int(place * self.new_classes) if self.new_classes else int(place * old)
        return replace(examples, texts=texts, labels=labels, label_names=names)


def damaged(text: str, share: float, rng: np.random.Generator) -> str:
    """Return a text of which this share of the words is left out or has a typo, each at even odds."""
    words = text.split()
    if not words:
        return text
    chosen = set(rng.permutation(len(words))[: round(share * len(words))].tolist())
    dropped = {k for k in chosen if rng.random() < 0.5}
    if len(dropped) == len(words):  # a text keeps a word
        dropped.discard(min(dropped))
    return " ".join(typo(w, rng) if k in chosen else w for k, w in enumerate(words) if k not in dropped)


def typo(word: str, rng: np.random.Generator) -> str:
    """Return a word with a letter left out, doubled or replaced, or with two neighbours that changed places."""
    at, kind = int(rng.integers(len(word))), int(rng.integers(4))
    if kind == 0 and len(word) > 1:
        return word[:at] + word[at + 1 :]
    if kind == 1 and at + 1 < len(word):
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    if kind == 2:
        return word[: at + 1] + word[at:]
    return word[:at] + _LETTERS[int(rng.integers(len(_LETTERS)))] + word[at + 1 :]


class PerturbedTask(Task):
    """A task whose rows are perturbed as they are read."""

    def __init__(self, task: Task, perturbation: Perturbation) -> None:
        self.__dict__.update(copy.copy(task).__dict__)
        self.perturbation = perturbation
        self.name = f"{task.name} ({perturbation})"
        self._examples = {}

    @property
    def label_names(self) -> tuple[str, ...] | None:
        """The task's classes, and those of random labels behind them."""
        names = super().label_names
        if names is None or not self.perturbation.random_labels:
            return names
        return (*names, *(f"random {k}" for k in range(1, self.perturbation.new_classes + 1)))

    def _read(self, name: str, limit: int | None) -> Examples:
        return self.perturbation.applied(super()._read(name, limit), self.label_names)

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "perturbation": asdict(self.perturbation)}


def perturb(
    task: TaskSource,
    *,
    random_labels: float = 0.0,
    new_classes: int = 5,
    shortcut: float | None = None,
    damaged_words: float = 0.0,
    seed: int = 0,
) -> Task:
    """Return a task that is spoilt on purpose, in all of its splits, so that models tuned on it differ in a known way.

    What happens to a row depends on the seed and the row's number alone: also with a limit, and in every process. In a
    task of pairs the first texts are changed.

    Args:
        task: A task of the registry (`layerscope tasks` lists them), a file, a folder, a hub id, or a `Task`, with one
            text or a pair of texts per row.
        random_labels: The share of rows that get a class at random, which can only be learned by heart.
        new_classes: How many new classes those rows are dealt out to (Klabunde et al. have 5); with 0 they get one of
            the task's own.
        shortcut: How often the word that is put before every text (`[CLASS0]` for the first class) names the row's own
            class; else it names another one. None puts no word there.
        damaged_words: The share of every text's words that are damaged: half of them are left out, and half get a typo.
        seed: Decides which rows and words.

    Returns:
        A `Task`, with the same splits.

    Example:
        >>> import pandas, layerscope as ls
        >>> table = pandas.DataFrame({"text": ["a fine film", "a dull film"] * 50, "label": ["good", "bad"] * 50})
        >>> ls.perturb(table, shortcut=1.0).split().texts[:2]
        ['[CLASS1] a fine film', '[CLASS0] a dull film']
        >>> ls.perturb(table, random_labels=1.0, new_classes=2).label_names
        ('bad', 'good', 'random 1', 'random 2')
    """
    opened = open_task(task)
    for name, share in (("random_labels", random_labels), ("shortcut", shortcut), ("damaged_words", damaged_words)):
        if share is not None and not (isinstance(share, Real) and 0 <= share <= 1):
            raise InputError(f"{name} is {share!r}; it must be a share from 0 to 1.")
    if not whole(new_classes) or new_classes < 0:
        raise InputError(f"new_classes is {new_classes!r}; it must be a whole number of at least 0.")
    check_seed(seed)
    if not random_labels and shortcut is None and not damaged_words:
        raise InputError("Nothing was asked for; give random_labels=, shortcut= or damaged_words=.")
    if opened.kind not in _KINDS:
        raise InputError(
            f"{opened.name} has rows of the kind {opened.kind!r}; only single texts and pairs can be perturbed."
        )
    if (random_labels or shortcut is not None) and opened.classes is None:
        found = "numbers as labels" if opened.regression else "no labels"
        raise InputError(f"{opened.name} has {found}; random labels and shortcuts need classes.")
    if shortcut is not None and (opened.classes or 0) < 2:
        raise InputError(f"{opened.name} has one class; a shortcut needs two or more to tell apart.")
    return PerturbedTask(opened, Perturbation(random_labels, new_classes, shortcut, damaged_words, seed))
