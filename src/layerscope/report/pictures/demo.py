"""What the demo draws otherwise than single commands do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from layerscope.report.pictures.alignment import alignment as maps
from layerscope.report.pictures.common import caveat, numbers
from layerscope.report.pictures.layers import similarity
from layerscope.report.values import BarsFigure, Figure

if TYPE_CHECKING:
    import pandas

    from layerscope.analysis import Runs
    from layerscope.measures import Similarity

_SHORT = {"random embedding": "noise", "random label": "guess"}


def pairs(found: Mapping[str, Mapping[str, Similarity]]) -> list[Figure]:
    """All pairs in sight at once, each with its measures to switch between."""
    return [
        replace(similarity(one), title=f"{pair}: {one.measure}", group=pair)
        for pair, measures in found.items()
        for one in measures.values()
    ]


def tuned(runs: Runs, rows: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """The score of every seed, beside the most frequent class: two runs make no box."""
    first = runs.runs[0]
    metric, n = str(first.result["metric"]), len(first.job.validation)
    bars = BarsFigure(
        title="Score of each seed",
        shows=f"{metric} on {n:,} validation texts of runs that differ in their seed alone.",
        reading="A tuned model should stand well above the dashed line, and seeds near one another.",
        caveat=caveat("A short training with one learning rate, and no intervals.", n),
        names=tuple(f"seed {run.job.seed}" for run in runs.runs),
        values=tuple(run.score for run in runs.runs),
        y_name=metric,
        references=(("most frequent class", float(first.result["majority"])),),
        n=n,
    )
    return [bars, numbers("Runs", "Every run with its score and its time.", rows)]


def alignment(frame: pandas.DataFrame, table: pandas.DataFrame) -> list[Figure]:
    """One pair of models: its boxes would be single points."""
    return [figure for figure in maps(frame, table) if figure.kind != "box"]


def injection(frame: pandas.DataFrame) -> list[Figure]:
    """One layer replaced: a bar a method."""
    first, n = frame.iloc[0], int(frame["n"].iloc[0])
    metric = str(first["metric"])
    bars = BarsFigure(
        title=f"One model's head on the other's layer {first['layer']}",
        shows=f"{metric} of one tuned model when its layer {first['layer']} is replaced by the other's, mapped by each "
        "method. Identity is no map at all, mean a shift; noise is in its place, a guess is a label drawn at random.",
        reading="Near the target's own score the map keeps what the head uses; near noise it keeps nothing.",
        caveat=caveat("A head may score well on a map with a large error: it reads few directions.", n),
        names=tuple(_SHORT.get(method, method) for method in frame["method"]),
        values=tuple(map(float, frame["score"])),
        y_name=metric,
        references=(("target alone", float(first["target_score"])),),
        n=n,
    )
    return [bars]


def smaller(sizes: Sequence[Mapping[str, Any]]) -> Figure:
    """The saved model beside the whole one."""
    return numbers(
        "The smaller model beside the whole one", "Both opened from their checkpoints and measured here.", sizes
    )
