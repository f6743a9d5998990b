"""What is drawn, and said, of a similarity."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from layerscope.drawing.figure import Side
from layerscope.drawing.figures.heatmap import HeatmapFigure
from layerscope.drawing.words import UNDEFINED, caveat
from layerscope.similarity.formulas import CALIBRATED, CALIBRATED_DISTANCE, FORMULAS
from layerscope.similarity.registry import registry

if TYPE_CHECKING:
    from layerscope.similarity.similarity import Axis, Similarity


def heatmap(similarity: Similarity) -> HeatmapFigure:
    """The matrix, with what stands beside each value."""
    entry = registry().get(similarity.measure)
    formula = f": ${FORMULAS[similarity.measure]}$" if similarity.measure in FORMULAS else ""
    doc = entry.doc.splitlines()[0].rstrip(".") if entry is not None and entry.doc else ""
    what = f" ({doc}{formula}; {entry.source})" if entry is not None and doc else ""
    return HeatmapFigure(
        title=f"{'Distance' if similarity.distance else 'Similarity'} of layers: {similarity.measure}",
        shows=f"{similarity.measure}{what} of every pair of layers over {similarity.n:,} rows{_over(similarity)}.",
        reading=_reading(similarity) + (UNDEFINED if np.isnan(similarity.values).any() else ""),
        caveat=caveat("" if entry is None else entry.caveat, similarity.n),
        group="Similarity of layers",
        facets={"measure": similarity.measure},
        values=np.asarray(similarity.values, dtype=float),
        rows=similarity.row_axis.side,
        columns=similarity.column_axis.side,
        value_name=similarity.measure,
        scale=_scale(similarity),
        low=similarity.low,
        high=similarity.high,
        bias=similarity.bias,
        baseline=similarity.baseline,
        p_value=similarity.p_values,
        calibrated=similarity.calibrated,
        reasons=dict(similarity.reasons),
        n=similarity.n,
    )


def calibrated_heatmap(similarity: Similarity) -> HeatmapFigure:
    """What is left of the values above chance."""
    assert similarity.calibrated is not None
    name = f"{similarity.measure}, calibrated"
    left = rf"${CALIBRATED}$ with $\tau$ the 95th"
    if similarity.distance:
        left = rf"${CALIBRATED_DISTANCE}$ with $\tau$ the 5th"
    return replace(
        heatmap(similarity),
        title=f"Similarity of layers above chance: {similarity.measure}",
        shows=f"{similarity.measure} of every pair of layers, less what shuffled texts give: {left} percentile of the "
        "shuffles.",
        reading="0 is what chance gives too, 1 the most there can be.",
        facets={"measure": name},
        values=similarity.calibrated,
        value_name=name,
        scale=(0.0, 1.0),
        low=None,
        high=None,
        bias=None,
        calibrated=None,
    )


def finding(similarity: Similarity) -> str:
    """What shuffled texts say of the most similar pair of layers."""
    best = similarity.best
    assert best is not None
    end = "lowest" if similarity.distance else "highest"
    return (
        f"{similarity.measure} is {end} for the layers {best.row} and {best.column}: {best.value:.3f}. Among as many "
        f"pairs of layers shuffled texts give {best.baseline:.3f} at their best (p = {best.p_value:.3g}), and "
        f"{best.calibrated:.3f} is left above chance."
    )


def _reading(similarity: Similarity) -> str:
    first = similarity.row_axis.names[0]
    lowest = "layer 0 (the embeddings)" if first == "0" else f"layer {first}"
    high = similarity.bounds[1]
    ends = f"{high:g} is the most it can be" if np.isfinite(high) else "higher is more alike"
    square, band = "bright", "dark"
    if similarity.distance:
        ends, square, band = "lower is more alike", "dark", "bright"
    said = (
        f"Each cell is one pair of layers: {lowest} is at the lower left, and {ends}. A {square} square along the "
        f"diagonal is a run of layers that hold the same thing; a {band} band is where they part."
    )
    if similarity.low is not None:
        said += " The interval is a delete-a-group jackknife over texts; the bias is what few rows add to the value."
    if similarity.baseline is None:
        return said + " --baseline 200 adds what shuffled texts give."
    return said + " The baseline is what shuffled texts give: a value near it says nothing."


def _over(similarity: Similarity) -> str:
    """What the rows are of."""
    data, settings = similarity.provenance.get("data", {}), similarity.provenance.get("settings", {})
    task, split, pool = data.get("task"), data.get("split"), settings.get("pool")
    said = f" of {task}" if task else ""
    said += f" ({split})" if task and split else ""
    return said + (f", pool {pool}" if pool else "")


def _scale(similarity: Similarity) -> tuple[float, float]:
    """0..1 for measures with that range, half of the range of a distance if that is enough, else that of the values."""
    values = similarity.values[np.isfinite(similarity.values)]
    if similarity.distance and np.isfinite(similarity.bounds).all():
        low, high = similarity.bounds
        return low, float(max(values.max(initial=low), (low + high) / 2))
    if tuple(similarity.bounds) == (0.0, 1.0) or not len(values):
        return 0.0, 1.0
    return float(min(values.min(), 0.0)), float(max(values.max(), 1.0))


def head_heatmap(similarity: Similarity, row: int, column: int) -> HeatmapFigure:
    """The attention heads of two layers (by their places): values, and a ring around each row's match."""
    matches = similarity.matches[row, column]
    assert similarity.heads is not None
    values = similarity.heads[row, column]
    low, high = similarity.bounds
    known = values[np.isfinite(values)]
    return HeatmapFigure(
        title=f"{similarity.measure}: {similarity.values[row, column]:.3f}",
        shows=f"{similarity.measure} of every attention head of one layer with every head of another.",
        reading="A ring marks the head of the columns' layer that is most like the row's head.",
        values=values,
        rows=_head_side(similarity.row_axis, row, values.shape[0]),
        columns=_head_side(similarity.column_axis, column, values.shape[1]),
        value_name=similarity.measure,
        scale=(low if np.isfinite(low) else float(known.min(initial=0.0)), high),
        reasons={(int(i), int(j)): "this pair of heads has no value" for i, j in np.argwhere(np.isnan(values))},
        marked=tuple((i, int(j)) for i, j in enumerate(matches) if j >= 0),
        n=similarity.n,
    )


def _head_side(axis: Axis, place: int, count: int) -> Side:
    name = f"attention heads of layer {axis.names[place]}, {axis.models[place]}"
    return Side(name, ("",) * count, tuple(map(str, range(count))))
