"""The task registry: short versioned YAML files, no code."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from layerscope.errors import choose, unknown
from layerscope.metrics import METRICS

if TYPE_CHECKING:
    import pandas


Metric = Annotated[str, AfterValidator(lambda name: choose("metric", name, METRICS))]


class _Record(BaseModel):
    """The base of the schemas of a task's YAML: an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Hub(_Record):
    """The address of a data set on the hub."""

    id: str
    config: str | None = None
    revision: str | None = None
    data_dir: str | None = None


class Columns(_Record):
    """The columns that hold texts, labels and so on. A list names alternatives, of which the first found is used."""

    text: str | None = None
    text_pair: str | None = None
    prompt: str | None = None  # put before each choice (a question)
    choices: tuple[tuple[str, ...], ...] = ()  # alternatives; one column holds a list, several hold one choice each
    words: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()  # a list of tags, one for each word
    label: tuple[str, ...] = ()
    label_pattern: str | None = None  # a regular expression; what it matches of the value is the label


class TaskSpec(_Record):
    """One task of the registry."""

    name: str
    version: int = Field(ge=1)
    title: str
    columns: Columns
    labels: tuple[str, ...] | Literal["number"] = ()
    metric: Metric
    hub: Hub | None = None
    splits: dict[str, str] = {}  # our name of each split: the hub's
    files: dict[str, str] = {}  # our name of each split: a file to look for under LAYERSCOPE_DATA
    folder: str | None = None  # a folder under LAYERSCOPE_DATA that may hold those files, besides the task's own
    builtin: bool = False
    kind: Literal["text"] | None = None  # running text
    running: bool = False  # whether a language model may read it as running text although it has labels


@cache
def registry() -> dict[str, TaskSpec]:
    """Return every task by its name."""
    specs = {}
    for entry in sorted(files("layerscope.data").joinpath("tasks").iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".yaml"):
            spec = TaskSpec(**yaml.safe_load(entry.read_text(encoding="utf-8")))
            specs[spec.name] = spec
    return specs


def spec_of(name: str) -> TaskSpec:
    """Return the task of that name, or raise UnknownNameError with the near ones."""
    if name not in registry():
        raise unknown("task", name, registry())
    return registry()[name]


def tasks() -> pandas.DataFrame:
    """List the tasks that are known by name.

    Returns:
        A table with the columns name, kind, labels, metric, splits, title.

    Example:
        >>> import layerscope as ls
        >>> known = ls.tasks().set_index("name")
        >>> known.loc["pydocs", "kind"], known.loc["pydocs", "metric"]
        ('single', 'accuracy')
    """
    import pandas

    return pandas.DataFrame([_row(spec) for spec in registry().values()])


def _row(spec: TaskSpec) -> dict[str, Any]:
    """Return a task's row in the table of all tasks."""
    columns = spec.columns
    kind = "choice" if columns.choices else "pair" if columns.text_pair else "tags" if columns.tags else "single"
    return {
        "name": spec.name,
        "kind": spec.kind or kind,
        "labels": spec.labels if isinstance(spec.labels, str) else ", ".join(spec.labels),
        "metric": spec.metric,
        "splits": ", ".join(spec.splits or spec.files),
        "title": spec.title,
    }
