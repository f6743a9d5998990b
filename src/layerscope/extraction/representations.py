"""Representations have one matrix (n, d) per layer, with the same n rows in every layer.

They are extracted, read from a folder, or made of the user's own arrays. Beside the class are the summary of layers in
a few numbers, and the checks that every state is a finite number.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from layerscope.arguments import checked
from layerscope.drawing.captions import numbers
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.errors import InputError, LayerscopeWarning, first_line
from layerscope.extraction.row_store import CARD, Rows, Shards, read_shards, write_card, write_shard
from layerscope.results import NextStep, Result, provenance_of
from layerscope.results.finding import label
from layerscope.store import atomic_folder, settled

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure


_BLURRED = 1e-3  # of a column's spread: rounding above this is seen in results
_CONSTANT = 1e-10  # of a column's size: a spread below this is the rounding of a constant column


def real_numbers(name: str, array: Any) -> Tensor:
    """Return an array, or what numpy makes one of, as a tensor; raise InputError where that holds no real numbers."""
    try:
        values = array if isinstance(array, Tensor) else np.asarray(array)
    except (ValueError, TypeError, RuntimeError) as error:  # lists of unlike lengths, objects that are no arrays
        raise InputError(f"{name} is not an array of numbers: {first_line(error).rstrip('.')}.") from error
    complex_or_other = values.is_complex() if isinstance(values, Tensor) else values.dtype.kind not in "fiub"
    if complex_or_other:
        raise InputError(f"{name} holds {values.dtype}; real numbers are needed.")
    if isinstance(values, np.ndarray) and (not values.flags.writeable or min(values.strides, default=0) < 0):
        values = values.copy()  # torch would warn of the first, and takes no array that is read backwards
    return torch.as_tensor(values)


def warn_of_lost_digits(i: int, state: Tensor) -> None:
    """Warn where float32, in which states are kept, blurs columns that lie far from 0 beside their spread."""
    if state.dtype != torch.float64 or len(state) < 2:
        return
    lost = (state - state.float()).abs().amax(dim=0)
    spread = state.std(dim=0)
    blurred = (lost > _BLURRED * spread) & (spread > _CONSTANT * state.abs().amax(dim=0))
    if bool(blurred.any()):
        warnings.warn(
            f"Array {i}: {int(blurred.sum())} of {len(blurred)} columns vary so little beside their size that float32, "
            "in which states are kept, blurs them; subtract their means first.",
            LayerscopeWarning,
            stacklevel=3,
        )


_SHOWN = {
    "mean_norm": ("Mean norm of a row", "Large jumps are usual in deep layers; a few features may carry them."),
    "spread": ("Mean spread of a feature", "0 says that every row is the same vector."),
    "top_direction": (
        "Share of the largest direction",
        "Near 1 nearly all variance lies along one direction, which then decides linear measures.",
    ),
}


class LayerSummary(Result):
    """A table with one row per layer: rows, width, mean norm, mean spread of a feature, share of the largest direction.

    `spread` is the mean standard deviation over features; 0 says that every row is the same vector (as the summary
    token of layer 0 is). `top_direction` is the share of the variance along the first principal direction.
    """

    name = "layers"

    def __init__(self, frame: pandas.DataFrame, model: str, layers: list[int], provenance: Mapping[str, Any]) -> None:
        self._frame, self.model, self.layers, self.provenance = frame, model, layers, provenance

    @property
    def frame(self) -> pandas.DataFrame:
        return self._frame

    def figures(self) -> list[Figure]:
        layers = tuple(map(float, self.layers))
        curves: list[Figure] = [
            CurveFigure(
                title="What each layer holds",
                shows=f"{title} in every layer of {self.model}.",
                reading=reading,
                group="What each layer holds",
                facets={"number": title},
                series=(Series(self.model, layers, tuple(map(float, self._frame[name]))),),
                x_name="layer",
                y_name=title.lower(),
                n=int(self._frame["rows"].iloc[0]),
            )
            for name, (title, reading) in _SHOWN.items()
        ]
        return [*curves, numbers("Every layer", "What each layer holds, in numbers.", self._frame)]

    def next_step(self) -> NextStep:
        """The comparison of the layers."""
        return NextStep(
            "compare", ("--measure", "cka_debiased", "--ci", "0.95", "-o", "compared"), "Compare the layers"
        )

    def __repr__(self) -> str:
        return f"LayerSummary({self.model}, {len(self._frame)} layers)"


def summarise(reps: Representations) -> LayerSummary:
    """Return the summary of each layer of some representations."""
    import pandas

    records = []
    for layer, name in zip(reps.layers, reps.names, strict=True):
        x = reps[layer].double()
        centred = x - x.mean(dim=0)
        spread = float(centred.pow(2).mean(dim=0).sqrt().mean())
        records.append(
            {
                "layer": name,
                "rows": len(x),
                "width": x.shape[1],
                "mean_norm": float(x.norm(dim=1).mean()),
                "spread": spread,
                "top_direction": _top_direction(centred),
            }
        )
    model = str(reps.info.get("model", "representations"))
    described = {"name": model, **reps.info.get("described", {})}
    data = {"task": reps.rows.task, "split": reps.rows.split, **reps.info.get("data", {}), "n": len(reps)}
    origin = provenance_of([described], data, reps.info.get("reading", {}))
    return LayerSummary(pandas.DataFrame(records), label(described), list(reps.layers), origin)


def _top_direction(centred: torch.Tensor) -> float:
    """Return the share of the variance along the first principal direction, NaN where there is no variance."""
    total = float(centred.pow(2).sum())
    scale = float(centred.abs().max())
    if len(centred) < 2 or scale == 0.0 or total <= 1e-20:
        return float("nan")
    smaller = centred.T @ centred if centred.shape[1] <= len(centred) else centred @ centred.T
    return float(torch.linalg.eigvalsh(smaller)[-1]) / total


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
    @checked
    def from_arrays(
        arrays: Sequence[Any],
        labels: Any = None,
        names: Sequence[Any] | None = None,
        rows: Rows | None = None,
    ) -> Representations:
        """Representations of one's own: one array (n, d) per layer, numpy or torch; `names` are the layers' names."""
        if not len(arrays):
            raise InputError("Representations need at least one array (n, d).")
        states = {i: real_numbers(f"Array {i}", array) for i, array in enumerate(arrays)}
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
        """Raise InputError unless there is such a layer."""
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
            classes = list(names) if names is not None else sorted({str(v) for v in values})
            missing = {str(v) for v in values} - set(classes)
            if missing:
                raise InputError(f"The labels {', '.join(sorted(missing))} are not among the names {classes}.")
            values, names = np.asarray([classes.index(str(v)) for v in values]), classes
        elif names is not None and (values.dtype.kind not in "iub" or not np.isin(values, range(len(names))).all()):
            raise InputError(f"Labels with {len(names)} names must be whole numbers from 0 to {len(names) - 1}.")
        values = values.astype(np.float64 if values.dtype.kind == "f" else np.int64)
        return Representations(self._states, self.rows, values, label_names=names, names=self.names, info=self.info)

    @staticmethod
    def common(*many: Representations) -> list[Representations]:
        """The given representations, each with only the rows that all of them have."""
        if not many or not all(isinstance(each, Representations) for each in many):
            raise InputError("Representations.common takes one or more Representations, such as ls.extract returns.")
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
        """Write the files of `save` into a folder that is there."""
        check_finite(self)
        write_shard(folder / "shard-00000.safetensors", self._states, self.rows, self.labels)
        write_card(folder, ["shard-00000.safetensors"], self._card())

    def _card(self) -> dict[str, Any]:
        """Return what the card of a saved folder says."""
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

    @staticmethod
    @checked
    def load(path: str | Path) -> Representations:
        """Open a saved folder; the layers are memory-mapped and read when they are used."""
        return read_folder(settled(Path(path)), finite=True)

    def summary(self) -> LayerSummary:
        """One row per layer: how many rows, how wide, how long and how spread they are."""
        return summarise(self)

    def __repr__(self) -> str:
        what = f"{self.info['model']}, " if "model" in self.info else ""
        return f"Representations({what}layers {_spell(self.layers)}, {len(self)} rows, width {self.width})"


def _spell(layers: Sequence[int]) -> str:
    """Return layers as `0..12`, or one by one where some are missing in between."""
    whole = list(layers) == list(range(layers[0], layers[-1] + 1))
    return f"{layers[0]}..{layers[-1]}" if whole else ", ".join(map(str, layers))


def read_folder(folder: Path, *, finite: bool = False) -> Representations:
    """Open the representations in a folder, however many files they are in; with `finite` every value is checked."""
    return Representations(**read_shards(folder, finite=finite))


_BLOCK = 8192  # rows: stored representations are read piece by piece
_WAY_OUT = "every state must be a finite number, so leave such rows out, or fix what made them."


def check_finite(values: Any, name: str = "The array") -> None:
    """Raise InputError with the first NaN or infinity, if there is one.

    Args:
        values: Representations (the message then names the layer and the row), or an array (n, d), numpy or torch.
        name: What an array is called in the message, such as "X" or "Layer 3 of the source".
    """
    if isinstance(values, Representations):
        for layer in values.layers:
            for start in range(0, len(values), _BLOCK):
                check_part(values, layer, start, values.part(layer, start, start + _BLOCK))
    elif (row := first_not_finite(torch.as_tensor(values))) is not None:
        raise InputError(f"{name} has {_kind(torch.as_tensor(values)[row])} in row {row}; {_WAY_OUT}")


def check_part(reps: Representations, layer: int, start: int, states: Tensor) -> None:
    """Raise InputError if `states`, the rows of a layer that begin with row `start`, are not all finite."""
    if (here := first_not_finite(states)) is None:
        return
    row = start + here
    source = f" of {reps.info['model']}" if "model" in reps.info else ""
    name = reps.names[reps.layers.index(layer)]
    called = "" if name == str(layer) else f" ({name})"
    raise InputError(
        f"Layer {layer}{called}{source} has {_kind(states[here])} in row {row}{_text(reps, row)}; {_WAY_OUT}"
    )


def first_not_finite(states: Tensor) -> int | None:
    """Return the first row that is not finite, or None."""
    # A sum is far cheaper than looking at every number, and a NaN or an infinity is never lost in it. The sum of finite
    # numbers may overflow, so one that is not finite is looked into.
    if not states.is_floating_point() or bool(torch.isfinite(states.sum())):
        return None
    bad = ~torch.isfinite(states).reshape(len(states), -1).all(dim=1)
    return int(bad.nonzero()[0]) if bool(bad.any()) else None


def _kind(row: Tensor) -> str:
    return "a NaN" if bool(torch.isnan(row).any()) else "an infinity"


def _text(reps: Representations, row: int) -> str:
    """Return which text of which data a row is, in brackets; nothing where that is only the row's own number."""
    identity = {name: int(part[row]) for name, part in reps.rows.arrays().items()}
    if reps.rows.task is None and identity == {"row": row}:
        return ""
    unit = (reps.rows.units or "unit").split()[0]
    words = {"row": "text", "unit": unit}
    # Texts are counted from 1, as in the data; rows, choices and units as they are in `rows`.
    numbers = {part: number + 1 if part == "row" else number for part, number in identity.items()}
    parts = ", ".join(f"{words.get(part, part)} {number}" for part, number in numbers.items())
    data = "" if reps.rows.task is None else f" of {reps.rows.task} ({reps.rows.split})"
    return f" ({parts}{data})"
