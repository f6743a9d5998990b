"""From results to figures: for each kind of result, what is drawn of it and what is said beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.measures.heatmap import scale_of
from layerscope.measures.registry import registry
from layerscope.report.values import (
    BarsFigure,
    BoxFigure,
    CurveFigure,
    Figure,
    HeatmapFigure,
    Point,
    ScatterFigure,
    Series,
    Side,
    TableFigure,
)

if TYPE_CHECKING:
    import pandas

    from layerscope.analysis import Advice, Blocks, Choice, Curve, Runs
    from layerscope.measures import Similarity
    from layerscope.measures.similarity import Axis

_UNDEFINED = " Hatched cells have no value; the reason shows when the pointer or the arrow keys are on them."
_FEW_ROWS = "High by chance where rows are not far more than the width of a layer"
_CAVEATS = {
    "cka": f"{_FEW_ROWS}, and a few large features can carry it. Compare with cka_debiased, or add --baseline.",
    "cka_minibatch": "An estimate from batches of rows.",
    "procrustes": f"{_FEW_ROWS}: add --baseline.",
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
_SMALL_N = 100  # below this many rows every figure says so


def similarity(found: Similarity, cut: Blocks | None = None, facets: Mapping[str, str] | None = None) -> HeatmapFigure:
    """A heat map of layers against layers; `cut` adds the lines of its split into blocks."""
    known = registry().get(found.measure)
    what = f" ({known.doc.splitlines()[0].rstrip('.')}; {known.source})" if known is not None and known.doc else ""
    high = found.bounds[1]
    ends = f"{high:g} is the most it can be" if np.isfinite(high) else "higher is more alike"
    reading = (
        f"Each cell is one pair of layers: layer 0 (the embeddings) is at the lower left, and {ends}. A bright square "
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
        reading += " A value near what shuffled rows give says nothing."
    return HeatmapFigure(
        title=f"Similarity of layers: {found.measure}",
        shows=f"{found.measure}{what} of every pair of layers over {found.n:,} rows{_over(found.provenance)}.",
        reading=reading + (_UNDEFINED if found.reasons else ""),
        caveat=_caveat(_CAVEATS.get(found.measure, ""), found.n),
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
        caveat=_caveat("One split, no interval: `layerscope advise` chooses on one half and scores on the other.", n),
        series=tuple(
            Series(name, tuple(map(float, c["layer"])), tuple(map(float, c["score"]))) for name, c in many.items()
        ),
        x_name="layer that the head reads",
        y_name=metric,
        references=(("most frequent class", float(first["majority"].iloc[0])),),
        n=n,
    )
    joined = [{**({"curve": k} if len(many) > 1 else {}), **r} for k, c in many.items() for r in c.to_dict("records")]
    return [figure, _costs("What each cut leaves", joined)]


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
        shows=f"{metric} on {frame['task'].iloc[0]} without blocks first..last, nothing trained.",
        reading="The lowest cells of each column leave out one block, each step up leaves out one more. Bright "
        "cells are spans that the model does not miss." + (_UNDEFINED if reasons else ""),
        caveat=_caveat("The best of many cells is too good: `layerscope advise` scores its choice on other rows.", n),
        values=grid,
        rows=Side("last skipped block", ("",) * depth, blocks),
        columns=Side("first skipped block", ("",) * depth, blocks),
        value_name=metric,
        scale=(float(scores.min()), float(scores.max())) if len(scores) else (0.0, 1.0),
        reasons=reasons,
        n=n,
    )
    return [figure, _costs("What each skip leaves", frame.to_dict("records"))]


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
        caveat=_caveat("The interval of a score is a bootstrap over the texts that did not choose.", n // 2),
        points=tuple(sorted(points, key=lambda p: p.series == "chosen")),
        x_name="multiply-adds, share of the whole model",
        y_name=f"{metric} on rows that did not choose",
        joined=("front",),
        stressed=("chosen",),
        n=n,
    )
    return [figure, _costs("Every candidate", table.sort_values("macs").to_dict("records"))]


def choice(found: Choice) -> list[Figure]:
    """nu with its interval, how often each layer wins, the probes, and the strategies around l*."""
    nu = curve(
        found.nu,
        title="nu: how mixed the classes are in each layer",
        shows="nu, the variability within classes over that between them, of the training rows in each layer "
        "(Xie et al. 2022). The band is a 95% interval.",
        reading="Lower is better separated. l* is the layer with the least nu among layers 1 and up.",
        caveat="Intervals come from subsamples of the rows; a rough or flat curve is no ground to choose on.",
    )
    figures: list[Figure] = [nu]
    layers = tuple(f"layer {layer}" for layer in found.nu.layers)
    if found.nu.wins is not None:
        figures.append(
            BarsFigure(
                title="How often each layer comes out as l*",
                shows="The share of subsamples of the rows in which each layer has the least nu.",
                reading="One tall bar, or two neighbours, is a clear l*; many low ones are not.",
                names=layers,
                values=tuple(map(float, found.nu.wins)),
                y_name="share of subsamples",
            )
        )
    if found.probe is not None:
        name = found.probe.name
        figures.append(
            curve(
                found.probe,
                title=f"Probes: {name} of a linear classifier on each layer",
                shows=f"{name} on validation of a classifier trained on each layer's rows.",
                reading="Higher is better. Where it follows nu upside down, both say the same of the layers.",
                caveat="What a probe can read a model need not use.",
            )
        )
    figures.append(
        TableFigure.of(
            found.table.to_dict("records"),
            title="Strategies around l*",
            shows="What each strategy (bottom, top, head) trains, and its multiply-adds a token.",
            reading="forward and backward are of a training step; cached is the forward that is left when the frozen "
            "blocks' output is kept.",
        )
    )
    return figures


def curve(found: Curve, **words: Any) -> CurveFigure:
    """A number a layer, a line a model; the layer that it points to is marked."""
    series = []
    for model in dict.fromkeys(found.models):
        at = [i for i, name in enumerate(found.models) if name == model]

        def part(values: np.ndarray | None, at: list[int] = at) -> tuple[float, ...] | None:
            return None if values is None else tuple(float(values[i]) for i in at)

        x = tuple(float(found.layers[i]) if _number(found.layers[i]) else float(k) for k, i in enumerate(at))
        series.append(Series(model, x, part(found.values) or (), part(found.low), part(found.high)))
    marks = ((f"layer {found.best}", float(found.best)),) if found.best is not None else ()
    return CurveFigure(series=tuple(series), x_name="layer", y_name=found.name, marks=marks, **words)


def tuned(found: Runs, rows: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """The runs, the score after every epoch, and the spread over seeds where there are several."""
    first = found.runs[0]
    metric, majority = str(first.result["metric"]), float(first.result["majority"])
    reference = (("most frequent class", majority),)
    figures: list[Figure] = []
    if len(found.runs) > 1:
        figures.append(
            BoxFigure(
                title="Scores over seeds",
                shows=f"{metric} on validation of {len(found.runs)} runs that differ in their seed.",
                reading="The box spans the middle half, its line is the median; every run is a point.",
                caveat="Each score is that of the run's best epoch on validation, so a little too good.",
                boxes={str(first.job.strategy): tuple(map(float, found.scores))},
                y_name=metric,
                references=reference,
            )
        )
    epochs = [run.result["epochs"] for run in found.runs]
    if max(map(len, epochs)) > 1:
        figures.append(
            CurveFigure(
                title="Validation score after every epoch",
                shows=f"{metric} on validation over the epochs, a line a seed.",
                reading="The best epoch is the one that is kept.",
                series=tuple(
                    Series(
                        f"seed {run.job.seed}",
                        tuple(float(e["epoch"]) for e in each),
                        tuple(float(e["score"]) for e in each),
                    )
                    for run, each in zip(found.runs, epochs, strict=True)
                ),
                x_name="epoch",
                y_name=metric,
                references=reference,
            )
        )
    table = TableFigure.of(
        rows,
        title="Runs",
        shows="Every run with what it trained and what it scored.",
        reading="`tried` is how many learning rates were tried, the best on validation being shown.",
    )
    return [*figures, table]


def study(frame: pandas.DataFrame) -> list[Figure]:
    """Score against the number of tuned layers, and the table."""
    metric = str(frame["metric"].iloc[0])
    points = tuple(
        Point(
            float(row["tuned_layers"]),
            float(row["score"]),
            row["strategy"],
            row["method"],
            float(row["score"] - row["error"]),
            float(row["score"] + row["error"]),
        )
        for row in frame.to_dict("records")
    )
    figure = ScatterFigure(
        title="Strategies: score against tuned layers",
        shows=f"{metric} of every strategy against how many blocks it tunes.",
        reading="Up is better, left is cheaper. Whiskers are one standard error over seeds.",
        caveat="With one seed there is no standard error. Scores are those of the best epoch on validation.",
        points=points,
        x_name="tuned layers",
        y_name=metric,
    )
    table = TableFigure.of(
        frame.to_dict("records"),
        title="Every strategy",
        shows="Mean score over seeds, standard error, size and time of every strategy.",
        reading="Sort by a column with its heading.",
    )
    return [figure, table]


def summary(frame: pandas.DataFrame, model: str) -> list[Figure]:
    """What representations hold, layer by layer."""
    layers = [float(v) if _number(v) else float(k) for k, v in enumerate(frame["layer"])]
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
    return [*curves, _costs("Every layer", frame.to_dict("records"))]


def score(row: Mapping[str, Any]) -> list[Figure]:
    """One score beside that of the most frequent class."""
    bars = BarsFigure(
        title="Score",
        shows=f"{row['metric']} of {row['model']} on {row['task']} ({row['split']}), beside that of always giving the "
        "most frequent class.",
        reading="A model worth its cost stands well above the dashed line.",
        caveat=_caveat("", int(row["n"])),
        names=(str(row["model"]),),
        values=(float(row["score"]),),
        y_name=str(row["metric"]),
        references=(("most frequent class", float(row["majority"])),),
        n=int(row["n"]),
    )
    return [bars, _costs("Score", [row])]


def cut_model(rows: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """A cut model beside the whole one."""
    return [_costs("The cut model beside the whole", rows)]


def strategies(frame: pandas.DataFrame) -> list[Figure]:
    """What every strategy would train and cost."""
    return [_costs("What each strategy trains and costs", frame.to_dict("records"))]


def _costs(title: str, records: Sequence[Mapping[Any, Any]]) -> TableFigure:
    return TableFigure.of(
        records, title=title, shows="The numbers, a row each.", reading="Sort by a column with its heading."
    )


def _side(axis: Axis) -> Side:
    models = dict.fromkeys(axis.models)
    name = f"layer of {next(iter(models))}" if len(models) == 1 else "model and layer"
    return Side(name, tuple(map(str, axis.models)), tuple(map(str, axis.layers)))


def _over(provenance: Mapping[str, Any]) -> str:
    task, split, pool = (provenance.get(name) for name in ("task", "split", "pool"))
    said = f" of {task}" if task else ""
    said += f" ({split})" if task and split else ""
    return said + (f", pool {pool}" if pool else "")


def _caveat(said: str, n: int) -> str:
    few = f"Only {n:,} rows: expect other rows to give other numbers." if n < _SMALL_N else ""
    return " ".join(part for part in (said, few) if part)


def _number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
