"""Tasks: texts, labels, splits, metric; from the registry, the hub, files or memory."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from layerscope.data import pydocs
from layerscope.data.examples import Examples, check_words_by
from layerscope.data.labels import Labels, hidden, infer_labels, pick
from layerscope.data.metrics import METRICS
from layerscope.data.registry import Columns, Hub, TaskSpec, registry, spec_of
from layerscope.data.rows import build, guess_columns, index_labels
from layerscope.data.sources import (
    HubSource,
    LocalSource,
    MirroredSource,
    Source,
    expanded,
    folder_source,
    mirror,
    roots,
)
from layerscope.data.tables import MAX_FIELD, Table, check_max_field, endings, readable
from layerscope.errors import DataError, InputError, choose, log, near, some, unknown


class Task:
    """Texts with labels in named splits; `ls.task` makes one. Nothing is read before it is asked for.

    Attributes:
        name: The task's name.
        splits: The names of its splits.
        kind: `single`, `pair` or `choice`.
        label_names: The classes in order, or None for a regression or a task without labels.
        regression: Whether labels are numbers.
        metric: What it is scored by.

    Example:
        >>> import layerscope as ls
        >>> task = ls.task("pydocs")
        >>> task.kind, task.metric, "train" in task.splits
        ('single', 'accuracy', True)
        >>> len(task.split("train")) > 100
        True
    """

    def __init__(
        self,
        name: str,
        source: Source,
        columns: Columns,
        *,
        labels: Labels | None = None,
        metric: str | None = None,
        number: bool | None = None,
        skip_bad: bool = False,
        version: int = 1,
        edition: str = "",
        head_order: Sequence[str] | None = None,
        words_by: str | None = None,
    ) -> None:
        self.name = name
        self.edition = edition  # what else decides the rows: the Python whose docstrings are read
        self.version = version
        self._source = source
        self._columns = columns
        self._labels = labels
        self._known = labels is not None  # a registry task: nothing about it is guessed
        self._guessed = self._known
        self._number = number
        self._metric = metric
        self._skip_bad = skip_bad
        self._words_by = check_words_by(words_by)
        self._head_order = None if head_order is None else tuple(str(name).strip() for name in head_order)
        self._tables: dict[str, Table] = {}
        self._examples: dict[str, Examples] = {}

    @property
    def splits(self) -> tuple[str, ...]:
        return self._source.splits

    @property
    def metric(self) -> str:
        """The task's metric: accuracy, f1, matthews or pearson_spearman."""
        if self._metric:
            return self._metric
        return "pearson_spearman" if self.regression else "accuracy"

    @property
    def label_names(self) -> tuple[str, ...] | None:
        """The classes in order, or None for a regression or a task without labels."""
        labels = self._label_meaning()
        return labels.names if labels and not labels.number else None

    @property
    def head_order(self) -> tuple[str, ...] | None:
        """The classes in the order of a head's outputs, where `labels=` gave one; an error where they are others."""
        if self._head_order is None:
            return None
        have = self.label_names
        if have is None or sorted(self._head_order) != sorted(have):
            found = "no classes" if have is None else f"the classes {some(have)}"
            raise InputError(
                f"labels= (--labels) names {some(self._head_order)}, and {self.name} has {found}; name each of "
                "its classes once, in the order of the head's outputs."
            )
        return self._head_order

    @property
    def is_ordered(self) -> bool:
        """Whether the data itself says which class comes first, and not just the alphabet."""
        labels = self._label_meaning()
        return labels is None or labels.ordered

    @property
    def regression(self) -> bool:
        labels = self._label_meaning()
        return labels is not None and labels.number

    @property
    def kind(self) -> str:
        """`single`, `pair` or `choice`."""
        columns = self._read_columns()
        return "choice" if columns.choices else "pair" if columns.text_pair else "single"

    def resolve(self, split: str | None, learning: bool = False) -> str:
        """The split that is meant: the one asked for, or `validation` (`train` for learning), or the only one."""
        splits = self.splits
        if split is not None:
            if split not in splits:
                raise InputError(
                    f"The task {self.name} has no split {split!r}; it has {', '.join(splits)}.{near(split, splits)}"
                )
            return split
        preferred = "train" if learning else "validation"
        if preferred in splits:
            return preferred
        if len(splits) == 1:
            return splits[0]
        raise InputError(f"The task {self.name} has no split {preferred!r}; choose one of {', '.join(splits)}.")

    def split(self, name: str | None = None, *, learning: bool = False) -> Examples:
        """The examples of a split, in the data's order."""
        name = self.resolve(name, learning)
        if name not in self._examples:
            columns, labels = self._read_columns(), self._label_meaning()
            full = f"{self.name}@{self.edition}" if self.edition else self.name
            examples = build(
                self._table(name),
                columns,
                labels,
                task=full,
                split=name,
                skip_bad=self._skip_bad,
                may_lack_labels=not self._known,
            )
            if self._words_by is not None:
                examples = replace(examples, words=None, words_by=self._words_by)
            self._examples[name] = examples
            self._tables.pop(name, None)
        return self._examples[name]

    def parted(
        self,
        held: float,
        split: str | None = None,
        limits: tuple[int | None, int | None] = (None, None),
        known: Callable[[Examples], np.ndarray] | None = None,
    ) -> tuple[Examples, Examples]:
        """The examples to learn from and those to score, at most so many of each.

        Where one split must serve for both, the share `held` of it is scored; both are drawn, the same for every seed,
        with every class in proportion. Else they are the first ones of their splits. Rows that are `known`, because a
        model learned from them before, are not scored; where there are any, they come first among those to learn from.
        """
        train, scored = self.split(learning=True), self.split(split)
        before = np.zeros(len(scored), dtype=bool) if known is None else known(scored)
        if before.all():
            raise InputError(
                f"Every row of {self.name} ({scored.split}) was learned from before, so none is left to score; give "
                "other data or another split, or score them all the same with all_rows=True (--all-rows)."
            )
        if train.split != scored.split:
            return train.take(slice(limits[0])), scored.take(np.flatnonzero(~before)[: limits[1]])
        n = len(train)
        if n < 2:
            raise InputError(f"{self.name} has one row; at least one to learn from and one to score are needed.")
        count = min(max(1, int(n * held + 1e-9)), n - 1)
        order = _drawn(n, None if self.regression else train.labels)
        if before.any():  # those that may be scored come first
            order = order[np.argsort(before[order], kind="stable")]
            count = int((~before).sum())
        learned, rest = np.sort(order[count:][: limits[0]]), np.sort(order[:count][: limits[1]])
        log.warning(
            "%s (%s) is learned from and scored: of its %d rows %d are held out and scored, and %d others learned "
            "from.",
            *(self.name, train.split, n, len(rest), len(learned)),
        )
        return train.take(learned), train.take(rest)

    def spec(self) -> dict[str, Any]:
        """What decides how answers are read and scored: kind, classes in order, metric. For keys of the store."""
        order = {} if self.head_order is None else {"head_order": list(self.head_order)}
        return {
            **order,
            "name": self.name,
            "version": self.version,
            "kind": self.kind,
            "labels": None if self.label_names is None else list(self.label_names),
            "regression": self.regression,
            "metric": self.metric,
        }

    def with_metric(self, metric: str | None) -> Task:
        """The same task scored by another metric; the task itself where none is named."""
        if metric is None or metric == self.metric:
            return self
        chosen = copy.copy(self)
        chosen._metric = choose("metric", metric, METRICS)
        return chosen

    def is_here(self, split: str) -> bool:
        """Whether a split can be read without asking the hub."""
        return self._source.is_here(split)

    def _table(self, split: str) -> Table:
        if split not in self._tables:
            self._tables[split] = self._source.table(split)
        return self._tables[split]

    def _read_columns(self) -> Columns:
        """The columns, guessed once where they were not given; from train, since test may lack its labels."""
        if not self._guessed:
            model = next((name for name in ("train", "validation") if name in self.splits), self.splits[0])
            self._columns = guess_columns(self._table(model), self._columns)
            self._guessed = True
        return self._columns

    def _label_meaning(self) -> Labels | None:
        """What the labels mean, learned once from all splits where the task does not say."""
        columns = self._read_columns()
        if self._labels is None and columns.label and columns.choices:
            self._labels = index_labels([self._table(split) for split in self.splits], columns)
        if self._labels is None and columns.label:
            self._labels = self._infer(columns)
        return self._labels

    def _infer(self, columns: Columns) -> Labels:
        values: dict[str, list[Any]] = {}
        tables = {split: self._table(split) for split in self.splits}
        for split, table in tables.items():
            column = next((name for name in columns.label if name in table.columns), None)
            if column in table.classes:
                return Labels(table.classes[column])
            if column is not None and not hidden(table.columns[column]):
                values[split] = [pick(v, columns.label_pattern) for v in table.columns[column]]
        if not any(name in table.columns for table in tables.values() for name in columns.label):
            next(iter(tables.values())).column(columns.label[0], "label")
        labels = infer_labels([v for part in values.values() for v in part], self._number)
        if not labels.number and "train" in values:
            self._warn_of_unseen(labels, values["train"])
        return labels

    def _warn_of_unseen(self, labels: Labels, train: Sequence[Any]) -> None:
        """Say which classes other splits have and train has not: classes that are named otherwise there, mostly."""
        learned = set(infer_labels(train).names)
        if unseen := [name for name in labels.names if name not in learned]:
            log.warning(
                "%d of the %d classes of %s are not in its train split, so nothing can learn them: %s.",
                *(len(unseen), len(labels.names), self.name, ", ".join(unseen[:5])),
            )

    def __repr__(self) -> str:
        return f"Task({self.name!r}, splits={', '.join(self.splits)})"


def task(
    source: str | os.PathLike | Mapping[str, Any] | Task | Any,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    choices: str | Sequence[str] | None = None,
    config: str | None = None,
    regression: bool | None = None,
    metric: str | None = None,
    labels: Sequence[str] | None = None,
    words_by: str | None = None,
    skip_bad: bool = False,
    max_field: int = MAX_FIELD,
) -> Task:
    """Open a task: texts, labels, splits and a metric.

    Columns that are not named are guessed where only one reading is possible.

    Args:
        source: A registry name (`ls.tasks()` lists them), a file, a folder, a mapping of split names to files or
            tables, a pandas table, a hub id, perhaps with a revision (`org/name@revision`), or a `Task`.
        text: The column with the texts.
        text_pair: The column with the second texts of pairs.
        label: The column with the labels.
        choices: The column with lists of choices, or several columns with one choice each.
        config: The configuration of a hub data set that has several.
        regression: Whether labels are numbers rather than classes; guessed if not given.
        metric: What it is scored by: accuracy, f1, matthews or pearson_spearman.
        labels: The classes in the order of the outputs of the heads that are scored, where those have names that do not
            tell (`LABEL_0`, ..).
        words_by: What splits texts into words, for word-level work: `whitespace` (as is usual where the data has no
            words of its own), or a regular expression that matches a word.
        skip_bad: Leave bad rows out and count them instead of stopping.
        max_field: How many characters one field of a file may have, so that no small file fills the memory.

    Returns:
        The `Task`.

    Example:
        >>> import pandas, layerscope as ls
        >>> table = pandas.DataFrame({"text": ["a file", "the list"], "label": ["file", "list"]})
        >>> task = ls.task({"train": table, "validation": table}, metric="f1")
        >>> task.splits, task.label_names, task.metric
        (('train', 'validation'), ('file', 'list'), 'f1')
    """
    if isinstance(source, Task):
        given = (text, text_pair, label, choices, config, regression, metric, labels, words_by, skip_bad)
        if any(given) or max_field != MAX_FIELD:
            raise InputError(
                "A Task was given together with columns or options; those belong to the call that made it."
            )
        return source
    columns = Columns(
        text=text,
        text_pair=text_pair,
        choices=() if choices is None else ((choices,) if isinstance(choices, str) else tuple(choices),),
        label=() if label is None else (label,),
    )
    if isinstance(source, str) and source in registry():
        if config is not None or regression is not None:
            raise InputError(f"The task {source} has its own config and kind of label; they cannot be changed.")
        return from_spec(spec_of(source), columns, skip_bad, metric, labels, words_by, max_field)
    name, tables = _find(source, config, check_max_field(max_field))
    if config is not None and not isinstance(tables, HubSource):
        raise InputError(f"config={config!r} was given, which only a hub data set has; {name} is not one.")
    more: dict[str, Any] = {"skip_bad": skip_bad, "head_order": labels, "words_by": words_by}
    return Task(name, tables, columns, metric=metric, number=regression, **more)


def _find(source: Any, config: str | None, max_field: int) -> tuple[str, Source]:
    """A name for a user's own data, and where its tables come from."""
    if isinstance(source, Mapping):
        if not source:
            raise InputError("A task was asked for from an empty mapping; name at least one split.")
        return "+".join(map(str, source)), LocalSource({str(split): part for split, part in source.items()}, max_field)
    if hasattr(source, "columns"):
        return "table", LocalSource({"all": source})
    if not isinstance(source, (str, os.PathLike)):
        raise InputError(
            f"A task was asked for and a {type(source).__name__} was given; allowed are a registry name, a file, "
            "a folder, a mapping of split names to files or tables, a pandas table, or a hub id."
        )
    if not str(source).strip():
        raise InputError("An empty task was given; name one (layerscope tasks), a file, a folder or a hub id.")
    path = expanded(source)
    if os.path.isdir(path):
        return path.name, folder_source(path, max_field)
    if os.path.isfile(path) or readable(path):
        return path.name.split(".")[0], LocalSource({"all": path}, max_field)
    return str(source), _hub(str(source), config)


def from_spec(
    spec: TaskSpec,
    given: Columns,
    skip_bad: bool = False,
    metric: str | None = None,
    head_order: Sequence[str] | None = None,
    words_by: str | None = None,
    max_field: int = MAX_FIELD,
) -> Task:
    """A task of the registry: built in, from LAYERSCOPE_DATA, or from the hub, in this order."""
    source: Source
    if spec.builtin:
        source = pydocs.PydocsSource()
    else:
        searched = ", ".join(map(str, roots())) or "not set"
        hint = f", or set LAYERSCOPE_DATA ({searched}) to a folder that holds {spec.name}/SPLIT.parquet"
        assert spec.hub is not None
        hub = HubSource(spec.hub, spec.splits, hint)
        local = mirror(spec, check_max_field(max_field))
        source = MirroredSource(local, hub) if local.splits else hub
    labels = Labels(number=True) if spec.labels == "number" else Labels(tuple(spec.labels))
    changes = {name: value for name, value in given if value}
    return Task(
        spec.name,
        source,
        spec.columns.model_copy(update=changes),
        labels=labels,
        metric=choose("metric", metric, METRICS) if metric else spec.metric,
        skip_bad=skip_bad,
        version=spec.version,
        edition=pydocs.edition() if spec.builtin else "",
        head_order=head_order,
        words_by=words_by,
    )


def _drawn(n: int, classes: np.ndarray | None) -> np.ndarray:
    """Rows in an order drawn at random, every beginning of which has the classes in proportion."""
    order = np.random.default_rng(0).permutation(n)
    if classes is None:
        return order
    place = np.empty(n)  # of each row among those of its class, from 0 to 1
    for name in np.unique(classes):
        own = order[classes[order] == name]
        place[own] = (np.arange(len(own)) + 0.5) / len(own)
    return order[np.argsort(place[order], kind="stable")]


def _hub(name: str, config: str | None) -> HubSource:
    if "/" not in name:
        error = unknown("task", name, registry())
        raise type(error)(f"{error} A file needs an ending ({endings()}); a hub id looks like org/name.")
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise DataError(f"There is no file or folder {name}.")
    identity, _, revision = name.partition("@")
    last = identity.split("/")[-1]
    hint = f", or name the task {last!r}, which is known" if last in registry() else ""
    return HubSource(Hub(id=identity, config=config, revision=revision or None), {}, hint)
