"""A figure as data: what is drawn, with the words beside it.

A figure is a table of columns (what a record keeps as Parquet), a few settings (kept as JSON), and its words. A new
kind of figure is a class in a file of `figures/`; the page draws kinds that it has no script for as a still picture.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from layerscope.errors import InputError
from layerscope.registry import Registry

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Columns = dict[str, list[Any]]
Marks = tuple[tuple[str, float], ...]  # lines across a figure, each with its name
NAN = float("nan")


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
        return {f.name: plain_value(getattr(self, f.name)) for f in fields(Figure)}

    @abstractmethod
    def data(self) -> Columns:
        """The values, one list per column."""

    def settings(self) -> dict[str, Any]:
        """What is not a column: names of axes, scales, lines."""
        return {}

    @classmethod
    @abstractmethod
    def restored(cls, words: Mapping[str, Any], settings: Mapping[str, Any], data: Columns) -> Self:
        """The figure of what `words`, `settings` and `data` gave."""

    @abstractmethod
    def draw(self, ax: Axes) -> Any:
        """Paint the figure into matplotlib's axes."""

    def size(self, width: float | None = None) -> tuple[float, float]:
        """Width and height in inches, of a figure of that width or of its natural one."""
        chosen = 5.6 if width is None else width
        return chosen, chosen * 0.6


KINDS: Registry[Figure] = Registry("layerscope.drawing.figures", "kind of figure", "kind")


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


def check_shape(title: str, given: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Raise unless a figure has as many values as names."""
    if given != expected:
        raise InputError(f"The values of {title!r} have shape {given}; its names ask for {expected}.")


def floats(values: np.ndarray) -> list[float]:
    """All entries in order, as Python's numbers."""
    return np.asarray(values, dtype=float).ravel().tolist()


def plain_value(value: Any) -> Any:
    """A numpy number as Python's, a mapping as a dict."""
    if isinstance(value, Mapping):
        return dict(value)
    return value.item() if hasattr(value, "item") else value


def places_of(names: Sequence[str]) -> dict[str, list[int]]:
    """The places of every name, in the order of first sight."""
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    return places


def line_settings(figure: Any) -> dict[str, Any]:
    """The settings of figures with level lines."""
    return {"y_name": figure.y_name, "references": [list(r) for r in figure.references], "n": figure.n}


def restored_lines(settings: Mapping[str, Any], *more: str) -> dict[str, Any]:
    """What `line_settings` gave."""
    lines = {name: tuple((str(n), float(v)) for n, v in settings[name]) for name in ("references", *more)}
    return {**lines, "y_name": settings["y_name"], "n": settings["n"]}
