"""Which layers to tune, and what tuning them gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from layerscope.report.pictures.common import numbers
from layerscope.report.pictures.layers import curve
from layerscope.report.values import (
    BarsFigure,
    BoxFigure,
    CurveFigure,
    Figure,
    Point,
    ScatterFigure,
    Series,
)

if TYPE_CHECKING:
    import pandas

    from layerscope.analysis import Choice, Runs


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
        numbers(
            "Strategies around l*",
            "What each strategy (bottom, top, head) trains and costs.",
            found.table.to_dict("records"),
        )
    )
    return figures


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
    return [*figures, numbers("Runs", "Every run with what it trained and what it scored.", rows)]


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
    shows = "Mean score over seeds, its standard error, size and time of every strategy."
    return [figure, numbers("Every strategy", shows, frame.to_dict("records"))]


def strategies(frame: pandas.DataFrame) -> list[Figure]:
    """What every strategy would train and cost."""
    return [numbers("Strategies", "What each strategy would train and cost.", frame.to_dict("records"))]
