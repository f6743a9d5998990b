"""Two models mapped onto one another, and one working in the other's place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.report.pictures.common import caveat, numbers
from layerscope.report.values import BoxFigure, CurveFigure, Figure, HeatmapFigure, Series, Side

if TYPE_CHECKING:
    import pandas

_RELATIVE = "relative error"
_SHOWS = "|Y - g(X)|^2 over |Y - mean Y|^2 on rows that the aligners did not learn from"


def alignment(frame: pandas.DataFrame, table: pandas.DataFrame) -> list[Figure]:
    """Boxes a layer (one method at a time) or a grid of layers, and the table of all methods."""
    part = frame[(frame["split"] == "test") & frame["relative"].notna()]
    across = bool((part["layer"] != part["target_layer"]).any())
    drawn: list[Figure] = []
    if across:
        drawn += [_grid(method, rows) for method, rows in part.groupby("method", sort=False)]
    elif part["layer"].nunique() > 1:
        drawn.append(_curves(part))
        if len(part[["source", "target"]].drop_duplicates()) > 1:
            drawn += [_boxes(method, rows) for method, rows in part.groupby("method", sort=False)]
    said = "How far every method is from the other model, as mean squared error per entry and relative to its spread."
    return [*drawn, numbers("All methods", said, table.to_dict("records"))]


def _curves(part: pandas.DataFrame) -> CurveFigure:
    series, pairs = [], len(part[["source", "target"]].drop_duplicates())
    band = "bands are 95% intervals over rows" if pairs == 1 else f"the mean over {pairs} pairs of models"
    for method, rows in part.groupby("method", sort=False):
        each = rows.groupby("layer")[["relative", "relative_low", "relative_high"]].mean()
        layers = tuple(float(layer) for layer in each.index)
        names = ["relative", "relative_low", "relative_high"] if pairs == 1 else ["relative"]
        series.append(Series(str(method), layers, *(tuple(map(float, each[name])) for name in names)))
    return CurveFigure(
        title="Relative error of every method over the layers",
        shows=f"{_SHOWS}; {band}.",
        reading="0 is a perfect map, 1 is no better than the mean.",
        caveat=caveat(
            "An invertible network and a linear map differ in more than what they can express.", _least(part)
        ),
        series=tuple(series),
        x_name="layer",
        y_name=_RELATIVE,
    )


def _boxes(method: object, rows: pandas.DataFrame) -> BoxFigure:
    return BoxFigure(
        title=f"Spread over pairs of models: {method}",
        shows=f"{_SHOWS}, a box a layer over pairs of models.",
        reading="The box spans the middle half, its line is the median; every pair is a point.",
        boxes={f"layer {layer}": tuple(map(float, each["relative"])) for layer, each in rows.groupby("layer")},
        y_name=_RELATIVE,
        group="Spread over pairs of models",
        facets={"method": str(method)},
    )


def _grid(method: object, rows: pandas.DataFrame) -> HeatmapFigure:
    table = rows.pivot_table(index="layer", columns="target_layer", values="relative")
    names = tuple(str(layer) for layer in table.index), tuple(str(layer) for layer in table.columns)
    models = [
        str(rows[side].iloc[0]) if rows[side].nunique() == 1 else "several models" for side in ("source", "target")
    ]
    return HeatmapFigure(
        title=f"Every layer mapped to every other: {method}",
        shows=f"{_SHOWS}, from the row's layer to the column's.",
        reading="0 is a perfect map, 1 is no better than the mean.",
        values=table.to_numpy(),
        rows=Side("from layer", (models[0],) * len(names[0]), names[0]),
        columns=Side("to layer", (models[1],) * len(names[1]), names[1]),
        value_name=_RELATIVE,
        scale=(0.0, 1.0),
        n=_least(rows),
        group="Every layer mapped to every other",
        facets={"method": str(method)},
    )


def injection(frame: pandas.DataFrame) -> list[Figure]:
    """The target's score with each layer replaced, a line a method, and the table."""
    metric, n = str(frame["metric"].iloc[0]), int(frame["n"].iloc[0])
    series = tuple(
        Series(str(name), tuple(map(float, part["layer"])), tuple(map(float, part["score"])))
        for name, part in frame.groupby("method", sort=False)
    )
    own = tuple((f"{side} alone", float(frame[f"{side}_score"].iloc[0])) for side in ("source", "target"))
    drawn = CurveFigure(
        title="The target on the source's mapped states",
        shows=f"{metric} of the target when a layer of it is replaced by the source's, mapped by each method.",
        reading="Near the target's own score the map keeps what the target uses; at the floors it keeps nothing.",
        caveat=caveat("A head may score well on a map with a large error: it reads few directions.", n),
        series=series,
        x_name="layer of the target that is replaced",
        y_name=metric,
        references=(*own, ("most frequent class", float(frame["majority"].iloc[0]))),
        n=n,
    )
    return [drawn, numbers("All methods", "Every method and floor at every layer.", frame.to_dict("records"))]


def _least(rows: pandas.DataFrame) -> int:
    return int(rows["n"].min())
