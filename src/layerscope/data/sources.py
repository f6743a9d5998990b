"""Sources of a task's tables: files, a folder that mirrors the hub, the hub itself, or memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from layerscope.data.formats import MAX_FIELD, Table, endings, frame_table, read, readable
from layerscope.data.registry import Hub, TaskSpec
from layerscope.errors import DataError, InputError, log, some

_USUAL = ("train", "validation", "test")
_SPLIT_NAMES = {"dev": "validation", "val": "validation", "valid": "validation", "training": "train"}


class Source(Protocol):
    """Anything that has splits by name and gives each as a table."""

    @property
    def splits(self) -> tuple[str, ...]: ...

    def is_here(self, split: str) -> bool: ...  # without asking the hub

    def table(self, split: str) -> Table: ...


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

    def table(self, split: str) -> Table:
        part = self.parts[split]
        if isinstance(part, (str, os.PathLike)):
            return read(expanded(part), self.max_field)
        return memory_table(part, f"the table of split {split!r}")


def memory_table(data: Any, name: str) -> Table:
    """Return a table of another library as a Table, or raise InputError with what is allowed."""
    if hasattr(data, "with_format"):  # a data set of the `datasets` library
        table = frame_table(data.with_format("arrow")[:], name)
        _name_classes(table, data.features)
        return table
    if hasattr(data, "to_pydict") or (hasattr(data, "columns") and hasattr(data, "isna")):
        return frame_table(data, name)
    raise InputError(
        f"{name.capitalize()} is a {type(data).__name__}; allowed are a file's path, a pandas or pyarrow table, or a "
        "data set of the datasets library."
    )


@dataclass(frozen=True)
class HubSource:
    """A data set of the hub. `names` maps a registry task's split names to the hub's; without it, all are taken."""

    hub: Hub
    names: Mapping[str, str]
    hint: str = ""  # another way out; SPLIT stands for the split that was wanted

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

    def table(self, split: str) -> Table:
        import datasets

        with _hub_errors(self, split):
            data = datasets.load_dataset(**self._arguments, split=self.names.get(split, split))
        name = f"{self.hub.id} ({split})"
        if self.names:  # a registry task has its own label names, in the data's order
            return frame_table(data.with_format("arrow")[:], name)
        return memory_table(data, name)


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

    def table(self, split: str) -> Table:
        return self.local.table(split) if self.is_here(split) else self.hub.table(split)


def _name_classes(table: Table, features: Mapping[str, Any]) -> None:
    """Replace class numbers in a table by the names that the data set gives them, and note the names' order."""
    for column, feature in features.items():
        if names := getattr(feature, "names", None):
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
