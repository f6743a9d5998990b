"""Representations: per layer one matrix n x d, the same n rows in every layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.errors import InputError
from layerscope.extraction.arrays import real_numbers, warn_of_lost_digits
from layerscope.extraction.rows import Rows
from layerscope.extraction.shards import CARD, Shards, read_shards, write_card, write_shard
from layerscope.extraction.summary import LayerSummary, summarise
from layerscope.store import atomic_folder, settled


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
        self.names = tuple(map(str, self.layers if names is None else names))
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
            if state.ndim != 2 or not state.shape[1]:
                raise InputError(
                    f"Array {i} has shape {tuple(state.shape)}; a layer is an array with two dimensions: rows, and at "
                    "least one column."
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
        if layer in self._states and isinstance(self._states, Shards):
            return self._states.part(layer, start, stop)
        return self[layer][start:stop]

    def __iter__(self) -> Any:
        raise TypeError("Representations are read by layer: reps[5]; reps.layers lists the layers.")

    @property
    def width(self) -> int:
        return int(self[self.layers[-1]].shape[1])

    def select(self, layers: Sequence[int] | None = None, rows: Any = None) -> Representations:
        """Some layers and some rows (a slice, a mask or positions); rows keep their identity."""
        for layer in () if layers is None else layers:
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
            import pandas

            if pandas.isna(values).any():
                raise InputError(
                    "Every row needs a label, and some are missing (None or NaN); select the rows that have one first."
                )
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


def read_folder(folder: Path, *, finite: bool = False) -> Representations:
    """The representations in a folder, however many files they are in; with `finite` every value is looked at."""
    return Representations(**read_shards(folder, finite=finite))
