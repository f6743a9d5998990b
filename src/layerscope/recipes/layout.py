"""Layouts: how the results of a paper's experiments are put together into its figures and tables, as data in recipes.

A figure is a grid of panels. `rows` and `columns` name what an experiment runs over (`model`, `task`), or give a list
under a name (`{measure: $measures}`; `{pair: {FT-FT: ft_ft}}` with titles), by which `of` and `where` can then refer to
it (`states.{measure}`). What else the experiment runs over, such as seeds, is pooled within a panel: curves, heat maps
and points are averaged, and boxes take in every value. What could not be run is an empty panel, or an empty cell of a
table, with its reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, model_validator

from layerscope.drawing.figures.grid import (
    BOX,
    CELL,
    DASHED,
    FIT,
    LEVEL,
    LINE,
    POINT,
    REASON,
    RIGHT,
    X_TICK,
    Y_TICK,
    GridFigure,
    Item,
)
from layerscope.drawing.figures.table import TableFigure
from layerscope.errors import InputError
from layerscope.probing.specialty import smoothness
from layerscope.results import Curve

if TYPE_CHECKING:
    import pandas

    from layerscope.recipes.experiment_run import ExperimentRun
    from layerscope.recipes.recipe import Experiment, Profile, Recipe

Side = str | dict[str, Any]
DASH = "-"  # in an empty cell of a table
_RECORDS = "records"
_LARGE = 10_000  # numbers from here on are counts, which are written out
_NOT_ASKED = "not among what was asked for"
_NO_OTHER = "nothing of that kind was asked for: the paper has it for another model or task"


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Mark(_Data):
    """What is drawn in every panel, of one table of an experiment: `call.table`, or `call` where it has one alone."""

    kind: Literal["heatmap", "line", "level", "points", "scatter", "box"]
    of: str
    beside: str = ""  # of a scatter plot: the table with the other side
    x: str = "layer"
    y: str = ""  # of curves over layers: the column after the layer's, if not given
    value: str = "value"  # of heat maps
    by: str = ""  # a column, or what the experiment runs over: one series for each of its values
    name: str = ""  # of the series, where there is no `by`
    label: str = ""  # a column with the names of points
    where: dict[str, Any] = {}  # rows that are taken: a value of a column, or a list of values
    right: bool = False  # on the panel's second axis
    dashed: bool = False
    suffix: str = ""  # after the names of the series
    part: str = ""  # only in panels of this value of a side's list


class _Layout(_Data):
    experiment: str
    title: str = ""  # the experiment's own if not given
    finds: str = ""  # what the paper finds there, in our words
    asks: str = ""  # where we cannot say what it finds: what it asks, as `whether ...`
    only: dict[str, list[str | list[str]]] = {}  # of what the experiment runs over: see `_taken`
    besides: dict[str, list[str | list[str]]] = {}  # what a sister figure takes, so that `only` is of what it leaves

    @model_validator(mode="after")
    def _has_one_statement(self) -> _Layout:
        if bool(self.finds) == bool(self.asks):
            raise ValueError(f"{self.experiment}: a layout has either `finds` or `asks`")
        return self

    @property
    def statement(self) -> str:
        """What the paper says there, in a sentence of ours."""
        return f"The paper finds: {self.finds}" if self.finds else f"The paper asks {self.asks}"


class FigureLayout(_Layout):
    """A figure of a paper. `{task}` in a title stands for the tasks that it takes."""

    rows: Side | None = None
    columns: Side | None = None
    marks: tuple[Mark, ...]
    x_name: str = ""
    y_name: str = ""
    x_names: tuple[str, ...] = ()  # of each column, where these show different things
    y_names: tuple[str, ...] = ()
    right_name: str = ""
    value_name: str = ""
    scale: tuple[float, float] | None = None

    @property
    def calls(self) -> set[str]:
        """The calls whose results it shows."""
        return {of.partition(".")[0] for mark in self.marks for of in (mark.of, mark.beside) if of}


class TableLayout(_Layout):
    """A table of a paper: means of `values` over all that is neither in `index` nor in `across`, with a deviation."""

    of: str | dict[str, str]  # a table; or, with `statistic`, several curves by the names of the rows
    against: str = ""
    statistic: Literal["", "correlation", "zeta"] = ""
    index: tuple[str, ...]
    across: tuple[str, ...]
    values: tuple[str, ...] = ("value",)
    interval: tuple[str, ...] = ()  # the columns with the bounds of the one value's interval
    named: dict[str, str] = {}  # what a column is called here, whatever is in it
    error: str = ""  # a column with the standard error over `seeds`, where rows are means over these already
    where: dict[str, Any] = {}
    rows: dict[str, str] = {}  # rows of the paper that are those of another method here, as {pwcca: cca}
    more: tuple[dict[str, Any], ...] = ()  # further values, of another experiment: what differs in the layout
    note: str = ""

    @property
    def calls(self) -> set[str]:
        """The calls whose results it shows."""
        every = list(self.of.values()) if isinstance(self.of, dict) else [self.of]
        return {of.partition(".")[0] for of in every}


Layout = FigureLayout | TableLayout


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper: `frame` has one row per cell, with mean, deviation, how many were averaged, or the reason.

    Where values have intervals, `low` and `high` are that of the mean.
    """

    number: str
    title: str
    shows: str  # what the paper says there
    frame: pandas.DataFrame
    index: tuple[str, ...]
    across: tuple[str, ...]
    note: str = ""

    def wide(self) -> pandas.DataFrame:
        """Return it as the paper has it: texts `mean ± deviation [low, high]`, and a dash where a cell is empty."""
        import pandas

        texts = self.frame.assign(cell=[_cell(row) for row in self.frame.to_dict("records")])
        keys = [tuple(map(str, row)) for row in self.frame[list(self.index)].to_numpy()]
        heads = [" · ".join(map(str, row)) for row in self.frame[list(self.across)].to_numpy()]
        cells = {(key, head): text for key, head, text in zip(keys, heads, texts["cell"], strict=True)}
        columns = list(dict.fromkeys(heads))
        lines = [[*key, *(cells.get((key, head), DASH) for head in columns)] for key in dict.fromkeys(keys)]
        return pandas.DataFrame(lines, columns=[*self.index, *columns])

    @property
    def reasons(self) -> dict[str, str]:
        """Why cells are empty, each reason with the first of its cells."""
        empty = self.frame[self.frame["reason"] != ""]
        found: dict[str, list[str]] = {}
        for row in empty.to_dict("records"):
            keys = (*self.index, *self.across)
            place = ", ".join(str(row[n]) for n in keys if isinstance(row[n], str) and row[n]) or "all"
            found.setdefault(row["reason"], []).append(place)
        return {
            why: f"{places[0]}{f' and {len(places) - 1} more' if places[1:] else ''}" for why, places in found.items()
        }

    def figure(self) -> TableFigure:
        """Return it as a figure, for records and notebooks."""
        wide = self.wide()
        table = {str(name): wide[name].tolist() for name in wide}
        return TableFigure(title=self.title, shows=self.shows, reading="", table=table)


@dataclass
class Assembly:
    """The figures and tables of a paper, put together from experiments that have been run."""

    recipe: Recipe
    asked: Profile  # with what cannot be opened here too
    chosen: Sequence[Experiment]
    done: Sequence[tuple[ExperimentRun, Path]]
    missing: Mapping[str, str]
    _frames: dict[tuple[Path, str], Any] = field(default_factory=dict)

    def figures(self) -> dict[str, GridFigure]:
        """Return every figure of the experiments that were chosen, by its number in the paper."""
        known = {e.name for e in self.chosen}
        layouts = self.recipe.figures.items()
        return {number: self._figure(number, layout) for number, layout in layouts if layout.experiment in known}

    def tables(self) -> dict[str, PaperTable]:
        """Return every table of the experiments that were chosen, by its number in the paper."""
        known = {e.name for e in self.chosen}
        layouts = self.recipe.tables.items()
        return {number: self._table(number, layout) for number, layout in layouts if layout.experiment in known}

    # Figures

    def _figure(self, number: str, layout: FigureLayout) -> GridFigure:
        rows, columns = (self._side(side, layout) for side in (layout.rows, layout.columns))
        items: list[Item] = []
        for i, row in enumerate(rows.values()):
            for j, column in enumerate(columns.values()):
                place = {**row, **column}
                panel = [item for mark in layout.marks for item in self._marks(mark, layout, place, (i, j))]
                items += panel or [Item(i, j, REASON, label=self._reason(layout, place))]
        if not rows or not columns:
            rows, columns, items = {"": {}}, {"": {}}, [Item(0, 0, REASON, label=_NO_OTHER)]
        by_column = bool(columns) and columns != {"": {}}  # not where one empty panel stands for all
        values = [item.value for item in items if item.mark == CELL and not math.isnan(item.value)]
        scale = layout.scale or ((min(values), max(values)) if values and min(values) < max(values) else (0.0, 1.0))
        return GridFigure(
            title=title_of(number, self._title(layout)),
            shows=layout.statement,
            reading="An empty panel has its reason in it.",
            row_names=tuple(rows),
            column_names=tuple(columns),
            items=tuple(items),
            x_name=layout.x_name,
            y_name=layout.y_name,
            x_names=layout.x_names if by_column else (),
            y_names=layout.y_names if by_column else (),
            right_name=layout.right_name,
            value_name=layout.value_name,
            scale=scale if any(mark.kind == "heatmap" for mark in layout.marks) else None,
        )

    def _side(self, side: Side | None, layout: _Layout) -> dict[str, dict[str, Any]]:
        """Return the places along one side of a grid, by their names: what is the same in each of its panels."""
        if side is None:
            return {"": {}}
        if isinstance(side, str):
            return {in_words(value): {side: value} for value in self._values(side, layout)}
        ((name, values),) = side.items()
        if isinstance(values, str):  # a setting of the profile
            values = self.asked.settings[values.removeprefix("$")]
        named = values if isinstance(values, dict) else {str(value): value for value in values}
        return {label: {name: value} for label, value in named.items()}

    def _values(self, name: str, layout: _Layout) -> list[Any]:
        """Return what the experiment of a layout runs over under a name, as far as the layout takes it in."""
        experiment = self._experiment(layout)
        if name not in experiment.over:
            raise InputError(f"A layout of {self.recipe.paper} has {name}, which {experiment.name} does not run over.")
        values = self.asked.values(experiment.over[name], f"{experiment.name}: {name}")
        besides = _taken(values, layout.besides[name]) if name in layout.besides else []
        values = [value for value in values if value not in besides]
        return _taken(values, layout.only[name]) if name in layout.only else values

    def _title(self, layout: _Layout) -> str:
        """Return the title of a figure or table, with the names of what it takes where the title has them."""
        title = layout.title or self._experiment(layout).title
        for name in layout.only:
            title = title.replace(f"{{{name}}}", ", ".join(map(in_words, self._values(name, layout))) or "none")
        return title

    def _experiment(self, layout: _Layout) -> Experiment:
        return next(e for e in self.chosen if e.name == layout.experiment)

    def _runs(self, layout: _Layout, place: Mapping[str, Any]) -> Iterator[tuple[ExperimentRun, Path]]:
        """Yield the runs of a layout's experiment that a panel or cell is made of."""
        over = self._experiment(layout).over
        for run, folder in self.done:
            if run.experiment.name != layout.experiment:
                continue
            same = all(run.chosen[name] == value for name, value in place.items() if name in over)
            if same and all(
                run.chosen[name] in self._values(name, layout) for name in {**layout.only, **layout.besides}
            ):
                yield run, folder

    def _frame(self, of: str, layout: _Layout, place: Mapping[str, Any]) -> pandas.DataFrame | None:
        """Return a table of all runs of a place, with what they ran over as columns; None where there is none."""
        import pandas

        call, _, table = of.format_map(_Texts(place)).partition(".")
        parts = []
        for run, folder in self._runs(layout, place):
            frame = self._read(folder / _RECORDS / call / f"{table or call}.parquet")
            if frame is not None:
                known = {**run.chosen, "experiment": run.experiment.title}
                own = {name: in_words(value) for name, value in known.items() if name not in frame}
                parts.append(frame.assign(**own, _run=run.label))
        return pandas.concat(parts, ignore_index=True) if parts else None

    def _read(self, path: Path) -> Any:
        import pandas

        if (path, "") not in self._frames:
            self._frames[path, ""] = pandas.read_parquet(path) if path.is_file() else None
        return self._frames[path, ""]

    def _marks(self, mark: Mark, layout: _Layout, place: Mapping[str, Any], at: tuple[int, int]) -> Iterator[Item]:
        if mark.part and mark.part not in place.values():
            return
        frame = self._frame(mark.of, layout, place)
        if frame is None:
            return
        frame, mark = _where(frame, mark.where, place), mark.model_copy(update={"y": mark.y.format_map(_Texts(place))})
        if not mark.y and "layer" in frame and mark.kind != "scatter":
            mark = mark.model_copy(update={"y": _value_of(frame)})
        if not len(frame):
            return
        if mark.kind == "heatmap":
            yield from self._cells(frame, mark, at)
        elif mark.kind == "scatter":
            beside = self._frame(mark.beside, layout, place)
            if beside is not None:
                yield from _scatter(frame, beside, mark, at)
        elif mark.kind == "level":
            yield Item(*at, LEVEL, mark.name, y=float(frame[mark.y].mean()))
        else:
            names = frame[mark.by].map(self._short) if mark.by else np.repeat(mark.name or mark.y, len(frame))
            if mark.kind != "points" and frame[mark.x].dtype.kind not in "if":  # as the settings of a study
                labels = list(dict.fromkeys(frame[mark.x]))
                yield from (Item(*at, X_TICK, x=float(k), label=str(label)) for k, label in enumerate(labels))
                frame = frame.assign(**{mark.x: frame[mark.x].map(labels.index)})
            for name, part in frame.groupby(np.asarray(names, dtype=object), sort=False):
                yield from _series(part, mark, f"{name}{mark.suffix}", at)

    def _cells(self, frame: pandas.DataFrame, mark: Mark, at: tuple[int, int]) -> Iterator[Item]:
        """Yield the cells of a heat map, averaged over the runs, and the ticks of its sides."""
        similarity = "row_layer" in frame
        sides = [["column_model", "column_layer"], ["row_model", "row_layer"]] if similarity else [[mark.x], [mark.y]]
        places = []
        for side, tick in zip(sides, (X_TICK, Y_TICK), strict=True):
            first = frame[frame["_run"] == frame["_run"].iloc[0]]
            keys = list(dict.fromkeys(first[side].itertuples(index=False, name=None)))
            places.append({key: k for k, key in enumerate(keys)})
            for key, k in places[-1].items():
                model = self._short(key[0]) if similarity else ""
                yield Item(*at, tick, model, x=float(k), label=str(key[-1]))
        sums: dict[tuple[int, int], list[float]] = {}
        reasons: dict[tuple[int, int], str] = {}
        # Runs that are pooled have the same layers in the same order; their models may be called otherwise.
        for _, part in frame.groupby("_run", sort=False):
            keys = [list(dict.fromkeys(part[side].itertuples(index=False, name=None))) for side in sides]
            own = [{key: k for k, key in enumerate(side)} for side in keys]
            for row in part.to_dict("records"):
                cell = tuple(own[k][tuple(row[name] for name in side)] for k, side in enumerate(sides))
                sums.setdefault((cell[0], cell[1]), []).append(float(row[mark.value]))
                if row.get("reason"):
                    reasons[cell[0], cell[1]] = str(row["reason"])
        for (x, y), numbers in sums.items():
            value = float(np.mean(numbers))
            yield Item(*at, CELL, x=x, y=y, value=value, label=reasons.get((x, y), "") if math.isnan(value) else "")

    def _short(self, name: Any) -> str:
        """Return the name of a model with the profile's short names in place of sources."""
        text = str(name)
        for short, model in sorted(self.asked.models.items(), key=lambda pair: -len(pair[1].source)):
            text = text.replace(model.source, short)
        return text

    def _reason(self, layout: _Layout, place: Mapping[str, Any]) -> str:
        """Return why nothing is there for a place."""
        for value in place.values():
            for part in value if isinstance(value, (list, tuple)) else [value]:
                if str(part) in self.missing:
                    return f"{part}: {self.missing[str(part)]}"
        words = [in_words(value) for value in place.values()]
        head = f"{self.recipe.paper} {layout.experiment} ("
        for name, why in self.missing.items():
            if name.startswith(head) and all(word in name for word in words):
                return why
        if not any(True for _ in self._runs(layout, place)):
            return "nothing of it was run here" if layout.only or layout.besides else "it was not run"
        return _NOT_ASKED

    # Tables

    def _table(self, number: str, layout: TableLayout) -> PaperTable:
        import pandas

        over = self._experiment(layout).over
        names = [name for name in (*layout.index, *layout.across) if name in over]
        rows: list[dict[str, Any]] = []
        for values in product(*(self._values(name, layout) for name in names)):
            place = dict(zip(names, values, strict=True))
            found = [row for part in self._parts(layout) for row in self._averaged(part, place)]
            plain = {name: in_words(value) for name, value in place.items()}
            rows += [{**plain, **row, "reason": ""} for row in found]
            if not found:
                rows.append({**plain, "reason": self._reason(layout, place)})
        if not rows:
            rows.append({"reason": _NO_OTHER})
        first = layout.index[-1]
        for name, other in layout.rows.items():
            if not any(row.get(first) == name for row in rows):
                rows.append({first: name, "reason": f"{other} was not among the methods"})
        bounds = ["low", "high"] if layout.interval else []
        columns = [*layout.index, *layout.across, "mean", "deviation", *bounds, "n", "reason"]
        frame = pandas.DataFrame(rows).reindex(columns=list(dict.fromkeys(columns)))
        frame = self._filled(frame, layout)
        title = title_of(number, self._title(layout))
        return PaperTable(number, title, layout.statement, frame, layout.index, layout.across, layout.note)

    def _parts(self, layout: TableLayout) -> list[TableLayout]:
        """Return a layout and what it has of other experiments, as far as these were chosen."""
        known = {e.name for e in self.chosen}
        others = [layout.model_copy(update=more) for more in layout.more]
        return [layout, *(other for other in others if other.experiment in known)]

    def _averaged(self, layout: TableLayout, place: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the cells of a table that the runs of a place make."""
        import pandas

        if isinstance(layout.of, dict):
            frame = self._statistics(layout, place)
        else:
            frame = self._frame(layout.of, layout, place)
            frame = None if frame is None else _where(frame, layout.where, place)
            if frame is not None and layout.rows:
                first = layout.index[-1]
                own = [frame[frame[first] == other].assign(**{first: name}) for name, other in layout.rows.items()]
                frame = pandas.concat([frame, *own], ignore_index=True)
        if frame is None or not len(frame):
            return
        frame = frame.assign(**layout.named)
        values = [name for name in layout.values if name in frame]
        several = "quantity" in layout.across
        groups = [n for n in (*layout.index, *layout.across) if n not in place and n in frame]
        for key, part in frame.groupby(groups, sort=False) if groups else [((), frame)]:
            named: dict[str, Any] = dict(zip(groups, key if isinstance(key, tuple) else (key,), strict=True))
            for name in values:
                numbers = part[name].dropna()
                if len(numbers):
                    deviation = numbers.std()
                    if layout.error:  # a standard error over seeds, which the table has in one row
                        deviation = (part[layout.error] * part["seeds"] ** 0.5).mean()
                    quantity = {"quantity": name} if several else {}
                    bounds = _interval(part, name, layout.interval) if layout.interval else {}
                    averaged = {"mean": numbers.mean(), "deviation": deviation, **bounds, "n": len(numbers)}
                    yield {**named, **quantity, **averaged}

    def _statistics(self, layout: TableLayout, place: Mapping[str, Any]) -> pandas.DataFrame | None:
        """Return a statistic of curves over the layers 1 to L, one row per curve and run."""
        import pandas

        assert isinstance(layout.of, dict)
        rows = []
        for name, of in layout.of.items():
            frame = self._frame(of, layout, place)
            against = self._frame(layout.against, layout, place) if layout.against else None
            if frame is None or (layout.against and against is None):
                continue
            for run, part in frame.groupby("_run", sort=False):
                curve = _curve(part)
                if against is not None:
                    other = _curve(against[against["_run"] == run])
                    both = [layer for layer in curve if layer in other]
                    value = _correlation([curve[k] for k in both], [other[k] for k in both])
                else:
                    value = smoothness(Curve(name, [name] * len(curve), list(curve), np.asarray(list(curve.values()))))
                rows.append({layout.index[-1]: name, "value": value})
        return pandas.DataFrame(rows) if rows else None

    def _filled(self, frame: pandas.DataFrame, layout: TableLayout) -> pandas.DataFrame:
        """Return a table in which rows and columns that occur meet everywhere, with a reason where nothing is there."""
        import pandas

        keys = [*layout.index, *layout.across]
        told = frame[frame["mean"].notna()]
        empty = frame[frame["mean"].isna()]
        if not len(told):
            return frame.astype(dict.fromkeys(keys, object)).fillna(dict.fromkeys(keys, ""))
        index = told[list(layout.index)].drop_duplicates()
        heads = told[list(layout.across)].drop_duplicates()
        for name in layout.across:  # what was not run has its column, too
            for row in empty.to_dict("records"):
                if isinstance(row[name], str) and row[name] not in set(heads[name]):
                    like = heads[heads[name] == heads[name].iloc[0]].assign(**{name: row[name]})
                    heads = pandas.concat([heads, like], ignore_index=True)
        for row in empty.to_dict("records"):
            known = {name: row[name] for name in layout.index if isinstance(row[name], str)}
            if known and not any(all(r[n] == v for n, v in known.items()) for r in index.to_dict("records")):
                index = pandas.concat([index, pandas.DataFrame([{**dict.fromkeys(layout.index, ""), **known}])])
        whole = index.merge(heads, how="cross").merge(told, on=keys, how="left")
        reasons = []
        for row in whole.to_dict("records"):
            if not math.isnan(row["mean"]):
                reasons.append("")
                continue
            same = [
                e["reason"]
                for e in empty.to_dict("records")
                if all(e[n] == row[n] for n in keys if isinstance(e[n], str))
            ]
            reasons.append(same[0] if same else "this model or task does not have it")
        return whole.assign(reason=reasons)


class _Texts(dict[str, Any]):
    """The values of a place in words, for `{measure}` in a layout."""

    def __missing__(self, name: str) -> str:
        raise InputError(f"A layout refers to {{{name}}}, which is not a name of its rows or columns.")


def _taken(values: list[Any], choices: Sequence[str | list[str]]) -> list[Any]:
    """Return what the first choice takes that takes anything.

    A choice is a name, a list of names (those of them that are there), or a place: `0`, or `1:` from there on.
    """
    for choice in choices:
        if isinstance(choice, str) and choice.rstrip(":").isdecimal():
            start = int(choice.rstrip(":"))
            taken = values[start:] if choice.endswith(":") else values[start : start + 1]
        else:
            names = choice if isinstance(choice, list) else [choice]
            taken = [value for value in values if value in names]
        if taken:
            return taken
    return []


def _where(frame: pandas.DataFrame, where: Mapping[str, Any], place: Mapping[str, Any]) -> pandas.DataFrame:
    for name, value in where.items():
        if value == "positive":
            frame = frame[frame[name] > 0]
            continue
        wanted = value if isinstance(value, list) else [value]
        texts = [str(part).format_map(_Texts(place)) for part in wanted]
        if name in frame:
            frame = frame[frame[name].astype(str).isin(texts)]
    return frame


def _series(part: pandas.DataFrame, mark: Mark, name: str, at: tuple[int, int]) -> Iterator[Item]:
    """Yield one series: every value of boxes, and the mean of lines and points with the deviation over runs."""
    label = RIGHT if mark.right else DASHED if mark.dashed else ""
    if mark.kind == "box":
        for x, y in zip(part[mark.x], part[mark.y], strict=True):
            yield Item(*at, BOX, name, x=float(x), y=float(y))
        return
    if mark.kind == "points":
        for text, rows in part.groupby(mark.label, sort=False):
            yield Item(*at, POINT, name, x=float(rows[mark.x].mean()), y=float(rows[mark.y].mean()), label=str(text))
        return
    for x, rows in part.astype({mark.x: float}).groupby(mark.x, sort=True):
        y = rows[mark.y].astype(float)
        spread = float(y.std()) if len(y) > 1 else math.nan
        low, high = float(y.mean()) - spread, float(y.mean()) + spread
        yield Item(*at, LINE, name, x=float(str(x)), y=float(y.mean()), low=low, high=high, label=label)


def _scatter(frame: pandas.DataFrame, beside: pandas.DataFrame, mark: Mark, at: tuple[int, int]) -> Iterator[Item]:
    """Yield a point per layer 1 to L of two curves, with the fitted line and their correlation."""
    y = mark.y or _value_of(beside)
    scored = beside[["layer", "_run", y]].rename(columns={y: "_y"})
    sides = frame[frame["layer"] > 0].merge(scored, on=["layer", "_run"])
    pairs = sides[[mark.x, "_y"]].astype(float).dropna().to_numpy()
    for first, second in pairs:
        yield Item(*at, POINT, mark.name, x=float(first), y=float(second))
    if len(pairs) > 2 and np.ptp(pairs[:, 0]) > 0:
        slope, start = np.polyfit(pairs[:, 0], pairs[:, 1], 1)
        rho = _correlation(list(pairs[:, 0]), list(pairs[:, 1]))
        for x in (pairs[:, 0].min(), pairs[:, 0].max()):
            yield Item(*at, FIT, "fitted line", x=float(x), y=float(start + slope * x), label=f"rho = {rho:.3f}")


def _curve(frame: pandas.DataFrame) -> dict[int, float]:
    """Return the values of a curve over the layers 1 to L; its column is the one after the layers'."""
    value = _value_of(frame)
    numbers = zip(frame["layer"].astype(int), frame[value].astype(float), strict=True)
    return {layer: number for layer, number in numbers if layer > 0 and not math.isnan(number)}


def _value_of(frame: pandas.DataFrame) -> str:
    """Return the column with a curve's values: the one after the layers."""
    return str(frame.columns[list(frame.columns).index("layer") + 1])


def _interval(part: pandas.DataFrame, value: str, bounds: Sequence[str]) -> dict[str, float]:
    """Return the interval of a mean of values with intervals of their own; half-widths add as for independent errors.

    It is that of the value itself where there is one. It is NaN where any value has none.
    """
    values, low, high = (part.dropna(subset=[value])[name].astype(float).to_numpy() for name in (value, *bounds))
    mean = values.mean()
    below, above = (float(np.sqrt(((bound - values) ** 2).sum())) / len(values) for bound in (low, high))
    return {"low": mean - below, "high": mean + above}


def _correlation(x: Sequence[float], y: Sequence[float]) -> float:
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    return float(np.corrcoef(x, y)[0, 1])


def _cell(row: Mapping[Any, Any]) -> str:
    if row["reason"]:
        return DASH
    spread = "" if math.isnan(row["deviation"]) else f" ± {row['deviation']:.3g}"
    if not math.isnan(row.get("low", math.nan)):
        spread += f" [{row['low']:.3g}, {row['high']:.3g}]"
    return f"{row['mean']:,.0f}{spread}" if abs(row["mean"]) >= _LARGE else f"{row['mean']:.4g}{spread}"


def in_words(value: Any) -> str:
    """Return a value that an experiment runs over in words; the parts of a pair are joined."""
    return " and ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def title_of(number: str, title: str) -> str:
    """Return `Figure 2. The title` for `fig2`, and the title alone for what has no number."""
    match = re.fullmatch(r"(fig|table)(\d+)", number)
    return title if match is None else f"{'Figure' if match[1] == 'fig' else 'Table'} {match[2]}. {title}"
