"""Scores of whole and of cut models: the truncation curve, the skip map, advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.report.pictures.common import UNDEFINED, caveat, numbers
from layerscope.report.values import (
    BarsFigure,
    CurveFigure,
    Figure,
    HeatmapFigure,
    Point,
    ScatterFigure,
    Series,
    Side,
)

if TYPE_CHECKING:
    import pandas

    from layerscope.analysis import Advice


def score(row: Mapping[str, Any]) -> list[Figure]:
    """One score beside that of the most frequent class."""
    bars = BarsFigure(
        title="Score",
        shows=f"{row['metric']} of {row['model']} on {row['task']} ({row['split']}), beside that of always giving the "
        "most frequent class.",
        reading="A model worth its cost stands well above the dashed line.",
        caveat=caveat("", int(row["n"])),
        names=(str(row["model"]),),
        values=(float(row["score"]),),
        y_name=str(row["metric"]),
        references=(("most frequent class", float(row["majority"])),),
        n=int(row["n"]),
    )
    return [bars]


def truncation(curves: pandas.DataFrame | Mapping[str, pandas.DataFrame]) -> list[Figure]:
    """The score with the head on every layer, a line a curve, and the table."""
    many = dict(curves) if isinstance(curves, Mapping) else {"the head on this layer": curves}
    first = next(iter(many.values()))
    metric, n = str(first["metric"].iloc[0]), int(first["n"].iloc[0])
    task = str(first["task"].iloc[0])
    figure = CurveFigure(
        title="Truncation curve",
        shows=f"{metric} on {task} with the head put on each layer in turn, everything above left out.",
        reading="Where the curve is flat at the top, the blocks to its right can go at no cost. The dashed line is the "
        "score of always giving the most frequent class.",
        caveat=caveat("One split, no interval: layerscope advise chooses on one half and scores on the other.", n),
        series=tuple(
            Series(name, tuple(map(float, c["layer"])), tuple(map(float, c["score"]))) for name, c in many.items()
        ),
        x_name="layer that the head reads",
        y_name=metric,
        references=(("most frequent class", float(first["majority"].iloc[0])),),
        n=n,
    )
    joined = [{**({"curve": k} if len(many) > 1 else {}), **r} for k, c in many.items() for r in c.to_dict("records")]
    return [figure, numbers("What each cut leaves", "Score and size with the head on each layer.", joined)]


def skip_map(frame: pandas.DataFrame) -> list[Figure]:
    """The triangle of scores without blocks first..last, and the table."""
    metric, n = str(frame["metric"].iloc[0]), int(frame["n"].iloc[0])
    depth = int(frame["last"].max())
    grid = np.full((depth, depth), np.nan)
    grid[frame["last"].to_numpy() - 1, frame["first"].to_numpy() - 1] = frame["score"]
    reasons = {
        (int(r["last"]) - 1, int(r["first"]) - 1): f"{metric} is undefined: every prediction or label is the same"
        for r in frame[frame["score"].isna()].to_dict("records")
    }
    scores = frame["score"].dropna()
    blocks = tuple(str(b) for b in range(1, depth + 1))
    figure = HeatmapFigure(
        title="Skip map",
        shows=f"{metric} on {frame['task'].iloc[0]} without blocks first..last, nothing trained; the whole model "
        f"scores {frame['whole'].iloc[0]:.4f}.",
        reading="The lowest cells of each column leave out one block, each step up leaves out one more. Bright "
        "cells are spans that the model does not miss." + (UNDEFINED if reasons else ""),
        caveat=caveat("The best of many cells is too good: layerscope advise scores its choice on other rows.", n),
        values=grid,
        rows=Side("last skipped block", ("",) * depth, blocks),
        columns=Side("first skipped block", ("",) * depth, blocks),
        value_name=metric,
        scale=(float(scores.min()), float(scores.max())) if len(scores) else (0.0, 1.0),
        reasons=reasons,
        n=n,
    )
    return [
        figure,
        numbers("What each skip leaves", "Score and size without blocks first..last.", frame.to_dict("records")),
    ]


def advice(found: Advice) -> list[Figure]:
    """Score against cost of every candidate, and the table."""
    table, chosen = found.table, found.row.name
    metric, most = str(table["metric"].iloc[0]), float(table["macs"].max())
    points = []
    for index, row in table.iterrows():
        series = "chosen" if index == chosen else "front" if row["front"] else "other candidates"
        place = (float(row["macs"]) / most, float(row["score"]))
        points.append(Point(*place, f"blocks {row['blocks']}", series, float(row["low"]), float(row["high"])))
    n = len(found.exam.examples)
    figure = ScatterFigure(
        title="What each smaller model costs and scores",
        shows=f"{metric} against multiply-adds for every candidate: truncations, skipped spans and a greedy search.",
        reading="Left is cheaper, up is better. The line joins the candidates that no other beats on the rows that "
        "choose; the chosen one is the cheapest within the tolerance there. Scores shown are on the other rows.",
        caveat=caveat("The interval of a score is a bootstrap over the texts that did not choose.", n // 2),
        points=tuple(sorted(points, key=lambda p: p.series == "chosen")),
        x_name="multiply-adds, share of the whole model",
        y_name=f"{metric} on rows that did not choose",
        joined=("front",),
        stressed=("chosen",),
        n=n,
    )
    return [
        figure,
        numbers("Every candidate", "What each keeps, scores and costs.", table.sort_values("macs").to_dict("records")),
    ]


def cut_model(rows: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """A cut model beside the whole one."""
    return [numbers("The cut model beside the whole", "Score and size; nothing was trained.", rows)]
