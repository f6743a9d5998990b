"""Similarity: the matrix of a measure over two lists of layers, with what it is a matrix of."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.errors import DataError, InputError
from layerscope.store import whole_file

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

FORMAT = 1


@dataclass(frozen=True)
class Axis:
    """The layers along one side of a matrix, each of some model."""

    models: tuple[str, ...]  # the model of each entry
    layers: tuple[str, ...]  # the layer of each entry

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def labels(self) -> list[str]:
        """`3`, or `model:3` where there are several models."""
        several = len(set(self.models)) > 1
        return [f"{m}:{layer}" if several else layer for m, layer in zip(self.models, self.layers, strict=True)]

    @property
    def edges(self) -> list[int]:
        """Where one model ends and the next begins."""
        return [i for i in range(1, len(self)) if self.models[i] != self.models[i - 1]]


@dataclass
class Similarity:
    """`values[i, j]` is the measure of row layer i and column layer j; NaN where undefined, with the reason."""

    values: np.ndarray
    row_axis: Axis
    column_axis: Axis
    measure: str
    options: dict[str, Any]
    n: int
    reasons: dict[tuple[int, int], str] = field(default_factory=dict)
    bounds: tuple[float, float] = (0.0, 1.0)
    provenance: dict[str, Any] = field(default_factory=dict)
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    baseline: np.ndarray | None = None
    heads: dict[tuple[int, int], np.ndarray] | None = None  # of attention, by head: (heads of i, heads of j) a cell

    @property
    def matches(self) -> dict[tuple[int, int], np.ndarray]:
        """Of attention: for each head of row layer i the head (from 0) of column layer j most like it; -1 if none."""
        if self.heads is None:
            raise InputError(f"{self.measure} does not match attention heads; attention_norm, _pearson and _js do.")
        return {cell: matched(values) for cell, values in self.heads.items()}

    @property
    def rows(self) -> list[str]:
        return self.row_axis.labels

    @property
    def columns(self) -> list[str]:
        return self.column_axis.labels

    def to_frame(self) -> pandas.DataFrame:
        """A tidy table: a row a pair of layers."""
        import pandas

        records = []
        for i in range(len(self.row_axis)):
            for j in range(len(self.column_axis)):
                record = {
                    "row_model": self.row_axis.models[i],
                    "row_layer": self.row_axis.layers[i],
                    "column_model": self.column_axis.models[j],
                    "column_layer": self.column_axis.layers[j],
                    "measure": self.measure,
                    "value": float(self.values[i, j]),
                }
                for name in ("low", "high", "baseline"):
                    extra = getattr(self, name)
                    record[name] = math.nan if extra is None else float(extra[i, j])
                records.append({**record, "n": self.n, "reason": self.reasons.get((i, j), "")})
        return pandas.DataFrame(records)

    def save(self, path: str | Path) -> Path:
        """Write the tidy table as Parquet, with everything else in its metadata."""
        import pyarrow
        import pyarrow.parquet

        card = {
            "format": FORMAT,
            "measure": self.measure,
            "options": self.options,
            "n": self.n,
            "bounds": self.bounds,
            "provenance": self.provenance,
            "shape": self.values.shape,
            "extras": [name for name in ("low", "high", "baseline") if getattr(self, name) is not None],
        }
        table = pyarrow.Table.from_pandas(self.to_frame(), preserve_index=False)
        if self.heads is not None:
            cells = [self.heads[cell].tolist() for cell in np.ndindex(self.values.shape)]
            table = table.append_column("heads", pyarrow.array(cells))
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as temporary:
            pyarrow.parquet.write_table(table.replace_schema_metadata({"layerscope": json.dumps(card)}), temporary)
        return path

    @staticmethod
    def load(path: str | Path) -> Similarity:
        """The similarity in a Parquet file that `save` wrote."""
        import pyarrow
        import pyarrow.parquet

        try:
            table = pyarrow.parquet.read_table(path)
            card = json.loads((table.schema.metadata or {})[b"layerscope"])
        except (OSError, KeyError, ValueError, pyarrow.ArrowInvalid) as error:
            raise DataError(f"{path} is not a similarity that layerscope saved.") from error
        if card["format"] != FORMAT:
            raise DataError(f"{path} is in format {card['format']}; this version reads format {FORMAT}.")
        frame = table.to_pandas()
        rows, columns = card["shape"]
        first, top = frame.iloc[::columns], frame.iloc[:columns]
        reasons = {divmod(k, columns): reason for k, reason in enumerate(frame["reason"]) if reason}
        return Similarity(
            frame["value"].to_numpy().reshape(rows, columns),
            Axis(tuple(first["row_model"]), tuple(first["row_layer"])),
            Axis(tuple(top["column_model"]), tuple(top["column_layer"])),
            card["measure"],
            card["options"],
            card["n"],
            reasons,
            tuple(card["bounds"]),
            card["provenance"],
            **{name: frame[name].to_numpy().reshape(rows, columns) for name in card["extras"]},
            heads={divmod(k, columns): np.stack(list(cell)) for k, cell in enumerate(frame["heads"])}
            if "heads" in frame
            else None,
        )

    def plot(self, path: str | Path | None = None, ax: Axes | None = None) -> Axes:
        """A heat map with layer 0 at the origin; written to `path` (PNG, SVG or PDF) if one is given."""
        from layerscope.measures.heatmap import draw

        return draw(self, path, ax)

    def plot_heads(
        self, row: int | str, column: int | str, path: str | Path | None = None, ax: Axes | None = None
    ) -> Axes:
        """Every attention head of one layer with every head of another, the matches marked; layers by their labels."""
        from layerscope.measures.heatmap import draw_heads

        return draw_heads(
            self, self._place(row, self.rows, "row"), self._place(column, self.columns, "column"), path, ax
        )

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
    """Several heat maps side by side on one colour scale, under the names of a mapping if one is given."""
    from layerscope.measures.heatmap import draw_panels

    named = isinstance(similarities, Mapping)
    each = list(similarities.values() if isinstance(similarities, Mapping) else similarities)
    draw_panels(each, path, [str(name) for name in similarities] if named else None)
