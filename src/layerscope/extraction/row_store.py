"""The identity of rows, and representations as files.

Rows are known by their text in the data, their choice, and their word or token. A folder of representations has one or
several shards with some rows of every layer, and a card that says what they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from pydantic import AfterValidator, Field
from safetensors.torch import save_file
from torch import Tensor

from layerscope.errors import DataError, InputError
from layerscope.store import Saved, TensorFile, inside, open_tensors, read_object, shaped, whole_file, write_json

if TYPE_CHECKING:
    import pandas


_PARTS = ("row", "choice", "unit")


@dataclass(frozen=True, eq=False)
class Rows:
    """The identity of n rows: each one's text in the split, and its choice and unit (word or token), if any."""

    task: str | None
    split: str | None
    fingerprint: str  # of the data
    row: np.ndarray
    choice: np.ndarray | None = None
    unit: np.ndarray | None = None
    units: str | None = None  # "word", "word by <expression>", or "token of <tokenizer>"

    def __len__(self) -> int:
        return len(self.row)

    def take(self, index: Any) -> Rows:
        """Return some of the rows, by a slice, a mask or positions."""
        parts: dict[str, Any] = {
            name: None if (part := getattr(self, name)) is None else part[index] for name in _PARTS
        }
        return replace(self, **parts)

    @staticmethod
    def join(parts: Sequence[Rows]) -> Rows:
        """Return the rows of several pieces of one data set, in order."""
        first = parts[0]

        def whole(name: str) -> Any:
            return None if getattr(first, name) is None else np.concatenate([getattr(p, name) for p in parts])

        return replace(first, **{name: whole(name) for name in _PARTS})

    def order(self) -> np.ndarray:
        """Return the positions that bring the rows into the data's order."""
        return np.lexsort(list(reversed(self.arrays().values())))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the parts of the identity that there are, by name."""
        return {name: part for name in _PARTS if (part := getattr(self, name)) is not None}

    def frame(self) -> pandas.DataFrame:
        """Return a table with task, split, row, and choice, word or token."""
        import pandas

        unit = (self.units or "unit").split()[0]
        columns = {unit if name == "unit" else name: part for name, part in self.arrays().items()}
        return pandas.DataFrame({"task": self.task, "split": self.split, **columns})

    def keys(self) -> list[tuple[int, ...]]:
        """Return one key per row, by which common rows are found."""
        return list(zip(*(part.tolist() for part in self.arrays().values()), strict=True))

    def difference(self, other: Rows) -> str | None:
        """Return in a few words how two sets of rows differ, or None if row i is the same thing in both."""
        for name, what in (("task", "tasks"), ("split", "splits"), ("units", "units")):
            a, b = getattr(self, name), getattr(other, name)
            if a != b:
                return f"they are of different {what}: {a} and {b}"
        if self.fingerprint != other.fingerprint:
            return f"the texts or labels of {self.task} ({self.split}) have changed between them"
        if len(self) != len(other):
            return f"one has {len(self)} rows, the other {len(other)}"
        for name in _PARTS:
            a, b = getattr(self, name), getattr(other, name)
            if (a is None) != (b is None):
                return f"only one of them has a {name} for each row"
            if a is not None and not np.array_equal(a, b):
                place = int(np.flatnonzero(a != b)[0])
                return f"row {place} is {name} {a[place]} in one and {name} {b[place]} in the other"
        return None

    def require_same(self, other: Rows) -> None:
        """Raise InputError with how the rows differ, if they do."""
        if difference := self.difference(other):
            raise InputError(
                f"These representations cannot be compared row by row: {difference}. Extract both over the same "
                "rows, or keep the rows that both have with Representations.common(a, b)."
            )


CARD = "representations.json"
FORMAT = 1
_AGAIN = "extract the representations again"


class Shards(Mapping[int, Tensor]):
    """The layers of stored representations, as a mapping over one or several memory-mapped files."""

    def __init__(self, files: Sequence[TensorFile], layers: Sequence[int]) -> None:
        self._files = files
        self._layers = list(layers)

    def __getitem__(self, layer: int) -> Tensor:
        if layer not in self._layers:
            raise KeyError(layer)
        parts = [file.tensor(_tensor_name(layer)) for file in self._files]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def part(self, layer: int, start: int, stop: int) -> Tensor:
        """Read rows start..stop-1 of a layer."""
        parts, first = [], 0
        for file in self._files:
            count = file.shape(_tensor_name(layer))[0]
            if first < stop and first + count > start:
                parts.append(file.tensor(_tensor_name(layer), max(start - first, 0), min(stop - first, count)))
            first += count
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def check_finite(self) -> None:
        """Raise DataError, with the layer and the row, where a value is not a finite number."""
        for layer in self._layers:
            first = 0
            for file in self._files:
                file.finite(_tensor_name(layer), f"layer {layer}", first)
                first += file.shape(_tensor_name(layer))[0]

    def __iter__(self) -> Any:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)

    def __contains__(self, layer: object) -> bool:
        return layer in self._layers


def _tensor_name(layer: int) -> str:
    return f"layer.{layer}"


def write_shard(path: Path, states: Mapping[int, Tensor], rows: Rows, labels: np.ndarray | None) -> None:
    """Write some rows of all layers into one file, whole or not at all."""
    tensors = {_tensor_name(layer): states[layer].contiguous() for layer in states}
    # safetensors refuses tensors that share memory, as one array given for two layers does.
    for name, tensor in tensors.items():
        if sum(tensor.data_ptr() == other.data_ptr() for other in tensors.values()) > 1:
            tensors[name] = tensor.clone()
    arrays = rows.arrays() | ({} if labels is None else {"label": labels})
    tensors |= {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    with whole_file(path) as temporary:
        save_file(tensors, temporary)


def write_card(folder: Path, shards: Sequence[str], card: Mapping[str, Any]) -> None:
    """Write the card of representations, last of all, since it makes the folder one of representations."""
    write_json(folder / CARD, {"format": FORMAT, "shards": list(shards), **card})


def _objects(info: dict[str, Any]) -> dict[str, Any]:
    """Return a card's `info`, or raise ValueError unless its model, data and reading are described by objects."""
    wrong = [name for name in ("described", "data", "reading") if not isinstance(info.get(name, {}), dict)]
    if wrong:
        raise ValueError(f"{wrong[0]} is not an object")
    return info


class RepresentationsCard(Saved):
    """The schema of `representations.json`."""

    shards: list[str] = Field(min_length=1, max_length=1_000_000)
    layers: list[Annotated[int, Field(ge=0, lt=1 << 31)]] = Field(min_length=1)
    names: list[str]
    label_names: list[str] | None
    task: str | None
    split: str | None
    fingerprint: str
    units: str | None
    info: Annotated[dict[str, Any], AfterValidator(_objects)]


def read_shards(folder: Path, *, finite: bool = False) -> dict[str, Any]:
    """Return the arguments of `Representations` for those in a folder, however many files they are in."""
    if not (folder / CARD).exists():
        raise DataError(f"{folder} holds no {CARD}, so no representations were saved there.")
    raw = read_object(inside(folder, CARD), way_out=_AGAIN)
    if raw.get("format") != FORMAT:
        raise DataError(
            f"{folder} was written in format {str(raw.get('format'))[:40]}, and this version reads format {FORMAT}; "
            f"{_AGAIN}."
        )
    try:
        card = shaped(raw, RepresentationsCard)
        if card.layers != sorted(set(card.layers)) or len(card.names) != len(card.layers):
            raise ValueError("layers are named once each and in order")
        files = [open_tensors(inside(folder, name), way_out=_AGAIN) for name in card.shards]
        joined = _row_arrays(files)
        labels = _labels(joined.pop("label", None), card.label_names)
    except DataError:
        raise
    except ValueError as error:
        raise DataError(f"The representations in {folder} are damaged ({error}); {_AGAIN}.") from error
    widths = {layer: _width(files[0], layer) for layer in card.layers}
    for file in files:
        file.require({_tensor_name(layer): (_rows_of(file), width) for layer, width in widths.items()})
    states = Shards(files, card.layers)
    if finite:
        states.check_finite()
    rows = Rows(card.task, card.split, card.fingerprint, units=card.units, **joined)
    more = {"label_names": card.label_names, "names": card.names, "info": card.info}
    return {"states": states, "rows": rows, "labels": labels, **more}


def _rows_of(file: TensorFile) -> int:
    """Return how many rows a shard has."""
    return file.shape("row")[0]


def _width(file: TensorFile, layer: int) -> int:
    """Return the width of a layer, or raise DataError where it is missing or does not hold floats."""
    file.require({_tensor_name(layer): (None, None)})
    if file.dtype(_tensor_name(layer)) not in ("F32", "F64", "F16", "BF16"):
        raise DataError(f"{file.path} is damaged: layer {layer} holds {file.dtype(_tensor_name(layer))}; {_AGAIN}.")
    return file.shape(_tensor_name(layer))[1]


def _row_arrays(files: Sequence[TensorFile]) -> dict[str, np.ndarray]:
    """Return the row identities and labels of all shards, which must have the same parts and one entry per row."""
    names = [name for name in ("row", "choice", "unit", "label") if name in files[0].names]
    for file in files:
        file.require({"row": (None,)})
        file.require({name: (_rows_of(file),) for name in names})
        if {name for name in ("choice", "unit", "label") if name in file.names} != {*names} - {"row"}:
            raise ValueError("its files hold different parts")
        for name in names:
            if not file.dtype(name).startswith(("I", "U", "F") if name == "label" else ("I", "U")):
                raise ValueError(f"{name} holds {file.dtype(name)}")
    return {name: np.concatenate([file.tensor(name).numpy() for file in files]) for name in names}


def _labels(labels: np.ndarray | None, names: Sequence[str] | None) -> np.ndarray | None:
    """Return the labels, or raise ValueError where they are not finite or not numbers of the named classes."""
    if labels is None:
        return None
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError(f"the label of row {int(np.flatnonzero(~np.isfinite(labels))[0])} is not a finite number")
    if names is not None and (labels.dtype.kind != "i" or not np.isin(labels, range(len(names))).all()):
        raise ValueError(f"labels are not whole numbers from 0 to {len(names) - 1}, one for each of its names")
    return labels
