"""Tasks: texts with labels in splits, a metric, and the options of how a network reads them.

Nothing of a task is read before it is asked for. Columns and labels that were not named are guessed once, from the
tables, and are then the same for every split.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from layerscope.data.columns import LabelColumn, Labels, build, guess_columns, index_labels, infer_labels, pick
from layerscope.data.examples import Examples, check_words_by, stratified_order
from layerscope.data.formats import BLOCK, Table
from layerscope.data.registry import Columns
from layerscope.data.sources import Source
from layerscope.errors import InputError, check_seed, choose, log, near, some
from layerscope.metrics import METRICS

EMBEDDINGS = ("mean", "cls", "last")


@dataclass(frozen=True)
class PromptOptions:
    """Options of how a network reads a task's rows, where there is more than one way.

    Attributes:
        bos: Running text: whether a window begins with the tokenizer's first token; as the tokenizer itself does, if
            not given.
        stride: Running text: how many tokens later the next window begins; only tokens that no window before has
            scored are scored in it. Windows do not overlap if not given.
        by_text: Running text: each text by itself, and not all of them joined.
        mask_seed: Masked language models: decides which tokens are masked.
        embedding: A bare encoder on scored pairs: the mean of all tokens, the first (`cls`) or the last.
    """

    bos: bool | None = None
    stride: int | None = None
    by_text: bool = False
    mask_seed: int = 0
    embedding: str | None = None

    def __post_init__(self) -> None:
        if self.stride is not None and (isinstance(self.stride, bool) or self.stride < 1):
            raise InputError(f"stride is {self.stride}; it must be a whole number of tokens of at least 1.")
        if self.embedding is not None:
            choose("embedding", self.embedding, EMBEDDINGS)
        check_seed(self.mask_seed)

    def non_default(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, by name."""
        default = PromptOptions()
        return {name: value for name, value in asdict(self).items() if value != getattr(default, name)}


class Task:
    """Texts with labels in named splits; `ls.task` makes one. Nothing is read before it is asked for.

    Attributes:
        name: The task's name.
        splits: The names of its splits.
        kind: `single`, `pair`, `choice`, `tags` or `text` (running text).
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
        usual_metric: str | None = None,
        number: bool | None = None,
        skip_bad: bool = False,
        version: int = 1,
        edition: str = "",
        head_order: Sequence[str] | None = None,
        words_by: str | None = None,
        kind: str | None = None,
        running: bool = False,
        prompt_options: PromptOptions | None = None,
    ) -> None:
        self.name = name
        self.prompt_options = prompt_options or PromptOptions()
        self.running = running or kind == "text"  # whether a language model may read it as running text
        self._kind = kind
        self.edition = edition  # of the data, where its name and version do not decide the rows: that of Python
        self.version = version
        self._source = source
        self._columns = columns
        self._labels = labels
        self._registered = labels is not None  # a task of the registry, of which nothing is guessed
        self._guessed = self._registered
        self._number = number
        self._metric = metric
        self._usual_metric = usual_metric  # of a registry task, where no other is asked for
        self._skip_bad = skip_bad
        self._words_by = check_words_by(words_by)
        self._head_order = None if head_order is None else tuple(str(name).strip() for name in head_order)
        self._unlabelled: dict[str, bool] = {}  # whether a split hides its labels, where all of them were read
        self._examples: dict[tuple[str, int | None], Examples] = {}  # by split and limit
        self._sample: int | None = None  # the seed of a task of which limits draw
        self.words: tuple[str, ...] = ("--task", name)  # what names it on a command line

    @property
    def splits(self) -> tuple[str, ...]:
        return self._source.splits

    @property
    def metric(self) -> str:
        """The metric asked for, or the default of the task or of its kind: perplexity for running text."""
        if metric := self._metric or self._usual_metric:
            return metric
        if self.kind == "text":
            return "perplexity"
        return "pearson_spearman" if self.regression else "accuracy"

    @property
    def asked_metric(self) -> str | None:
        """The metric that was asked for, or None where the default of the task or its kind is used."""
        return self._metric

    @property
    def label_names(self) -> tuple[str, ...] | None:
        """The classes in order, or None for a regression or a task without labels."""
        labels = self._label_meaning()
        return labels.names if labels and not labels.number else None

    @property
    def classes(self) -> int | None:
        """The number of classes, whether or not a split has all of them; None where labels are not classes."""
        return None if self.label_names is None else len(self.label_names)

    @property
    def head_order(self) -> tuple[str, ...] | None:
        """The classes in the order of a head's outputs, if `labels=` gave one.

        Raises InputError where that does not name the task's classes.
        """
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
        """Whether the order of the classes comes from the data itself, and not from the alphabet."""
        labels = self._label_meaning()
        return labels is None or labels.ordered

    @property
    def regression(self) -> bool:
        labels = self._label_meaning()
        return labels is not None and labels.number

    @property
    def kind(self) -> str:
        """`single`, `pair`, `choice`, `tags` or `text`."""
        if self._kind is not None:
            return self._kind
        columns = self._read_columns()
        if columns.tags:
            return "tags"
        return "choice" if columns.choices else "pair" if columns.text_pair else "single"

    @property
    def columns(self) -> Columns:
        """The columns that hold texts, labels and so on, as they were given or guessed."""
        return self._read_columns()

    @property
    def labelled(self) -> bool:
        """Whether the task has labels, so that answers can be scored."""
        return self._label_meaning() is not None

    def resolve(self, split: str | None, learning: bool = False) -> str:
        """Return the name of the split that is meant.

        That is the one asked for, else `validation` (`train` for learning), else the only one.
        """
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

    def split(self, name: str | None = None, *, learning: bool = False, limit: int | None = None) -> Examples:
        """Return the examples of a split, in the data's order: all of them, or the first `limit`.

        Of a sampled task (see `sampled`) a limit draws as many from all rows of the split.
        With a limit no more than the first rows are read, as many thousands as are needed, and what these examples are
        known by is the content of those. Classes that the data does not declare are those of all rows nevertheless: the
        columns with the labels are read to their end, with nothing kept but the names.
        """
        name = self.resolve(name, learning)
        if (name, limit) not in self._examples:
            examples = self._read(name, limit if self._sample is None else None)
            if self._sample is not None:
                examples = examples.sampled(self._sample, self.kind == "text")
            self._examples[name, limit] = examples.first(limit)
        return self._examples[name, limit]

    def _read(self, name: str, limit: int | None) -> Examples:
        """Return the examples of a split, of its first thousands of rows alone if these hold `limit` examples."""
        columns, labels = self._read_columns(), self._label_meaning()
        full = f"{self.name}@{self.edition}" if self.edition else self.name
        tables = self._source.tables(name)
        read: list[Table] = []
        missing, ended = limit, False
        while True:
            more = list(islice(tables, None if missing is None else -(-missing // BLOCK)))
            read, ended = [*read, *more], missing is None or not more
            examples = build(
                Table.joined(read),
                columns,
                labels,
                task=full,
                split=name,
                skip_bad=self._skip_bad,
                may_lack_labels=not self._registered,
                may_be_empty=self._kind == "text",
                unlabelled=self._unlabelled.get(name),
                least=0 if ended else limit or 0,
            )
            if isinstance(examples, Examples):
                break
            missing = (limit or 0) - examples
        return examples if self._words_by is None else replace(examples, words=None, words_by=self._words_by)

    def parted(
        self,
        held: float,
        split: str | None = None,
        limits: tuple[int | None, int | None] = (None, None),
        known: Callable[[Examples], np.ndarray] | None = None,
        whole: bool = False,
    ) -> tuple[Examples, Examples]:
        """Return the examples to learn from and those to score, at most as many of each as `limits` says.

        Where one split must serve for both, the share `held` of it is scored; both are drawn, the same for every seed,
        with every class in proportion. Else they are the first ones of their splits. `known` marks the examples that a
        model has learned from before: they are not scored, and one split that serves for both is divided by them.
        With `whole` more is read than the limits ask for, so that the examples are known as those of the whole split.
        """
        if not whole and known is None and self.resolve(None, learning=True) != self.resolve(split):
            return self.split(learning=True, limit=limits[0]), self.split(split, limit=limits[1])
        train, scored = self.split(learning=True), self.split(split)
        before = np.zeros(len(scored), dtype=bool) if known is None else known(scored)
        if before.all():
            raise InputError(
                f"Every row of {self.name} ({scored.split}) was learned from before, so none is left to score; give "
                "other data or another split, or score them anyway with all_rows=True (--all-rows)."
            )
        if train.split != scored.split:
            return train.first(limits[0]), scored.take(~before).first(limits[1])
        n = len(train)
        if n < 2:
            raise InputError(f"{self.name} has one row; at least one to learn from and one to score are needed.")
        count = min(max(1, int(n * held + 1e-9)), n - 1)
        order = stratified_order(n, None if self.regression else train.labels)
        # Where a model has learned from some rows before, all others are held out, whatever the share.
        if before.any():
            order = order[np.argsort(before[order], kind="stable")]
            count = int((~before).sum())
        learned, rest = np.sort(order[count:][: limits[0]]), np.sort(order[:count][: limits[1]])
        log.warning(
            "%s (%s) is used for learning and scoring: of its %d rows, %d are held out and scored, and %d others are "
            "learned from.",
            *(self.name, train.split, n, len(rest), len(learned)),
        )
        return train.take(learned), train.take(rest)

    def spec(self) -> dict[str, Any]:
        """Return what determines how answers are read and scored, for keys of the store: kind, classes, metric."""
        order = {} if self.head_order is None else {"head_order": list(self.head_order)}
        return {
            **order,
            "name": self.name,
            "version": self.version,
            "kind": self.kind,
            "labels": None if self.label_names is None else list(self.label_names),
            "regression": self.regression,
            "metric": self.metric,
            **({"asking": options} if (options := self.prompt_options.non_default()) else {}),
        }

    def with_metric(self, metric: str | None) -> Task:
        """Return the same task scored by another metric, or the task itself where none is named."""
        if metric is None or metric == self.metric:
            return self
        chosen = copy.copy(self)
        chosen._metric = choose("metric", metric, METRICS)
        return chosen

    def as_text(self) -> Task:
        """Return a task with the same texts as running text, whatever labels they have."""
        if self._kind == "text":
            return self
        running = copy.copy(self)
        running._kind, running._examples, running._usual_metric = "text", {}, None
        return running

    def only(self, split: str) -> Task:
        """Return the same task with one of its splits alone."""
        name = self.resolve(split)
        alone = copy.copy(self)
        alone._label_meaning()  # learned from all splits first, so that classes keep their numbers
        alone._source, alone._examples = _OneSplit(self._source, name), dict(self._examples)
        return alone

    def sampled(self, seed: int) -> Task:
        """Return the same task, of whose splits a limit takes a sample and not the first rows.

        The sample has every class in proportion, one of fewer rows is part of one of more, and all rows together are
        the split as it is. Of running text neighbours are drawn together.
        """
        drawn = copy.copy(self)
        drawn._sample, drawn._examples = check_seed(seed), {}
        return drawn

    @property
    def sample(self) -> int | None:
        """The seed by which limits draw from the splits; None where they take the first rows."""
        return self._sample

    def is_here(self, split: str) -> bool:
        """Return whether a split can be read without asking the hub."""
        return self._source.is_here(split)

    def _head(self, split: str, columns: Sequence[str] | None = None) -> Table:
        """Return the first rows of a split that can be read."""
        for table in self._source.tables(split, columns):
            if len(table):
                break
        return table

    def _read_columns(self) -> Columns:
        """Return the columns; those that were not given are guessed once."""
        if not self._guessed:
            # Guessed from train where there is one, since a test split may lack its labels.
            split = next((name for name in ("train", "validation") if name in self.splits), self.splits[0])
            # And from its first rows, so that the guess is the same however many are asked for.
            self._columns = guess_columns(self._head(split), self._columns)
            self._guessed = True
        return self._columns

    def _label_meaning(self) -> Labels | None:
        """Return what the labels mean, inferred once from all splits if need be; None where there are no labels."""
        columns = self._read_columns()
        if self._kind == "text":
            return None
        if self._labels is None and columns.label and columns.choices:
            listed = [name for group in columns.choices for name in group]
            tables = (table for split in self.splits for table in self._source.tables(split, listed))
            self._labels = index_labels(tables, columns)
        if self._labels is None and (columns.label or columns.tags):
            self._labels = self._infer(columns)
        return self._labels

    def _infer(self, columns: Columns) -> Labels:
        """Infer the labels from the values, or class names, in all splits, and warn of classes that train has not."""
        names = columns.tags or columns.label
        heads = {split: self._head(split, names) for split in self.splits}
        for head in heads.values():
            column = next((name for name in names if name in head.columns), None)
            if column in head.classes:
                return Labels(head.classes[column])
        found = {split: LabelColumn(partial(self._labels_of, split, columns)) for split in self.splits}
        if not any(column.rows for column in found.values()) and not any(head.columns for head in heads.values()):
            self._head(self.splits[0]).column(names[0], "tags" if columns.tags else "label")
        if not columns.tags:
            self._unlabelled |= {split: column.hidden for split, column in found.items()}
        shown = {split: column for split, column in found.items() if columns.tags or not column.hidden}
        labels = infer_labels(list(shown.values()), self._number)
        # Classes that other splits have and train has not are mostly the same classes under other names.
        if not labels.number and "train" in shown:
            learned = set(infer_labels([shown["train"]], number=False).names)
            if unseen := [name for name in labels.names if name not in learned]:
                log.warning(
                    "%d of the %d classes of %s are not in its train split, so nothing can learn them: %s.",
                    *(len(unseen), len(labels.names), self.name, ", ".join(unseen[:5])),
                )
        return labels

    def _labels_of(self, split: str, columns: Columns) -> Iterator[list[Any] | Mapping[Any, int]]:
        """Yield the labels of a split, or the tags of its words, in pieces; or how often each label is there."""
        names = columns.tags or columns.label
        counted = self._source.counts(split, names[0]) if len(names) == 1 and not columns.tags else None
        if counted is not None:
            picked: Counter[Any] = Counter()
            for value, times in counted.items():
                picked[pick(value, columns.label_pattern)] += times
            yield picked
            return
        for table in self._source.tables(split, names):
            column = next((name for name in names if name in table.columns), None)
            values = [] if column is None else table.columns[column]
            if columns.tags:
                yield [tag for row in values if isinstance(row, list) for tag in row]
            else:
                yield [pick(value, columns.label_pattern) for value in values]

    def __repr__(self) -> str:
        return f"Task({self.name!r}, splits={', '.join(self.splits)})"


@dataclass(frozen=True)
class _OneSplit:
    """A source that shows only one split of another."""

    source: Source
    name: str

    @property
    def splits(self) -> tuple[str, ...]:
        return (self.name,)

    def is_here(self, split: str) -> bool:
        return self.source.is_here(split)

    def tables(self, split: str, columns: Sequence[str] | None = None) -> Iterator[Table]:
        return self.source.tables(split, columns)

    def counts(self, split: str, column: str) -> Mapping[Any, int] | None:
        return self.source.counts(split, column)
