"""`ls.rank`: which of several models, and which of its layers, to begin from for a task."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.cutting.costs import Costs
from layerscope.cutting.plan import LayerPlan, spans
from layerscope.data import TaskSource
from layerscope.drawing.captions import listed
from layerscope.drawing.figures.bars import BarsFigure
from layerscope.errors import InputError, check_seed
from layerscope.extraction.extract import examples_of
from layerscope.models.extras import parameter_count
from layerscope.models.load import Model, ModelSource, labels_of, load
from layerscope.models.wrap import WrappedModel
from layerscope.probing.labelled_rows import labelled_rows
from layerscope.probing.layer_score import LayerRows, LayerScoreCurve
from layerscope.probing.permutation import check_null
from layerscope.probing.score_curves import checked_labels, score_curves, text_order
from layerscope.probing.scores.press import Press
from layerscope.progress import progress
from layerscope.resampling import told_apart
from layerscope.results import Curve, Finding, NextStep, provenance_of
from layerscope.results.finding import ANSWER, DETAIL, SUPPORT, interval, number, rows
from layerscope.results.result import Tabled
from layerscope.similarity.execution_plan import source_names

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure


class Ranking(Tabled):
    """Several models by how well the labels can be told from their best layers, before any training.

    Attributes:
        curves: PRESS of every layer of every model, by the model's name.
        axes: How many principal axes of every model the comparison at equal width is on.

    Example:
        >>> import layerscope as ls
        >>> ranking = ls.rank(["garden:bert-s0", "garden:albert-s0"], "pydocs", limit=60, max_length=32, timed=False)
        >>> len(ranking.frame), ranking.best == ranking.frame["model"][0]
        (2, True)
    """

    name = "ranking"

    def __init__(
        self, frame: pandas.DataFrame, provenance: Mapping[str, Any], curves: Mapping[str, Curve], axes: int
    ) -> None:
        super().__init__(frame, provenance)
        self.curves, self.axes = dict(curves), axes

    @property
    def best(self) -> str:
        """The name of the model with the greatest PRESS."""
        return str(self.frame["model"].iloc[0])

    def figures(self) -> list[Figure]:
        frame = self.frame
        bars = BarsFigure(
            title="PRESS of the best layer of every model",
            shows="R² of a linear map to the labels from each model's best layer, with every text left out in turn.",
            reading="Higher is better; 0 says nothing of the labels. The table says which models tie with the best.",
            caveat="What a linear map reads is not what a model reaches once it is tuned. Wide models have more to "
            "read from: the table has the comparison at equal width beside it.",
            names=tuple(f"{row['model']}, layer {row['layer']}" for row in frame.to_dict("records")),
            values=tuple(map(float, frame["press"])),
            low=tuple(map(float, frame["low"])),
            high=tuple(map(float, frame["high"])),
            y_name="press",
        )
        return [bars, *(figure for curve in self.curves.values() for figure in curve.figures())]

    def findings(self) -> list[Finding]:
        """The best model and layer, which models tie with it, and which is best at equal width."""
        first, n = self.frame.iloc[0], self.provenance.get("data", {}).get("n")
        if not np.isfinite(first["press"]):
            return [Finding("PRESS has no value in any layer of these models.", "", False, ANSWER)]
        curve = self.curves[self.best]
        assert isinstance(curve, LayerScoreCurve)
        bounds = interval(first["low"], first["high"]) + rows(n)
        text = f"The labels show in layer {first['layer']} of {self.best}: PRESS is {number(first['press'])}."
        if curve.shown is False:
            text = f"No model is shown to tell the labels: PRESS is {number(first['press'])} at best, in {self.best}."
        findings = [Finding(text, bounds, curve.shown, ANSWER)]
        if len(self.frame) > 1:
            tied = [str(name) for name in self.frame["model"][self.frame["ties"]]]
            text = f"{self.best} is better than every other model."
            if len(tied) > 1:
                text = f"These models cannot be told apart with these rows: {listed(tied)}."
            evidence = "95% intervals of the differences of best layers, over the same texts, widened for so many"
            findings.append(Finding(text, evidence, len(tied) == 1, SUPPORT))
            equal = self.frame.sort_values("equal_width", ascending=False, kind="stable").iloc[0]
            if self.frame["width"].nunique() > 1:
                text = (
                    f"On {self.axes} principal axes of each best layer, {equal['model']} is best: PRESS is "
                    f"{number(equal['equal_width'])}."
                )
                findings.append(Finding(text, "wide layers have more to read from otherwise", None, DETAIL))
        return findings

    def next_step(self) -> NextStep:
        """The recommendation of layers of the best model."""
        return NextStep("specialty", ("-o", "specialty"), "See which of its layers are worth tuning", (self.best,))

    def __repr__(self) -> str:
        first = self.frame.iloc[0]
        return f"Ranking(of {len(self.frame)} models: {self.best}, layer {first['layer']}, PRESS {first['press']:.3f})"


def rank(
    models: Sequence[ModelSource],
    task: TaskSource,
    *,
    pool: str = "mean",
    split: str | None = None,
    limit: int | None = None,
    max_length: int = 128,
    null: int = 20,
    timed: bool = True,
    seed: int = 0,
) -> Ranking:
    """Rank models by how well a task's labels can be told from their best layer, before any training.

    The number is PRESS: R² of a linear map to the labels with every text left out in turn, 0 where nothing is said. It
    orders what a linear map can read, not what models reach once they are tuned. Models are compared on the same texts.

    Args:
        models: Several checkpoints: folders, hub ids, GGUF files, `garden:NAME`, or `Model`s.
        task: A task with classes or numbers as labels.
        pool: How token states become rows.
        split: The split; `train` where there is one, else the only one.
        limit: Use only the first N examples.
        max_length: The longest text in tokens.
        null: How many times labels are permuted among texts, for p-values; 0 leaves them out.
        timed: Measure the time of one text of 128 tokens on this device.
        seed: Decides the halves and the permutations.

    Returns:
        A `Ranking`, best model first: its best layer and the layers that tie with it, PRESS with its interval, p after
        allowing for the choice among layers, whether it ties with the best model (by the paired interval over texts),
        PRESS at equal width (on as many principal axes as the narrowest model has columns), width, layers, parameters,
        latency_1_ms.

    Example:
        >>> import layerscope as ls
        >>> ranking = ls.rank(["garden:bert-s0", "garden:albert-s0"], "pydocs", limit=60, max_length=32, timed=False)
        >>> ranking.frame.columns[:4].tolist()
        ['model', 'layer', 'tied_layers', 'press']
    """
    import pandas

    check_null(null)
    check_seed(seed)
    if not len(models):
        raise InputError("No model was given; name one or several.")
    opened = [load(model) for model in models]
    names = source_names(labels_of(opened), None)
    examples = examples_of(task, split, limit, learning=True)
    records, draws, curves = [], [], {}
    axes = min(min(model.widths) for model in opened)
    with progress("ranking", len(opened), "models") as advance:
        for name, model in zip(names, opened, strict=True):
            reps = labelled_rows(model, examples, pool=pool, max_length=max_length)
            curve = score_curves(reps, [Press()], ci=0.95, null=null, seed=seed)["press"]
            curve.models = [name] * len(curve.layers)
            curves[name] = curve
            record: dict[str, Any] = {"model": name, "layer": curve.best, "tied_layers": spans(curve.ties or [])}
            values = dict.fromkeys(("press", "low", "high", "p", "equal_width"), math.nan)
            drawn = np.full(Press.resamples, math.nan)
            if curve.best is not None:
                assert curve.low is not None
                assert curve.high is not None
                assert curve.draws is not None
                at = curve.layers.index(curve.best)
                drawn = curve.draws[:, at]
                values = {"press": curve.values[at], "low": curve.low[at], "high": curve.high[at], "p": curve.p_best}
                order = text_order(reps.rows.row)
                labels = checked_labels(reps.labels, reps.rows.row, [Press()])[order]
                layer = LayerRows(reps[curve.best][order], reps.rows.row[order])
                values["equal_width"] = Press(axes).values(layer, labels[None])[0]
            size = {"width": model.width, "layers": model.depth, "parameters": parameter_count(model.network)}
            latency = 1000 * _latency(model) if timed else math.nan
            records.append({**record, **values, **size, "latency_1_ms": latency})
            draws.append(drawn)
            advance(1)
    frame = pandas.DataFrame(records)
    known = frame["press"].notna().to_numpy()
    ties = known.copy()
    if known.any():
        at = int(np.nanargmax(frame["press"]))
        ties &= ~told_apart(frame["press"].to_numpy(), at, draws=np.stack(draws, axis=1))
    frame.insert(list(frame).index("p") + 1, "ties", ties)
    frame = frame.sort_values("press", ascending=False, kind="stable", ignore_index=True)
    settings = {"pool": pool, "max_length": max_length, "null": null, "seed": seed, **Press.settings, "axes": axes}
    return Ranking(frame, provenance_of(opened, examples, settings), curves, axes)


def _latency(model: Model) -> float:
    """Return the seconds of one text; NaN of a network that is not run in blocks."""
    if isinstance(model, WrappedModel):
        return math.nan
    return Costs(model).latency(LayerPlan(range(1, model.depth + 1)), 1)
