"""Similarities, curves over layers, and what representations hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.measures.heatmap import scale_of
from layerscope.measures.registry import registry
from layerscope.report.pictures.common import UNDEFINED, caveat, is_number, numbers
from layerscope.report.values import CurveFigure, Figure, HeatmapFigure, Series, Side

if TYPE_CHECKING:
    import pandas

    from layerscope.analysis import Blocks, Curve
    from layerscope.measures import Similarity
    from layerscope.measures.similarity import Axis

_FEW_ROWS = "High by chance where rows are not far more than the width of a layer"
_CAVEATS = {
    "cka": f"{_FEW_ROWS}, and a few large features can carry it. Compare with cka_debiased, or with the baseline.",
    "cka_minibatch": "An estimate from batches of rows.",
    "procrustes": f"{_FEW_ROWS}: compare with the baseline.",
    "cca": f"{_FEW_ROWS}: some correlations are then 1 whatever the data are.",
    "cca_squared": f"{_FEW_ROWS}: some correlations are then 1 whatever the data are.",
    "svcca": f"{_FEW_ROWS}, and it depends on how much variance is kept.",
    "pwcca": f"{_FEW_ROWS}. Not symmetric: the rows' layer gives the weights.",
    "neuron": "Tied to the axes: a rotated copy of a layer scores low. Not symmetric.",
    "mixed": "In-sample: rises with the width of the columns' layer. Not symmetric.",
    "linear_regression": "In-sample: rises with the width of the rows' layer. Not symmetric.",
    "mutual_knn": "Depends on k and on the number of rows.",
    "jaccard_knn": "Depends on k and on the number of rows.",
}


def similarity(found: Similarity, cut: Blocks | None = None, facets: Mapping[str, str] | None = None) -> HeatmapFigure:
    """A heat map of layers against layers; `cut` adds the lines of its split into blocks."""
    known = registry().get(found.measure)
    what = f" ({known.doc.splitlines()[0].rstrip('.')}; {known.source})" if known is not None and known.doc else ""
    high = found.bounds[1]
    ends = f"{high:g} is the most it can be" if np.isfinite(high) else "higher is more alike"
    reading = (
        f"Each cell is one pair of layers: {_lowest(found)} is at the lower left, and {ends}. A bright square "
        "along the diagonal is a run of layers that hold the same thing; a dark band is where they part."
    )
    if cut is not None:
        reading += (
            f" Dashed lines: the best split into {cut.k} blocks, strength {cut.strength:.2f}, p = {cut.p_value:.3g} "
            "against the same fall-off with distance but no blocks."
        )
    if found.low is not None:
        reading += " The interval is a delete-a-group jackknife over texts."
    if found.baseline is not None:
        reading += " The baseline is what shuffled rows give: a value near it says nothing."
    else:
        reading += " --baseline adds what shuffled rows give."
    return HeatmapFigure(
        title=f"Similarity of layers: {found.measure}",
        shows=f"{found.measure}{what} of every pair of layers over {found.n:,} rows{_over(found.provenance)}.",
        reading=reading + (UNDEFINED if found.reasons else ""),
        caveat=caveat(_CAVEATS.get(found.measure, ""), found.n),
        group="Similarity of layers",
        facets={"measure": found.measure, **(facets or {})},
        values=np.asarray(found.values, dtype=float),
        rows=_side(found.row_axis),
        columns=_side(found.column_axis),
        value_name=found.measure,
        scale=scale_of([found]),
        low=found.low,
        high=found.high,
        baseline=found.baseline,
        reasons=dict(found.reasons),
        cuts=tuple(cut.positions) if cut is not None else (),
        n=found.n,
    )


def curve(found: Curve, **words: Any) -> CurveFigure:
    """A number a layer, a line a model; the layer that it points to is marked."""
    series = []
    for model in dict.fromkeys(found.models):
        at = [i for i, name in enumerate(found.models) if name == model]

        def part(values: np.ndarray | None, at: list[int] = at) -> tuple[float, ...] | None:
            return None if values is None else tuple(float(values[i]) for i in at)

        x = tuple(float(found.layers[i]) if is_number(found.layers[i]) else float(k) for k, i in enumerate(at))
        series.append(Series(model, x, part(found.values) or (), part(found.low), part(found.high)))
    marks = ((f"layer {found.best}", float(found.best)),) if found.best is not None else ()
    return CurveFigure(series=tuple(series), x_name="layer", y_name=found.name, marks=marks, **words)


def summary(frame: pandas.DataFrame, model: str) -> list[Figure]:
    """What representations hold, layer by layer."""
    layers = [float(v) if is_number(v) else float(k) for k, v in enumerate(frame["layer"])]
    words = {
        "mean_norm": ("Mean norm of a row", "Large jumps are usual in deep layers; a few features may carry them."),
        "spread": ("Mean spread of a feature", "0 says that every row is the same vector."),
        "top_direction": (
            "Share of the largest direction",
            "Near 1 nearly all variance lies along one direction, which then decides linear measures.",
        ),
    }
    curves = [
        CurveFigure(
            title="What each layer holds",
            shows=f"{title} in every layer of {model}.",
            reading=reading,
            group="What each layer holds",
            facets={"number": title},
            series=(Series(model, tuple(layers), tuple(map(float, frame[name]))),),
            x_name="layer",
            y_name=title.lower(),
            n=int(frame["rows"].iloc[0]),
        )
        for name, (title, reading) in words.items()
    ]
    return [*curves, numbers("Every layer", "What each layer holds, in numbers.", frame.to_dict("records"))]


def _lowest(found: Similarity) -> str:
    """The layer at the lower left; attention has none of the embeddings."""
    first = found.row_axis.layers[0]
    return "layer 0 (the embeddings)" if first == "0" else f"layer {first}"


def _side(axis: Axis) -> Side:
    models = dict.fromkeys(axis.models)
    name = f"layer of {next(iter(models))}" if len(models) == 1 else "model and layer"
    return Side(name, tuple(map(str, axis.models)), tuple(map(str, axis.layers)))


def _over(provenance: Mapping[str, Any]) -> str:
    task, split, pool = (provenance.get(name) for name in ("task", "split", "pool"))
    said = f" of {task}" if task else ""
    said += f" ({split})" if task and split else ""
    return said + (f", pool {pool}" if pool else "")
