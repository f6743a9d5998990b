"""Similarity: the matrix of a measure over two lists of layers, with what it is a matrix of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, field_validator

from layerscope.drawing.figure import Side
from layerscope.drawing.painting import draw, draw_panels
from layerscope.errors import DataError, InputError, first_line
from layerscope.results import Result, read_table
from layerscope.similarity import picture
from layerscope.similarity.registry import registry
from layerscope.store import Saved, shaped

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from layerscope.drawing.figure import Figure
    from layerscope.drawing.figures.heatmap import HeatmapFigure

# What may stand beside the values, and its column in the table.
_EXTRAS = {
    "low": "low",
    "high": "high",
    "bias": "bias",
    "debiased": "debiased",
    "baseline": "baseline",
    "p_values": "p_value",
    "calibrated": "calibrated",
}
_Pair = Field(min_length=2, max_length=2)


class Best(Saved):
    """The most similar pair of different layers, set beside the best that shuffled texts give among as many pairs."""

    row: str
    column: str
    value: float
    baseline: float
    p_value: float
    calibrated: float


class SimilarityCard(Saved):
    """What stands in the Parquet file of a similarity beside its table."""

    measure: str
    options: dict[str, Any]
    n: int
    bounds: list[float] = _Pair
    shape: list[Annotated[int, Field(ge=1)]] = _Pair
    layers: list[list[int]] = _Pair
    extras: list[Literal["low", "high", "bias", "debiased", "baseline", "p_values", "calibrated"]]
    best: Best | None = None
    provenance: dict[str, Any]

    @field_validator("provenance")
    @classmethod
    def _objects(cls, value: dict[str, Any]) -> dict[str, Any]:
        if not all(isinstance(value.get(name, {}), dict) for name in ("data", "settings")):
            raise ValueError("data and settings are objects")
        return value


def _matrix(frame: pandas.DataFrame, name: str, shape: tuple[int, int]) -> np.ndarray:
    """A column of numbers as the matrix that it was."""
    values = frame[name].to_numpy()
    if values.dtype.kind not in "fiu":
        raise ValueError(f"{name} holds no numbers")
    return values.astype(float).reshape(shape)


def _texts(frame: pandas.DataFrame, name: str) -> tuple[str, ...]:
    """A column of texts."""
    values = tuple(frame[name])
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} holds no texts")
    return values


@dataclass(frozen=True)
class Axis:
    """The layers along one side of a matrix, each of some model."""

    models: tuple[str, ...]  # the model of each entry
    layers: tuple[int, ...]  # the layer of each entry
    names: tuple[str, ...]  # what each layer is called: its number, unless it was given a name

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def labels(self) -> list[str]:
        """`3`, or `model:3` where there are several models."""
        several = len(set(self.models)) > 1
        return [f"{m}:{name}" if several else name for m, name in zip(self.models, self.names, strict=True)]

    @property
    def side(self) -> Side:
        """The axis as figures have it."""
        models = dict.fromkeys(self.models)
        name = f"layer of {next(iter(models))}" if len(models) == 1 else "model and layer"
        return Side(name, tuple(map(str, self.models)), self.names)


@dataclass(repr=False)
class Similarity(Result):
    """`values[i, j]` is the measure of row layer i and column layer j; NaN where undefined, with the reason.

    Attributes:
        values: The matrix; `rows` and `columns` are its layers' labels.
        row_axis: The models and layers of the rows.
        column_axis: The same of the columns.
        measure: The measure's name.
        options: The measure's options.
        n: How many rows of states (or sentences) it is measured on.
        reasons: Why a cell is undefined, by its place.
        bounds: The least and the greatest value that the measure can have.
        provenance: Models, data, settings and versions.
        low: The lower end of an interval, where one was asked for.
        high: The upper end.
        left_out: The values without each group of texts in turn (groups, rows, columns), which intervals are made of.
        bias: The jackknife's estimate of how far the values are off for lack of rows, with intervals.
        debiased: The values less that bias; beside `cka` those of `cka_debiased`.
        baseline: The mean that shuffled texts give, where that was asked for.
        p_values: How often shuffled texts give as much, with `baseline=200`.
        calibrated: The similarity above chance, with `baseline=200`: max(0, (s - tau) / (1 - tau)), tau the 95th
            percentile of what shuffled texts give.
        best: The most similar pair of different layers, with its p-value and calibrated similarity: the best that
            shuffled texts give among as many pairs is what it is set beside.
        heads: For each cell the values by attention head, of measures that have them.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> rows = np.random.default_rng(0).normal(size=(50, 4))
        >>> similarity = ls.compare([rows, rows + 1], [rows])
        >>> similarity.values.shape, similarity.n, len(similarity.frame)
        ((2, 1), 50, 2)
    """

    name = "similarity"

    values: np.ndarray
    row_axis: Axis
    column_axis: Axis
    measure: str
    options: dict[str, Any]
    n: int
    reasons: dict[tuple[int, int], str] = field(default_factory=dict)
    bounds: tuple[float, float] = (0.0, 1.0)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    baseline: np.ndarray | None = None
    heads: dict[tuple[int, int], np.ndarray] | None = None  # (heads of i, heads of j) for each cell
    left_out: np.ndarray | None = None  # (groups, rows, columns)
    bias: np.ndarray | None = None
    debiased: np.ndarray | None = None
    p_values: np.ndarray | None = None
    calibrated: np.ndarray | None = None
    best: Best | None = None

    @property
    def matches(self) -> dict[tuple[int, int], np.ndarray]:
        """Of attention: for each head of row layer i the head (from 0) of column layer j most like it; -1 if none."""
        if self.heads is None:
            known = ", ".join(name for name, m in registry().items() if m.by_head)
            raise InputError(f"{self.measure} does not match attention heads; {known} do.")
        return {cell: matched(values) for cell, values in self.heads.items()}

    @property
    def rows(self) -> list[str]:
        return self.row_axis.labels

    @property
    def columns(self) -> list[str]:
        return self.column_axis.labels

    @property
    def frame(self) -> pandas.DataFrame:
        """One row per pair of layers: row_model, row_layer, column_model, column_layer, measure, value, low, high,
        bias, debiased, baseline, p_value, calibrated, n, reason."""
        import pandas

        records = []
        for i in range(len(self.row_axis)):
            for j in range(len(self.column_axis)):
                record = {
                    "row_model": self.row_axis.models[i],
                    "row_layer": self.row_axis.names[i],
                    "column_model": self.column_axis.models[j],
                    "column_layer": self.column_axis.names[j],
                    "measure": self.measure,
                    "value": float(self.values[i, j]),
                }
                for name, column in _EXTRAS.items():
                    extra = getattr(self, name)
                    record[column] = math.nan if extra is None else float(extra[i, j])
                records.append({**record, "n": self.n, "reason": self.reasons.get((i, j), "")})
        return pandas.DataFrame(records)

    def arrow(self) -> Any:
        """The table, with a column of lists for attention heads and for groups left out, where there are any."""
        import pyarrow

        table = super().arrow()
        if self.left_out is not None:
            groups = self.left_out.reshape(len(self.left_out), -1).T
            table = table.append_column("left_out", pyarrow.array(list(groups)))
        if self.heads is not None:
            cells = [self.heads[cell].tolist() for cell in np.ndindex(self.values.shape)]
            table = table.append_column("heads", pyarrow.array(cells))
        return table

    def card(self) -> dict[str, Any]:
        return {
            "measure": self.measure,
            "options": self.options,
            "n": self.n,
            "bounds": self.bounds,
            "shape": self.values.shape,
            "layers": [list(self.row_axis.layers), list(self.column_axis.layers)],
            "extras": [name for name in _EXTRAS if getattr(self, name) is not None],
            "best": None if self.best is None else self.best.model_dump(),
        }

    @staticmethod
    def load(path: str | Path) -> Similarity:
        """The similarity in a Parquet file that `save` wrote."""
        frame, card = read_table(path, Similarity.name)
        try:
            return Similarity._restored(frame, dict(shaped(card, SimilarityCard)))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise DataError(f"{path} is damaged ({first_line(error)}); make it again.") from error

    @staticmethod
    def _restored(frame: pandas.DataFrame, card: Mapping[str, Any]) -> Similarity:
        rows, columns = card["shape"]
        if [len(layers) for layers in card["layers"]] != [rows, columns]:
            raise ValueError("its layers are not those of its matrix")
        first, top = frame.iloc[::columns], frame.iloc[:columns]
        reasons = {divmod(k, columns): str(reason) for k, reason in enumerate(frame["reason"]) if reason}
        heads = {divmod(k, columns): np.stack(list(cell)) for k, cell in enumerate(frame.get("heads", ()))}
        values = _matrix(frame, "value", (rows, columns))
        if any((int(i), int(j)) not in reasons for i, j in np.argwhere(~np.isfinite(values))):
            raise ValueError("a value is undefined and no reason is given")
        return Similarity(
            values,
            Axis(_texts(first, "row_model"), tuple(card["layers"][0]), _texts(first, "row_layer")),
            Axis(_texts(top, "column_model"), tuple(card["layers"][1]), _texts(top, "column_layer")),
            card["measure"],
            card["options"],
            card["n"],
            reasons,
            tuple(card["bounds"]),
            card["provenance"],
            **{name: _matrix(frame, _EXTRAS[name], (rows, columns)) for name in card["extras"]},
            best=card["best"],
            heads=heads or None,
            left_out=np.stack(list(frame["left_out"]), axis=-1).reshape(-1, rows, columns)
            if "left_out" in frame
            else None,
        )

    def figures(self) -> list[Figure]:
        above = [] if self.calibrated is None else [picture.calibrated_heatmap(self)]
        return [self.heatmap(), *above]

    def findings(self) -> list[str]:
        """What shuffled texts say of the most similar pair of layers."""
        return [] if self.best is None else [picture.finding(self)]

    def heatmap(self) -> HeatmapFigure:
        """The matrix as a heat map."""
        return picture.heatmap(self)

    def plot_heads(
        self, row: int | str, column: int | str, path: str | Path | None = None, ax: Axes | None = None
    ) -> Axes:
        """Every attention head of one layer with every head of another, the matches marked; layers by their labels."""
        places = self._place(row, self.rows, "row"), self._place(column, self.columns, "column")
        return draw(self.head_heatmap(*places), path, ax)

    def head_heatmap(self, row: int, column: int) -> HeatmapFigure:
        """The attention heads of two layers (by their places): values, and a ring around each row's match."""
        return picture.head_heatmap(self, row, column)

    @staticmethod
    def _place(label: int | str, labels: list[str], side: str) -> int:
        if str(label) not in labels:
            raise InputError(f"There is no {side} layer {label!r}; there are {', '.join(labels)}.")
        return labels.index(str(label))

    def __repr__(self) -> str:
        undefined = int(np.isnan(self.values).sum())
        gaps = f", {undefined} undefined" if undefined else ""
        return f"Similarity({self.measure}, {len(self.row_axis)} x {len(self.column_axis)} layers, n = {self.n}{gaps})"


def matched(heads: np.ndarray) -> np.ndarray:
    """(H,) for each head of the first layer (rows) the head of the second that is most like it; -1 if none is."""
    filled = np.where(np.isnan(heads), -np.inf, heads)
    return np.where(np.isneginf(filled.max(axis=1)), -1, filled.argmax(axis=1))


def panels(similarities: Mapping[str, Similarity] | Sequence[Similarity], path: str | Path) -> None:
    """Draw several heat maps side by side on one colour scale, under the names of a mapping if one is given.

    Args:
        similarities: The similarities, or a mapping from a name to each.
        path: The file to write: PNG, SVG or PDF.

    Example:
        >>> import numpy as np, tempfile, layerscope as ls
        >>> rows = np.random.default_rng(0).normal(size=(50, 4))
        >>> cka, svcca = ls.compare([rows, rows**2], measure=["cka", "svcca"]).values()
        >>> ls.panels({"CKA": cka, "SVCCA": svcca}, f"{tempfile.mkdtemp()}/both.png")
    """
    named = isinstance(similarities, Mapping)
    each = list(similarities.values() if isinstance(similarities, Mapping) else similarities)
    names = [str(name) for name in similarities] if named else [s.measure for s in each]
    titles = [s.measure if name == s.measure else f"{name}: {s.measure}" for name, s in zip(names, each, strict=True)]
    figures = [replace(s.heatmap(), title=f"{title}, n = {s.n:,}") for s, title in zip(each, titles, strict=True)]
    draw_panels(figures, path)
