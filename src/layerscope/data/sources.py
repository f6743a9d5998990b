"""Where a task's tables come from: files, a mirror folder, the hub, or memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from layerscope.data.registry import Hub, TaskSpec
from layerscope.data.tables import Table, endings, frame_table, read, readable
from layerscope.errors import DataError

_SPLIT_NAMES = {"dev": "validation", "val": "validation", "valid": "validation", "training": "train"}


class Source(Protocol):
    """Splits by name, each a table."""

    @property
    def splits(self) -> tuple[str, ...]: ...

    def table(self, split: str) -> Table: ...


@dataclass(frozen=True)
class FileSource:
    """One file a split."""

    paths: Mapping[str, Path]

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.paths)

    def table(self, split: str) -> Table:
        return read(self.paths[split])


@dataclass(frozen=True)
class FrameSource:
    """One pandas (or pyarrow) table a split."""

    frames: Mapping[str, Any]

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.frames)

    def table(self, split: str) -> Table:
        return frame_table(self.frames[split], f"the table of split {split!r}")


@dataclass(frozen=True)
class HubSource:
    """A data set of the hub. `names` maps a registry task's split names to the hub's; without it all are taken."""

    hub: Hub
    names: Mapping[str, str]
    hint: str = ""

    @cached_property
    def _arguments(self) -> dict[str, Any]:
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

    def table(self, split: str) -> Table:
        import datasets

        with _hub_errors(self):
            data = datasets.load_dataset(**self._arguments, split=self.names.get(split, split))
        table = frame_table(data.with_format("arrow")[:], f"{self.hub.id} ({split})")
        if not self.names:  # a registry task has its own label names, in the data's order
            _name_classes(table, data.features)
        return table


def _name_classes(table: Table, features: Mapping[str, Any]) -> None:
    """Class numbers become the names that the data set gives them, and the names' order is remembered."""
    for column, feature in features.items():
        if names := getattr(feature, "names", None):
            table.classes[column] = tuple(names)
            values = table.columns[column]
            table.columns[column] = [names[int(v)] if v is not None and v >= 0 else v for v in values]


class _hub_errors:  # noqa: N801  (a context manager, read as a verb)
    """Whatever the hub's client raises, as one sentence with both ways out."""

    def __init__(self, source: HubSource) -> None:
        self.source = source

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, Exception):
            hub = self.source.hub
            name = hub.id + (f" ({hub.config})" if hub.config else "")
            first = (str(error) or kind.__name__ if kind else "").strip().splitlines()[0].rstrip(".")
            raise DataError(
                f"The data set {name} could not be had from the hub: {first}. "
                f"Check its name and the network{self.source.hint}."
            ) from error


def mirror(spec: TaskSpec) -> FileSource | None:
    """The task's files under the folders of LAYERSCOPE_DATA, the first folder that has a split winning."""
    found: dict[str, Path] = {}
    for root in roots():
        for split, path in {**_named_files(root, spec), **split_files(root / spec.name)}.items():
            found.setdefault(split, path)
    return FileSource(found) if found else None


def roots() -> list[Path]:
    """The folders of LAYERSCOPE_DATA, in order."""
    return [Path(p).expanduser() for p in os.environ.get("LAYERSCOPE_DATA", "").split(os.pathsep) if p]


def _named_files(root: Path, spec: TaskSpec) -> dict[str, Path]:
    folders = [root, root / spec.name] + ([root / spec.folder] if spec.folder else [])
    found: dict[str, Path] = {}
    for split, name in spec.files.items():
        for path in (folder / (name + gz) for folder in folders for gz in ("", ".gz")):
            if path.is_file():
                found.setdefault(split, path)
    return found


def split_files(folder: Path) -> dict[str, Path]:
    """The files of a folder whose names are splits: `train.csv`, `validation.parquet`, `dev.jsonl.gz` ..."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_file() and readable(path) and not path.name.startswith("."):
            stem = path.name.split(".")[0]
            split = _SPLIT_NAMES.get(stem, stem)
            if split in found:
                raise DataError(
                    f"{folder} has two files for split {split!r}: {found[split].name} and {path.name}; keep one."
                )
            found[split] = path
    return found


def folder_source(folder: Path) -> FileSource:
    """A user's folder with one file a split."""
    found = split_files(folder)
    if not found:
        raise DataError(f"{folder} holds no data file; put train and validation files there ({endings()}).")
    return FileSource(found)
