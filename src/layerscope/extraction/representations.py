"""Representations: per layer one matrix n x d, the same n rows in every layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import AfterValidator, Field
from safetensors.torch import save_file
from torch import Tensor

from layerscope.errors import DataError, InputError
from layerscope.extraction.arrays import real_numbers, warn_of_lost_digits
from layerscope.extraction.rows import Rows
from layerscope.extraction.summary import LayerSummary, summarise
from layerscope.store import (
    Saved,
    TensorFile,
    atomic_folder,
    inside,
    open_tensors,
    read_object,
    settled,
    shaped,
    whole_file,
    write_json,
)

CARD = "representations.json"
FORMAT = 1
_AGAIN = "extract the representations again"


class Representations:
    """Rows of every layer, with their labels and identity. `reps[5]` is layer 5, a float32 tensor (n, d).

    Attributes:
        layers: The layers that there are.
        names: Their names.
        rows: The identity of each row: which text, and which word, token or choice of it.
        labels: One label per row, or None.
        label_names: The classes in order, or None.
        info: Where the rows come from: model, data, reading, versions.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> draw = np.random.default_rng(0).normal
        >>> reps = ls.Representations.from_arrays([draw(size=(6, 3)), draw(size=(6, 4))], labels=["a", "b"] * 3)
        >>> len(reps), reps.layers, tuple(reps[1].shape), reps.label_names
        (6, [0, 1], (6, 4), ('a', 'b'))
    """

    def __init__(
        self,
        states: Mapping[int, Tensor],
        rows: Rows,
        labels: np.ndarray | None = None,
        *,
        label_names: Sequence[str] | None = None,
        names: Sequence[str] | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        self._states = states
        self.rows = rows
        self.labels = labels
        self.label_names = tuple(label_names) if label_names is not None else None
        self.layers = sorted(states)
        self.names = tuple(names) if names is not None else tuple(map(str, self.layers))
        self.info = dict(info or {})

    @staticmethod
    def from_arrays(
        arrays: Sequence[Any],
        labels: Any = None,
        names: Sequence[str] | None = None,
        rows: Rows | None = None,
    ) -> Representations:
        """Representations of one's own: one array (n, d) per layer, numpy or torch; `names` are the layers' names."""
        if not len(arrays):
            raise InputError("Representations need at least one array (n, d).")
        states = {i: real_numbers(i, array) for i, array in enumerate(arrays)}
        for i, state in states.items():
            if state.ndim != 2:
                raise InputError(
                    f"Array {i} has shape {tuple(state.shape)}; a layer is an array with two dimensions: rows, columns."
                )
            if len(state) != len(states[0]):
                raise InputError(
                    f"Array {i} has {len(state)} rows and array 0 has {len(states[0])}; all need the same number."
                )
        if names is not None and len(names) != len(arrays):
            raise InputError(f"{len(names)} names were given for {len(arrays)} layers.")
        for i, state in states.items():
            warn_of_lost_digits(i, state)
        n = len(states[0])
        if rows is not None and len(rows) != n:
            raise InputError(f"The identities of {len(rows)} rows were given for {n} rows.")
        made = Representations(
            {i: state.detach().to("cpu", torch.float32, copy=True) for i, state in states.items()},
            rows if rows is not None else Rows(None, None, "", np.arange(n)),
            names=names,
        )
        return made if labels is None else made.with_labels(labels)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, layer: int) -> Tensor:
        self._require(layer)
        return self._states[layer]

    def _require(self, layer: int) -> None:
        if layer not in self._states:
            raise InputError(f"There is no layer {layer!r} here; there are {_spell(self.layers)}.")

    def part(self, layer: int, start: int, stop: int) -> Tensor:
        """Rows start..stop-1 of a layer; of stored representations only those are read."""
        if layer in self._states and isinstance(self._states, _Shards):
            return self._states.part(layer, start, stop)
        return self[layer][start:stop]

    def __iter__(self) -> Any:
        raise TypeError("Representations are read by layer: reps[5]; reps.layers lists the layers.")

    @property
    def width(self) -> int:
        return int(self[self.layers[-1]].shape[1])

    def select(self, layers: Sequence[int] | None = None, rows: Any = None) -> Representations:
        """Some layers and some rows (a slice, a mask or positions); rows keep their identity."""
        for layer in layers or ():
            self._require(layer)
        chosen = [layer for layer in self.layers if layers is None or layer in layers]
        if not chosen:
            raise InputError(f"No layer was selected; there are {_spell(self.layers)}.")
        picked = np.atleast_1d(np.arange(len(self))[slice(None) if rows is None else rows])
        at = slice(None) if rows is None else torch.from_numpy(picked.copy())
        return Representations(
            {layer: self[layer][at] for layer in chosen},
            self.rows.take(picked),
            None if self.labels is None else self.labels[picked],
            label_names=self.label_names,
            names=[name for layer, name in zip(self.layers, self.names, strict=True) if layer in chosen],
            info=self.info,
        )

    def with_labels(self, labels: Any, names: Sequence[str] | None = None) -> Representations:
        """The same rows with other labels: numbers or strings, one per row."""
        values = np.asarray(labels)
        if values.shape != (len(self),):
            raise InputError(f"{len(self)} labels are needed, one per row; the shape given is {values.shape}.")
        if values.dtype.kind in "USO":
            if any(v is None for v in values):
                raise InputError("Every row needs a label, and some are None; select the rows that have one first.")
            known = list(names) if names is not None else sorted({str(v) for v in values})
            missing = {str(v) for v in values} - set(known)
            if missing:
                raise InputError(f"The labels {', '.join(sorted(missing))} are not among the names {known}.")
            values, names = np.asarray([known.index(str(v)) for v in values]), known
        elif names is not None and (values.dtype.kind not in "iub" or not np.isin(values, range(len(names))).all()):
            raise InputError(f"Labels with {len(names)} names must be whole numbers from 0 to {len(names) - 1}.")
        values = values.astype(np.float64 if values.dtype.kind == "f" else np.int64)
        return Representations(self._states, self.rows, values, label_names=names, names=self.names, info=self.info)

    @staticmethod
    def common(*many: Representations) -> list[Representations]:
        """The given representations, each with only the rows that all of them have."""
        first = many[0].rows
        for other in many[1:]:
            same_kind = (first.task, first.split, first.fingerprint, first.units)
            if (other.rows.task, other.rows.split, other.rows.fingerprint, other.rows.units) != same_kind:
                first.require_same(other.rows)
        places = [{key: place for place, key in enumerate(reps.rows.keys())} for reps in many]
        shared = [key for key in places[0] if all(key in other for other in places[1:])]
        return [reps.select(rows=[p[key] for key in shared]) for reps, p in zip(many, places, strict=True)]

    def save(self, path: str | Path) -> Path:
        """Write a folder with the layers (safetensors) and what they are (JSON); atomic."""
        path = Path(path)
        with atomic_folder(path, CARD) as folder:
            self.write(folder)
        return path

    def write(self, folder: Path) -> None:
        """The files of `save`, into a folder that is there."""
        from layerscope.extraction.finite import check_finite  # which knows representations

        check_finite(self)
        write_shard(folder / "shard-00000.safetensors", self._states, self.rows, self.labels)
        write_card(folder, ["shard-00000.safetensors"], self._card())

    @staticmethod
    def load(path: str | Path) -> Representations:
        """Open a saved folder; the layers are memory-mapped and read when they are used."""
        return read_folder(settled(Path(path)), finite=True)

    def summary(self) -> LayerSummary:
        """One row per layer: how many rows, how wide, how long and how spread they are."""
        return summarise(self)

    def _card(self) -> dict[str, Any]:
        return {
            "layers": self.layers,
            "names": list(self.names),
            "label_names": None if self.label_names is None else list(self.label_names),
            "task": self.rows.task,
            "split": self.rows.split,
            "fingerprint": self.rows.fingerprint,
            "units": self.rows.units,
            "info": self.info,
        }

    def __repr__(self) -> str:
        what = f"{self.info['model']}, " if "model" in self.info else ""
        return f"Representations({what}layers {_spell(self.layers)}, {len(self)} rows, width {self.width})"


def _spell(layers: Sequence[int]) -> str:
    whole = list(layers) == list(range(layers[0], layers[-1] + 1))
    return f"{layers[0]}..{layers[-1]}" if whole else ", ".join(map(str, layers))


class _Shards(Mapping[int, Tensor]):
    """Layers that lie in one or several memory-mapped files."""

    def __init__(self, files: Sequence[TensorFile], layers: Sequence[int]) -> None:
        self._files = files
        self._layers = list(layers)

    def __getitem__(self, layer: int) -> Tensor:
        if layer not in self._layers:
            raise KeyError(layer)
        parts = [file.tensor(_tensor_name(layer)) for file in self._files]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def part(self, layer: int, start: int, stop: int) -> Tensor:
        parts, first = [], 0
        for file in self._files:
            count = file.shape(_tensor_name(layer))[0]
            if first < stop and first + count > start:
                parts.append(file.tensor(_tensor_name(layer), max(start - first, 0), min(stop - first, count)))
            first += count
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def check_finite(self) -> None:
        """Raise a sentence, with the layer and the row, where a value is not a finite number."""
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
    """Some rows of all layers in one file, under a temporary name until it is whole."""
    tensors = {f"layer.{layer}": states[layer].contiguous() for layer in states}
    for name, tensor in tensors.items():  # one array given for two layers is written twice
        if sum(tensor.data_ptr() == other.data_ptr() for other in tensors.values()) > 1:
            tensors[name] = tensor.clone()
    arrays = rows.arrays() | ({} if labels is None else {"label": labels})
    tensors |= {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    with whole_file(path) as temporary:
        save_file(tensors, temporary)


def write_card(folder: Path, shards: Sequence[str], card: Mapping[str, Any]) -> None:
    write_json(folder / CARD, {"format": FORMAT, "shards": list(shards), **card})


def _objects(info: dict[str, Any]) -> dict[str, Any]:
    """What is said of the model, the data and the reading, as the objects that they are."""
    wrong = [name for name in ("described", "data", "reading") if not isinstance(info.get(name, {}), dict)]
    if wrong:
        raise ValueError(f"{wrong[0]} is not an object")
    return info


class RepresentationsCard(Saved):
    """`representations.json`."""

    shards: list[str] = Field(min_length=1, max_length=1_000_000)
    layers: list[Annotated[int, Field(ge=0, lt=1 << 31)]] = Field(min_length=1)
    names: list[str]
    label_names: list[str] | None
    task: str | None
    split: str | None
    fingerprint: str
    units: str | None
    info: Annotated[dict[str, Any], AfterValidator(_objects)]


def read_folder(folder: Path, *, finite: bool = False) -> Representations:
    """The representations in a folder, however many files they are in; with `finite` every value is looked at."""
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
        file.require({_tensor_name(layer): (len_of(file), width) for layer, width in widths.items()})
    states = _Shards(files, card.layers)
    if finite:
        states.check_finite()
    rows = Rows(card.task, card.split, card.fingerprint, units=card.units, **joined)
    more: dict[str, Any] = {"label_names": card.label_names, "names": card.names, "info": card.info}
    return Representations(states, rows, labels, **more)


def len_of(file: TensorFile) -> int:
    """The rows of a shard."""
    return file.shape("row")[0]


def _width(file: TensorFile, layer: int) -> int:
    file.require({_tensor_name(layer): (None, None)})
    if file.dtype(_tensor_name(layer)) not in ("F32", "F64", "F16", "BF16"):
        raise DataError(f"{file.path} is damaged: layer {layer} holds {file.dtype(_tensor_name(layer))}; {_AGAIN}.")
    return file.shape(_tensor_name(layer))[1]


def _row_arrays(files: Sequence[TensorFile]) -> dict[str, np.ndarray]:
    """Row identities and labels of all shards: every one the same parts, one entry per row."""
    names = [name for name in ("row", "choice", "unit", "label") if name in files[0].names]
    for file in files:
        file.require({"row": (None,)})
        file.require({name: (len_of(file),) for name in names})
        if {name for name in ("choice", "unit", "label") if name in file.names} != {*names} - {"row"}:
            raise ValueError("its files hold different parts")
        for name in names:
            if not file.dtype(name).startswith(("I", "U", "F") if name == "label" else ("I", "U")):
                raise ValueError(f"{name} holds {file.dtype(name)}")
    return {name: np.concatenate([file.tensor(name).numpy() for file in files]) for name in names}


def _labels(labels: np.ndarray | None, names: Sequence[str] | None) -> np.ndarray | None:
    if labels is None:
        return None
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError(f"the label of row {int(np.flatnonzero(~np.isfinite(labels))[0])} is not a finite number")
    if names is not None and (labels.dtype.kind != "i" or not np.isin(labels, range(len(names))).all()):
        raise ValueError(f"labels are not whole numbers from 0 to {len(names) - 1}, one for each of its names")
    return labels
