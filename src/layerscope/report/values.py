"""Figures as values: what is drawn, with the words beside it, and no drawing library anywhere near.

A figure is a table of columns (what a run folder keeps as Parquet), a few settings (kept as JSON), and its words. A new
kind of figure is a class here, a way to draw it on paper (`paper.py`) and one on the page (`web/`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

import numpy as np

from layerscope.errors import InputError

Columns = dict[str, list[Any]]
Marks = tuple[tuple[str, float], ...]  # lines across a figure, each with its name
_NAN = float("nan")


@dataclass(frozen=True, kw_only=True)
class Figure(ABC):
    """The words of every figure. Figures of one `group` take turns in one place, switched by their `facets`."""

    kind: ClassVar[str] = ""
    title: str
    shows: str  # what is drawn
    reading: str  # how to read it
    caveat: str = ""
    group: str = ""
    facets: Mapping[str, str] = field(default_factory=dict)  # such as {"measure": "cka", "task": "sst2"}

    def words(self) -> dict[str, Any]:
        """The title and what is said beside the figure."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(Figure)}

    @abstractmethod
    def data(self) -> Columns:
        """The values, one list a column."""

    def settings(self) -> dict[str, Any]:
        """What is not a column: names of axes, scales, lines."""
        return {}

    @classmethod
    @abstractmethod
    def restored(cls, words: Mapping[str, Any], settings: Mapping[str, Any], data: Columns) -> Self:
        """The figure of what `words`, `settings` and `data` gave."""


@dataclass(frozen=True)
class Side:
    """One side of a heat map: what it is, and the model and the label of every entry."""

    name: str
    models: tuple[str, ...]
    labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def edges(self) -> list[int]:
        """Where one model ends and the next begins."""
        return [i for i in range(1, len(self)) if self.models[i] != self.models[i - 1]]

    @property
    def full(self) -> list[str]:
        """The labels, with the model where there are several."""
        several = len(set(self.models)) > 1
        return [f"{m}:{label}" if several else label for m, label in zip(self.models, self.labels, strict=True)]


@dataclass(frozen=True, kw_only=True)
class HeatmapFigure(Figure):
    """`values[i, j]` of row i and column j. NaN with a reason is undefined; NaN without one is no cell at all."""

    kind: ClassVar[str] = "heatmap"
    values: np.ndarray
    rows: Side
    columns: Side
    value_name: str
    scale: tuple[float, float]
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    baseline: np.ndarray | None = None
    reasons: Mapping[tuple[int, int], str] = field(default_factory=dict)
    cuts: tuple[int, ...] = ()  # lines before these entries, on both sides
    n: int | None = None

    def __post_init__(self) -> None:
        _same(self.title, self.values.shape, (len(self.rows), len(self.columns)))

    def data(self) -> Columns:
        count = len(self.columns)
        places = [(i, j) for i in range(len(self.rows)) for j in range(count)]
        found: Columns = {
            "row_model": [self.rows.models[i] for i, _ in places],
            "row": [self.rows.labels[i] for i, _ in places],
            "column_model": [self.columns.models[j] for _, j in places],
            "column": [self.columns.labels[j] for _, j in places],
            "value": _floats(self.values),
        }
        for name in ("low", "high", "baseline"):
            if (extra := getattr(self, name)) is not None:
                found[name] = _floats(extra)
        return {**found, "reason": [self.reasons.get(place, "") for place in places]}

    def settings(self) -> dict[str, Any]:
        return {
            "row_name": self.rows.name,
            "column_name": self.columns.name,
            "value_name": self.value_name,
            "scale": list(self.scale),
            "shape": list(self.values.shape),
            "cuts": list(self.cuts),
            "n": self.n,
        }

    @classmethod
    def restored(cls, words: Mapping[str, Any], settings: Mapping[str, Any], data: Columns) -> Self:
        shape = tuple(settings["shape"])
        count = shape[1]
        extras: dict[str, Any] = {
            k: np.asarray(data[k]).reshape(shape) for k in ("low", "high", "baseline") if k in data
        }
        return cls(
            **words,
            values=np.asarray(data["value"], dtype=float).reshape(shape),
            rows=Side(settings["row_name"], tuple(data["row_model"][::count]), tuple(data["row"][::count])),
            columns=Side(settings["column_name"], tuple(data["column_model"][:count]), tuple(data["column"][:count])),
            value_name=settings["value_name"],
            scale=tuple(settings["scale"]),
            reasons={divmod(k, count): reason for k, reason in enumerate(data["reason"]) if reason},
            cuts=tuple(settings["cuts"]),
            n=settings["n"],
            **extras,
        )


@dataclass(frozen=True)
class Series:
    """One curve; NaN where it has no value. `low` and `high` are an interval around it, or None."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for part in (self.y, self.low, self.high):
            if part is not None:
                _same(self.name, (len(part),), (len(self.x),))


@dataclass(frozen=True, kw_only=True)
class CurveFigure(Figure):
    """Curves over one axis, such as the layers; `references` are level lines, `marks` upright ones."""

    kind: ClassVar[str] = "curve"
    series: tuple[Series, ...]
    x_name: str
    y_name: str
    references: Marks = ()
    marks: Marks = ()
    n: int | None = None

    def data(self) -> Columns:
        found: Columns = {"series": [], "x": [], "y": [], "low": [], "high": []}
        for one in self.series:
            gaps = (_NAN,) * len(one.x)
            found["series"] += [one.name] * len(one.x)
            for name, part in (("x", one.x), ("y", one.y), ("low", one.low or gaps), ("high", one.high or gaps)):
                found[name] += map(float, part)
        return found

    def settings(self) -> dict[str, Any]:
        return {**_lines(self), "marks": [list(m) for m in self.marks], "x_name": self.x_name, "n": self.n}

    @classmethod
    def restored(cls, words: Mapping[str, Any], settings: Mapping[str, Any], data: Columns) -> Self:
        series = []
        for name, at in _grouped(data["series"]).items():
            parts = {k: tuple(data[k][i] for i in at) for k in ("x", "y", "low", "high")}
            if all(math.isnan(v) for v in parts["low"]):
                parts = {k: parts[k] for k in ("x", "y")}
            series.append(Series(name, **parts))
        return cls(**words, **_restored_lines(settings, "marks"), series=tuple(series), x_name=settings["x_name"])


@dataclass(frozen=True, kw_only=True)
class BoxFigure(Figure):
    """The spread of several numbers a name, such as the scores of several seeds a strategy."""

    kind: ClassVar[str] = "box"
    boxes: Mapping[str, Sequence[float]]
    y_name: str
    references: Marks = ()
    n: int | None = None

    def data(self) -> Columns:
        pairs = [(name, float(v)) for name, values in self.boxes.items() for v in values]
        return {"name": [name for name, _ in pairs], "value": [value for _, value in pairs]}

    def settings(self) -> dict[str, Any]:
        return {**_lines(self), "n": self.n}

    @classmethod
    def restored(cls, words: Mapping[str, Any], settings: Mapping[str, Any], data: Columns) -> Self:
        boxes = {name: tuple(data["value"][i] for i in at) for name, at in _grouped(data["name"]).items()}
        return cls(**words, **_restored_lines(settings), boxes=boxes)


@dataclass(frozen=True, kw_only=True)
class BarsFigure(Figure):
    """A number a name, with an interval where there is one."""

    kind: ClassVar[str] = "bars"
    names: tuple[str, ...]
    values: tuple[float, ...]
    y_name: str
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    references: Marks = ()
    n: int | None = None

    def __post_init__(self) -> None:
        for part in (self.values, self.low, self.high):
            if part is not None:
                _same(self.title, (len(part),), (len(self.names),))

    def data(self) -> Columns:
        found: Columns = {"name": list(self.names), "value": [float(v) for v in self.values]}
        for name in ("low", "high"):
            if (extra := getattr(self, name)) is not None:
                found[name] = [float(v) for v in extra]
        return found

    def settings(self) -> dict[str, Any]:
        return {**_lines(self), "n": self.n}

    @classmethod
    def restored(cls, words: Mapping[str, Any], settings: Mapping[str, Any], data: Columns) -> Self:
        extras: dict[str, Any] = {k: tuple(data[k]) for k in ("low", "high") if k in data}
        names, values = tuple(data["name"]), tuple(data["value"])
        return cls(**words, **_restored_lines(settings), names=names, values=values, **extras)


@dataclass(frozen=True)
class Point:
    """One point of a scatter plot."""

    x: float
    y: float
    label: str
    series: str
    low: float = _NAN
    high: float = _NAN


@dataclass(frozen=True, kw_only=True)
class ScatterFigure(Figure):
    """Points in series; the series in `joined` are joined by a line, those in `stressed` are drawn large and named."""

    kind: ClassVar[str] = "scatter"
    points: tuple[Point, ...]
    x_name: str
    y_name: str
    joined: tuple[str, ...] = ()
    stressed: tuple[str, ...] = ()
    references: Marks = ()
    n: int | None = None

    def data(self) -> Columns:
        return {f.name: [getattr(point, f.name) for point in self.points] for f in fields(Point)}

    def settings(self) -> dict[str, Any]:
        own = {"x_name": self.x_name, "joined": list(self.joined), "stressed": list(self.stressed), "n": self.n}
        return {**_lines(self), **own}

    @classmethod
    def restored(cls, words: Mapping[str, Any], settings: Mapping[str, Any], data: Columns) -> Self:
        points = tuple(Point(**dict(zip(data, values, strict=True))) for values in zip(*data.values(), strict=True))
        own: dict[str, Any] = {name: tuple(settings[name]) for name in ("joined", "stressed")}
        return cls(**words, **_restored_lines(settings), **own, points=points, x_name=settings["x_name"])


@dataclass(frozen=True, kw_only=True)
class TableFigure(Figure):
    """A table: lists of one length under their headings."""

    kind: ClassVar[str] = "table"
    table: Mapping[str, Sequence[Any]]

    @classmethod
    def of(cls, records: Sequence[Mapping[Any, Any]], **words: Any) -> Self:
        """The table of some records."""
        names = list(records[0]) if records else []
        return cls(table={str(name): [_plain(record[name]) for record in records] for name in names}, **words)

    def data(self) -> Columns:
        return {name: _one_type(list(values)) for name, values in self.table.items()}

    @classmethod
    def restored(cls, words: Mapping[str, Any], settings: Mapping[str, Any], data: Columns) -> Self:
        return cls(**words, table=data)


KINDS: dict[str, type[Figure]] = {
    kind.kind: kind for kind in (HeatmapFigure, CurveFigure, BoxFigure, BarsFigure, ScatterFigure, TableFigure)
}


def _same(title: str, found: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if found != expected:
        raise InputError(f"The values of {title!r} have shape {found}; its names ask for {expected}.")


def _floats(values: np.ndarray) -> list[float]:
    return np.asarray(values, dtype=float).ravel().tolist()


def _plain(value: Any) -> Any:
    """A numpy number as Python's, a mapping as a dict."""
    if isinstance(value, Mapping):
        return dict(value)
    return value.item() if hasattr(value, "item") else value


def _one_type(values: list[Any]) -> list[Any]:
    """Values that Parquet takes: of one type, or else texts."""
    kinds = {type(v) for v in values if v is not None}
    if kinds <= {int, float} and float in kinds:
        return [None if v is None else float(v) for v in values]
    return values if len(kinds) <= 1 else [None if v is None else str(v) for v in values]


def _grouped(names: Sequence[str]) -> dict[str, list[int]]:
    """The places of every name, in the order of first sight."""
    found: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        found.setdefault(name, []).append(place)
    return found


def _lines(figure: Any) -> dict[str, Any]:
    return {"y_name": figure.y_name, "references": [list(r) for r in figure.references]}


def _restored_lines(settings: Mapping[str, Any], *more: str) -> dict[str, Any]:
    lines = {name: tuple((str(n), float(v)) for n, v in settings[name]) for name in ("references", *more)}
    return {**lines, "y_name": settings["y_name"], "n": settings["n"]}
