"""`ls.task` opens a task from the registry, the hub, a file, a folder, or memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from layerscope.data import pydocs
from layerscope.data.columns import Labels
from layerscope.data.formats import MAX_FIELD, check_max_field, endings, readable
from layerscope.data.registry import Columns, Hub, TaskSpec, registry, spec_of
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
from layerscope.data.task import PromptOptions, Task
from layerscope.errors import DataError, InputError, choose, unknown
from layerscope.metrics import METRICS

KINDS = ("text",)
TaskSource = Any  # what `ls.task` takes: a name, a file, a folder, a table, a hub id, a Task


def task(
    source: str | os.PathLike | Mapping[str, Any] | Task | Any,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    choices: str | Sequence[str] | None = None,
    tags: str | None = None,
    kind: str | None = None,
    config: str | None = None,
    regression: bool | None = None,
    metric: str | None = None,
    labels: Sequence[str] | None = None,
    words_by: str | None = None,
    skip_bad: bool = False,
    max_field: int = MAX_FIELD,
    bos: bool | None = None,
    stride: int | None = None,
    by_text: bool = False,
    mask_seed: int = 0,
    embedding: str | None = None,
) -> Task:
    """Open a task: texts, labels, splits, a metric, and how a network is asked.

    Columns that are not named are guessed where only one reading is possible.

    Args:
        source: A registry name (`ls.tasks()` lists them), a file, a folder, a mapping of split names to files or
            tables, a pandas table, a hub id, perhaps with a revision (`org/name@revision`), or a `Task`.
        text: The column with the texts.
        text_pair: The column with the second texts of pairs.
        label: The column with the labels.
        choices: The column with lists of choices, or several columns with one choice each.
        tags: The column with a list of tags, one for each word.
        kind: `text` for running text, which a language model is to predict whatever labels there are.
        config: The configuration of a hub data set that has several.
        regression: Whether labels are numbers rather than classes; guessed if not given.
        metric: What it is scored by: accuracy, f1, matthews or pearson_spearman; perplexity, nll or bits_per_byte for
            running text; acc or acc_norm for choices by likelihood; spearman or pearson for embeddings.
        labels: The classes in the order of the outputs of the heads that are scored, where those have names that do not
            tell (`LABEL_0`, ..).
        words_by: What splits texts into words, for word-level work: `whitespace` (the default where the data has no
            words of its own), or a regular expression that matches a word.
        skip_bad: Leave bad rows out and count them instead of stopping.
        max_field: How many characters one field of a file may have, so that no small file fills the memory; 10 million
            if not given.
        bos: Running text: whether every window begins with the tokenizer's first token (BOS); if not given, where the
            tokenizer puts one there itself.
        stride: Running text: how many tokens later the next window begins. A window scores what none before it has
            scored; without a stride windows do not overlap.
        by_text: Running text: read each text by itself instead of all of them joined.
        mask_seed: Masked language models: decides which tokens are masked.
        embedding: Scored pairs, of a bare encoder: the `mean` of its tokens (as is usual), the first (`cls`) or the
            `last`.

    Returns:
        The `Task`.

    Example:
        >>> import pandas, layerscope as ls
        >>> table = pandas.DataFrame({"text": ["a file", "the list"], "label": ["file", "list"]})
        >>> task = ls.task({"train": table, "validation": table}, metric="f1")
        >>> task.splits, task.label_names, task.metric
        (('train', 'validation'), ('file', 'list'), 'f1')
    """
    prompt_options = PromptOptions(bos, stride, by_text, mask_seed, embedding)
    if kind is not None:
        choose("kind of task", kind, KINDS)
    if isinstance(source, Task):
        given = (text, text_pair, label, choices, config, regression, metric, labels, words_by, skip_bad, tags, kind)
        if any(given) or prompt_options.non_default() or max_field != MAX_FIELD:
            raise InputError(
                "A Task was given together with columns or options; those belong to the call that made it."
            )
        return source
    columns = Columns(
        text=text,
        text_pair=text_pair,
        choices=() if choices is None else ((choices,) if isinstance(choices, str) else tuple(choices),),
        label=() if label is None else (label,),
        tags=() if tags is None else (tags,),
    )
    more: dict[str, Any] = {"skip_bad": skip_bad, "head_order": labels, "words_by": words_by}
    more |= {"metric": choose("metric", metric, METRICS) if metric else None, "kind": kind}
    more["prompt_options"] = prompt_options
    if isinstance(source, str) and source in registry():
        if config is not None or regression is not None:
            raise InputError(f"The task {source} has its own config and kind of label; they cannot be changed.")
        return from_spec(spec_of(source), columns, max_field=max_field, **more)
    name, tables = _find(source, config, check_max_field(max_field))
    if config is not None and not isinstance(tables, HubSource):
        raise InputError(f"config={config!r} was given, which only a hub data set has; {name} is not one.")
    return Task(name, tables, columns, number=regression, **more)


def _find(source: Any, config: str | None, max_field: int) -> tuple[str, Source]:
    """Return a name for a user's own data, and the source of its tables."""
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
    *,
    metric: str | None,
    kind: str | None,
    max_field: int = MAX_FIELD,
    **more: Any,
) -> Task:
    """Return a task of the registry, whose data is built in, or lies under LAYERSCOPE_DATA, or is on the hub."""
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
    asked = kind or spec.kind
    changes = {name: value for name, value in given if value}
    return Task(
        spec.name,
        source,
        spec.columns.model_copy(update=changes),
        labels=labels,
        metric=metric,
        usual_metric=None if asked == "text" else spec.metric,
        version=spec.version,
        edition=pydocs.edition() if spec.builtin else "",
        kind=asked,
        running=spec.running,
        **more,
    )


def _hub(name: str, config: str | None) -> HubSource:
    """Return the hub's data set of that name, or raise an error where it can only be a mistyped task or file."""
    if "/" not in name:
        error = unknown("task", name, registry())
        raise type(error)(f"{error} A file needs an ending ({endings()}); a hub id looks like org/name.")
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise DataError(f"There is no file or folder {name}.")
    identity, _, revision = name.partition("@")
    last = identity.split("/")[-1]
    hint = f", or name the task {last!r}, which is known" if last in registry() else ""
    return HubSource(Hub(id=identity, config=config, revision=revision or None), {}, hint)
