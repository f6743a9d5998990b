"""The base of all figures. A figure is data: what is drawn, with the words beside it.

It consists of a table of columns (which a record keeps as Parquet), a few settings (kept as JSON), and its words. A new
kind of figure is a class in a file of `figures/`; the page draws kinds that it has no script for as a still picture.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from layerscope.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Columns = dict[str, list[Any]]
Marks = tuple[tuple[str, float], ...]  # lines across a figure, each with its name
NAN = float("nan")


@dataclass(frozen=True, kw_only=True)
class Figure(ABC):
    """The base of figures, with their words. Figures of one `group` share one place, switched by their `facets`."""

    kind: ClassVar[str] = ""
    title: str
    shows: str  # what is drawn
    reading: str  # how to read it
    caveat: str = ""
    group: str = ""
    facets: Mapping[str, str] = field(default_factory=dict)  # such as {"measure": "cka", "task": "sst2"}

    def words(self) -> dict[str, Any]:
        """Return the title and the other texts that stand beside the figure, with its group and facets."""
        return {f.name: plain_value(getattr(self, f.name)) for f in fields(Figure)}

    @abstractmethod
    def data(self) -> Columns:
        """Return the values, one list per column."""

    def settings(self) -> dict[str, Any]:
        """Return what is not a column: names of axes, scales, lines."""
        return {}

    @classmethod
    @abstractmethod
    def restored(cls, words: Mapping[str, Any], settings: Mapping[str, Any], data: Columns) -> Self:
        """Make the figure again from what its `words`, `settings` and `data` returned."""

    @abstractmethod
    def draw(self, ax: Axes) -> Any:
        """Draw the figure into matplotlib's axes."""

    def size(self, width: float | None = None) -> tuple[float, float]:
        """Return width and height in inches, at the width given or at the figure's natural one."""
        chosen = 5.6 if width is None else width
        return chosen, chosen * 0.6


@dataclass(frozen=True)
class HeatmapAxis:
    """One axis of a heat map: its name, and the model and the label of every entry."""

    name: str
    models: tuple[str, ...]
    labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def edges(self) -> list[int]:
        """The entries at which another model begins."""
        return [i for i in range(1, len(self)) if self.models[i] != self.models[i - 1]]


def check_shape(title: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Raise InputError unless a figure has as many values as names."""
    if shape != expected:
        raise InputError(f"The values of {title!r} have shape {shape}; its names ask for {expected}.")


def floats(values: np.ndarray) -> list[float]:
    """Return all entries of an array in order, as Python's floats."""
    return np.asarray(values, dtype=float).ravel().tolist()


def plain_value(value: Any) -> Any:
    """Return a numpy scalar as Python's number and a mapping as a dict; other values as they are."""
    if isinstance(value, Mapping):
        return dict(value)
    return value.item() if hasattr(value, "item") else value


def places_of(names: Sequence[str]) -> dict[str, list[int]]:
    """Return the indices of every name, with names in the order in which they first occur."""
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    return places


def line_settings(figure: Any) -> dict[str, Any]:
    """Return the settings that all figures with level lines have."""
    return {"y_name": figure.y_name, "references": [list(r) for r in figure.references], "n": figure.n}


def restored_lines(settings: Mapping[str, Any], *more: str) -> dict[str, Any]:
    """Return the fields of a figure from what `line_settings` returned; `more` names other settings with lines."""
    lines = {name: tuple((str(n), float(v)) for n, v in settings[name]) for name in ("references", *more)}
    return {**lines, "y_name": settings["y_name"], "n": settings["n"]}
