"""Cards: the places of a page, each with a figure or with several that take turns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from layerscope.drawing.figure import Figure
from layerscope.drawing.figures.heatmap import HeatmapFigure
from layerscope.drawing.figures.table import TableFigure

DRAWN = ("heatmap", "curve", "box", "bars", "scatter")  # kinds that the page's script knows
NARROW = 6  # columns of a table that fits into half of the page


@dataclass(frozen=True)
class Card:
    """One place on the page: a figure, or several that take turns."""

    name: str
    figures: Sequence[Figure]

    @property
    def first(self) -> Figure:
        return self.figures[0]

    @property
    def title(self) -> str:
        return self.first.group if len(self.figures) > 1 else self.first.title

    @property
    def facets(self) -> dict[str, list[str]]:
        """What can be switched, with the values that occur."""
        names = dict.fromkeys(name for figure in self.figures for name in figure.facets)
        known = {n: list(dict.fromkeys(f.facets[n] for f in self.figures if n in f.facets)) for n in names}
        return {name: values for name, values in known.items() if len(values) > 1}

    @property
    def drawn_by_script(self) -> bool:
        """Whether the page's script draws it; other kinds are shown as a still picture."""
        return self.first.kind in DRAWN

    @property
    def upright(self) -> bool:
        """Whether it is a table of one row and many columns, which is shown with its columns below one another."""
        if not isinstance(self.first, TableFigure) or len(self.first.table) <= NARROW:
            return False
        return len(next(iter(self.first.table.values()))) == 1

    @property
    def wide(self) -> bool:
        """Whether it takes the page's whole width."""
        widest = max((len(f.columns) for f in self.figures if isinstance(f, HeatmapFigure)), default=0)
        if isinstance(self.first, TableFigure):
            return len(self.first.table) > NARROW and not self.upright
        return widest > 14


def cards(figures: Iterable[Figure], prefix: str = "record") -> list[Card]:
    """Figures of one kind and group share a card."""
    groups: dict[tuple[str, ...], list[Figure]] = {}
    for k, figure in enumerate(figures):
        key = (figure.kind, figure.group) if figure.group and figure.kind != "table" else (str(k),)
        groups.setdefault(key, []).append(figure)
    return [Card(f"{prefix}-figure-{k + 1}", group) for k, group in enumerate(groups.values())]
