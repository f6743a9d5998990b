"""Sources of a task's tables: files, a folder that mirrors the hub, the hub itself, or memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from layerscope.data.formats import BLOCK, MAX_FIELD, Table, counts, endings, frame_tables, read, readable
from layerscope.data.registry import Hub, TaskSpec
from layerscope.errors import DataError, InputError, log, some

_USUAL = ("train", "validation", "test")
_SPLIT_NAMES = {"dev": "validation", "val": "validation", "valid": "validation", "training": "train"}


class Source(Protocol):
    """Anything that has splits by name and gives each as a table, or some of its columns, in pieces of BLOCK rows."""

    @property
    def splits(self) -> tuple[str, ...]: ...

    def is_here(self, split: str) -> bool: ...  # without asking the hub

    def tables(self, split: str, columns: Sequence[str] | None = None) -> Iterator[Table]: ...

    def counts(self, split: str, column: str) -> Mapping[Any, int] | None: ...  # of a column's values, where it is fast


@dataclass(frozen=True)
class LocalSource:
    """A source with one file, or one pandas, pyarrow or `datasets` table, per split."""

    parts: Mapping[str, Any]
    max_field: int = MAX_FIELD  # characters of one field of a file

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.parts)

    def is_here(self, split: str) -> bool:
        return True

    def tables(self, split: str, columns: Sequence[str] | None = None) -> Iterator[Table]:
        part = self.parts[split]
        if isinstance(part, (str, os.PathLike)):
            return read(expanded(part), self.max_field, columns)
        return memory_tables(part, f"the table of split {split!r}", columns)

    def counts(self, split: str, column: str) -> Mapping[Any, int] | None:
        part = self.parts[split]
        return counts(expanded(part), column) if isinstance(part, (str, os.PathLike)) else None


def memory_tables(data: Any, name: str, columns: Sequence[str] | None, named: bool = True) -> Iterator[Table]:
    """Return a table of another library in pieces, or raise InputError with what is allowed.

    A data set of the `datasets` library names its classes, unless they are `named` otherwise.
    """
    if hasattr(data, "with_format"):
        return _set_tables(data, name, columns, named)
    if hasattr(data, "to_pydict") or (hasattr(data, "columns") and hasattr(data, "isna")):
        return frame_tables(data, name, columns)
    raise InputError(
        f"{name.capitalize()} is a {type(data).__name__}; allowed are a file's path, a pandas or pyarrow table, or a "
        "data set of the datasets library."
    )


def _set_tables(data: Any, name: str, columns: Sequence[str] | None, named: bool) -> Iterator[Table]:
    """Yield a data set of the `datasets` library in pieces: it lies on the disk, and only what is asked for is read."""
    rows = data.with_format("arrow")
    if columns is not None:
        rows = rows.select_columns([column for column in data.column_names if column in columns])
    for start in range(0, max(len(data), 1), BLOCK):
        for table in frame_tables(rows[start : start + BLOCK], name):
            table.numbers = [start + number for number in table.numbers]
            table.lines = [start + line for line in table.lines]
            if named:
                _name_classes(table, data.features)
            yield table


@dataclass(frozen=True)
class HubSource:
    """A data set of the hub. `names` maps a registry task's split names to the hub's; without it, all are taken."""

    hub: Hub
    names: Mapping[str, str]
    hint: str = ""  # another way out; SPLIT stands for the split that was wanted
    _opened: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def _arguments(self) -> dict[str, Any]:
        """The arguments of `datasets.load_dataset` that name the data set."""
        hub = self.hub
        options = {"name": hub.config, "revision": hub.revision, "data_dir": hub.data_dir}
        return {"path": hub.id, **{k: v for k, v in options.items() if v is not None}}

    @cached_property
    def splits(self) -> tuple[str, ...]:
        if self.names:
            return tuple(self.names)
        import datasets

        arguments = self._arguments
        with _hub_errors(self):
            return tuple(
                datasets.get_dataset_split_names(
                    arguments["path"], arguments.get("name"), revision=arguments.get("revision")
                )
            )

    def is_here(self, split: str) -> bool:
        return False

    def tables(self, split: str, columns: Sequence[str] | None = None) -> Iterator[Table]:
        import datasets

        if split not in self._opened:
            with _hub_errors(self, split):
                self._opened[split] = datasets.load_dataset(**self._arguments, split=self.names.get(split, split))
        # A registry task has its own label names, in the data's order.
        return memory_tables(self._opened[split], f"{self.hub.id} ({split})", columns, named=not self.names)

    def counts(self, split: str, column: str) -> Mapping[Any, int] | None:
        return None


@dataclass(frozen=True)
class MirroredSource:
    """A source that reads splits from a mirror folder where it has them, and the others from the hub."""

    local: LocalSource
    hub: HubSource

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.local.splits, *self.hub.splits)))

    def is_here(self, split: str) -> bool:
        return split in self.local.splits

    def tables(self, split: str, columns: Sequence[str] | None = None) -> Iterator[Table]:
        return (self.local if self.is_here(split) else self.hub).tables(split, columns)

    def counts(self, split: str, column: str) -> Mapping[Any, int] | None:
        return (self.local if self.is_here(split) else self.hub).counts(split, column)


def _name_classes(table: Table, features: Mapping[str, Any]) -> None:
    """Replace class numbers in a table by the names that the data set gives them, and note the names' order."""
    for column, feature in features.items():
        if column in table.columns and (names := getattr(feature, "names", None)):
            table.classes[column] = tuple(names)
            values = table.columns[column]
            table.columns[column] = [names[int(v)] if v is not None and v >= 0 else v for v in values]


class _hub_errors:  # noqa: N801  (a context manager, used like a function)
    """A context manager that turns whatever the hub's client raises into a DataError with both ways out."""

    def __init__(self, source: HubSource, split: str = "train") -> None:
        self.source, self.split = source, split

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, Exception):
            hub = self.source.hub
            name = hub.id + (f" ({hub.config})" if hub.config else "")
            first = (str(error) or kind.__name__ if kind else "").strip().splitlines()[0].rstrip(".")
            raise DataError(
                f"The data set {name} could not be fetched from the hub: {first}. "
                f"Check its name and the network{self.source.hint.replace('SPLIT', self.split)}."
            ) from error


def mirror(spec: TaskSpec, max_field: int = MAX_FIELD) -> LocalSource:
    """Return the task's files under the folders of LAYERSCOPE_DATA; the first folder that has a split is used."""
    paths: dict[str, Path] = {}
    for root in roots():
        for split, path in {**_named_files(root, spec), **split_files(root / spec.name)}.items():
            paths.setdefault(split, path)
    return LocalSource(paths, max_field)


def expanded(path: str | os.PathLike) -> Path:
    """Return a path with its ~ resolved, where that is somebody's home."""
    return Path(os.path.expanduser(path))


def roots() -> list[Path]:
    """Return the folders of LAYERSCOPE_DATA, in order."""
    return [expanded(p) for p in os.environ.get("LAYERSCOPE_DATA", "").split(os.pathsep) if p]


def _named_files(root: Path, spec: TaskSpec) -> dict[str, Path]:
    """Return the files under a folder that have the names which the task's YAML gives its splits."""
    folders = [root, root / spec.name] + ([root / spec.folder] if spec.folder else [])
    paths: dict[str, Path] = {}
    for split, name in spec.files.items():
        for path in (folder / (name + gz) for folder in folders for gz in ("", ".gz")):
            if path.is_file():
                paths.setdefault(split, path)
    return paths


def split_files(folder: Path) -> dict[str, Path]:
    """Return the files of a folder whose names are splits: `train.csv`, `validation.parquet`, `dev.jsonl.gz` ..."""
    paths: dict[str, Path] = {}
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    files = [p for p in inside if p.is_file() and readable(p) and not p.name.startswith(".")]
    named = [p for p in files if _split_name(p).split("_")[0] in _USUAL]
    # Beside train and validation, a README.txt is not a split. A file of their own format may have been meant as one.
    endings = {path.suffix for path in named}
    if others := [p.name for p in files if named and p not in named and p.suffix in endings]:
        log.warning(
            "Not read in %s: %s. The names of splits begin with train, validation (or dev) or test; rename a file that "
            "is one.",
            *(folder, some(others)),
        )
    for path in named or files:
        split = _split_name(path)
        if split in paths:
            raise DataError(
                f"{folder} has two files for split {split!r}: {paths[split].name} and {path.name}; keep one."
            )
        paths[split] = path
    return paths


def _split_name(path: Path) -> str:
    """Return the split that a file's name stands for, with `dev` and the like as `validation`."""
    stem = path.name.split(".")[0]
    first, line, rest = stem.partition("_")
    return _SPLIT_NAMES.get(first, first) + line + rest


def folder_source(folder: Path, max_field: int = MAX_FIELD) -> LocalSource:
    """Return the source of a user's folder with one file per split, or raise DataError where it holds none."""
    paths = split_files(folder)
    if not paths:
        raise DataError(f"{folder} holds no data file; put train and validation files there ({endings()}).")
    return LocalSource(paths, max_field)
