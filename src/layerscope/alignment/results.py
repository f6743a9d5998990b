"""What a study gives: its table, and what is drawn of it. Here that of alignment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.drawing.figure import Side
from layerscope.drawing.figures.bars import BarsFigure
from layerscope.drawing.figures.box import BoxFigure
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.drawing.figures.heatmap import HeatmapFigure
from layerscope.drawing.words import caveat, numbers
from layerscope.errors import InputError
from layerscope.results import Tabled

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from layerscope.drawing.figure import Figure

_RELATIVE = "relative error"
RELATIVE = r"$\frac{\lVert Y - g(X) \rVert^2}{\lVert Y - \bar{Y} \rVert^2}$"
_SHOWS = f"{RELATIVE} on rows that the aligners did not learn from"
_READING = "0 is a perfect map, 1 is no better than the mean."
_ERRORS = ("relative", "relative_low", "relative_high")


class Study(Tabled):
    """A study is its table; figures and summaries are made of it.

    `left_out` is about each row's error, or, of injections, what is lost.
    """

    def __repr__(self) -> str:
        methods = ", ".join(map(str, self._frame["method"].unique()))
        return f"{type(self).__name__}({methods}; {len(self._frame)} rows)"


class AlignmentStudy(Study):
    """How well the layers of some models map onto those of others; `ls.alignment_study` makes one.

    `frame` has one row per pair of models, pair of layers, method and split: source, target, layer, target_layer,
    method, split, n, the errors with their intervals, and for similarities their value. `summary` averages it.
    """

    name = "alignment"

    @property
    def summary(self) -> pandas.DataFrame:
        """One row per method: mean and standard deviation over pairs and layers, on train and test rows (table 4)."""
        import pandas

        names = [name for name in ("mse", "relative", "similarity") if name in self._frame]
        rows = []
        for method, part in self._frame.groupby("method", sort=False):
            row: dict[str, Any] = {"method": method}
            for name in names:
                for split in ("train", "test"):
                    values = part[part["split"] == split][name]
                    if values.notna().any():
                        row |= {f"{name} {split}": values.mean(), f"{name} {split} sd": values.std()}
            rows.append(row)
        return pandas.DataFrame(rows)

    def figures(self) -> list[Figure]:
        """Curves over the layers, a grid of layers or one layer's bars; boxes over several pairs; the table."""
        scored = self._scored
        by_method = list(scored.groupby("method", sort=False))
        several = len(scored[["source", "target"]].drop_duplicates()) > 1
        drawn: list[Figure] = []
        if (scored["layer"] != scored["target_layer"]).any():
            drawn += [_grid(str(method), rows) for method, rows in by_method]
        elif scored["layer"].nunique() > 1:
            drawn.append(_curves(scored))
            if several:
                drawn += [_layer_boxes(str(method), rows) for method, rows in by_method]
        elif len(scored):
            drawn.append(_method_boxes(scored) if several else _method_bars(scored))
        shows = (
            "How far every method is from the other model, as mean squared error per entry and relative to its spread."
        )
        return [*drawn, numbers("All methods", shows, self.summary)]

    def findings(self) -> list[str]:
        """What is left unexplained at the highest layer, where each layer is mapped to that of the same number."""
        scored = self._scored
        if not len(scored) or (scored["layer"] != scored["target_layer"]).any():
            return []
        layer = scored["layer"].max()
        means = scored[scored["layer"] == layer].groupby("method", sort=False)["relative"].mean()
        shares = ", ".join(f"{method} {value:.0%}" for method, value in means.items())
        pairs = scored[["source", "target"]].drop_duplicates()
        between = (
            f"from {pairs['source'].iloc[0]} to {pairs['target'].iloc[0]}"
            if len(pairs) == 1
            else f"between {len(pairs)} pairs of models, on average"
        )
        return [
            f"Maps {between} at layer {layer}, on texts that they did not learn from, leave this much of the spread "
            f"unexplained: {shares}."
        ]

    def plot(self, path: str | Path | None = None, ax: Axes | None = None) -> Axes:
        if not len(self._scored):
            raise InputError("The study has no relative error on test rows that is defined; there is nothing to draw.")
        return super().plot(path, ax)

    @property
    def _scored(self) -> pandas.DataFrame:
        """What is drawn: errors on test rows, where they are defined."""
        if "relative" not in self._frame:  # similarities alone
            return self._frame[:0]
        return self._frame[(self._frame["split"] == "test") & self._frame["relative"].notna()]


def _curves(scored: pandas.DataFrame) -> CurveFigure:
    pairs = len(scored[["source", "target"]].drop_duplicates())
    about = "bands are 95% intervals over texts" if pairs == 1 else f"the mean over {pairs} pairs of models"
    series = []
    for method, rows in scored.groupby("method", sort=False):
        means = rows.groupby("layer")[list(_ERRORS)].mean()
        layers = tuple(float(layer) for layer in means.index)
        names = _ERRORS if pairs == 1 else _ERRORS[:1]
        series.append(Series(str(method), layers, *(tuple(map(float, means[name])) for name in names)))
    return CurveFigure(
        title="Relative error of every method over the layers",
        shows=f"{_SHOWS}; {about}.",
        reading=_READING,
        caveat=_caveat(scored),
        series=tuple(series),
        x_name="layer",
        y_name=_RELATIVE,
        n=_least(scored),
    )


def _layer_boxes(method: str, rows: pandas.DataFrame) -> BoxFigure:
    return BoxFigure(
        title=f"Spread over pairs of models: {method}",
        shows=f"{_SHOWS}, one box per layer over pairs of models.",
        reading="The box spans the middle half, its line is the median; every pair is a point.",
        boxes={f"layer {layer}": tuple(map(float, part["relative"])) for layer, part in rows.groupby("layer")},
        y_name=_RELATIVE,
        n=_least(rows),
        group="Spread over pairs of models",
        facets={"method": method},
    )


def _method_boxes(scored: pandas.DataFrame) -> BoxFigure:
    """One layer of several pairs."""
    by_method = scored.groupby("method", sort=False)["relative"]
    return BoxFigure(
        title=f"Relative error of every method at layer {scored['layer'].iloc[0]}",
        shows=f"{_SHOWS}, one box per method over pairs of models.",
        reading=f"{_READING} The box spans the middle half, its line is the median; every pair is a point.",
        caveat=_caveat(scored),
        boxes={str(method): tuple(map(float, values)) for method, values in by_method},
        y_name=_RELATIVE,
        n=_least(scored),
    )


def _method_bars(scored: pandas.DataFrame) -> BarsFigure:
    """One layer of one pair."""
    values, low, high = (tuple(map(float, scored[name])) for name in _ERRORS)
    return BarsFigure(
        title=f"Relative error of every method at layer {scored['layer'].iloc[0]}",
        shows=f"{_SHOWS}, with 95% intervals over texts.",
        reading=_READING,
        caveat=_caveat(scored),
        names=tuple(map(str, scored["method"])),
        values=values,
        low=low,
        high=high,
        y_name=_RELATIVE,
        n=_least(scored),
    )


def _grid(method: str, rows: pandas.DataFrame) -> HeatmapFigure:
    table = rows.pivot_table(index="layer", columns="target_layer", values="relative")
    layers = tuple(str(layer) for layer in table.index), tuple(str(layer) for layer in table.columns)
    models = [
        str(rows[side].iloc[0]) if rows[side].nunique() == 1 else "several models" for side in ("source", "target")
    ]
    return HeatmapFigure(
        title=f"Every layer mapped to every other: {method}",
        shows=f"{_SHOWS}, from the row's layer to the column's.",
        reading=_READING,
        values=table.to_numpy(),
        rows=Side("from layer", (models[0],) * len(layers[0]), layers[0]),
        columns=Side("to layer", (models[1],) * len(layers[1]), layers[1]),
        value_name=_RELATIVE,
        scale=(0.0, 1.0),
        n=_least(rows),
        group="Every layer mapped to every other",
        facets={"method": method},
    )


def _caveat(rows: pandas.DataFrame) -> str:
    said = "An invertible network and a linear map differ in more than what they can express."
    return caveat(said, _least(rows))


def _least(rows: pandas.DataFrame) -> int:
    return int(rows["n"].min())
