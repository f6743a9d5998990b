"""A similarity: the matrix of a measure over two lists of layers, its labels and provenance, its file and figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, field_validator

from layerscope.arguments import checked
from layerscope.drawing.captions import UNDEFINED, caveat
from layerscope.drawing.figure import HeatmapAxis
from layerscope.drawing.figures.heatmap import HeatmapFigure
from layerscope.drawing.render import draw, draw_panels
from layerscope.errors import DataError, InputError, first_line
from layerscope.registry import MEASURES
from layerscope.results import Finding, NextStep, Result, read_table
from layerscope.results.finding import (
    ANSWER,
    DETAIL,
    SIGNIFICANT,
    SPECIALTY,
    SUPPORT,
    apart,
    extreme,
    interval,
    number,
    rows,
    with_head,
)
from layerscope.similarity.registry import CALIBRATED, CALIBRATED_DISTANCE, FORMULAS
from layerscope.store import Saved, shaped

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from layerscope.drawing.figure import Figure


# What may stand beside the values, and its column in the table.
_EXTRAS = {
    "low": "low",
    "high": "high",
    "bias": "bias",
    "debiased": "debiased",
    "baseline": "baseline",
    "p_values": "p_value",
    "calibrated": "calibrated",
}
_ENOUGH = 4  # findings after which no further pair of models is told
_Pair = Field(min_length=2, max_length=2)


class Best(Saved):
    """The most similar pair of different layers, set beside the best that shuffled texts give among as many pairs."""

    row: str
    column: str
    value: float
    baseline: float
    p_value: float
    calibrated: float


class SimilarityCard(Saved):
    """The metadata in the Parquet file of a similarity, beside its table."""

    measure: str
    options: dict[str, Any]
    n: int
    bounds: list[float] = _Pair
    shape: list[Annotated[int, Field(ge=1)]] = _Pair
    layers: list[list[int]] = _Pair
    extras: list[Literal["low", "high", "bias", "debiased", "baseline", "p_values", "calibrated"]]
    best: Best | None = None
    distance: bool = False
    provenance: dict[str, Any]

    @field_validator("provenance")
    @classmethod
    def _objects(cls, value: dict[str, Any]) -> dict[str, Any]:
        if not all(isinstance(value.get(name, {}), dict) for name in ("data", "settings")):
            raise ValueError("data and settings are objects")
        return value


def _matrix(frame: pandas.DataFrame, name: str, shape: tuple[int, int]) -> np.ndarray:
    """A column of numbers, in the shape of the matrix that it was made from."""
    values = frame[name].to_numpy()
    if values.dtype.kind not in "fiu":
        raise ValueError(f"{name} holds no numbers")
    return values.astype(float).reshape(shape)


def _texts(frame: pandas.DataFrame, name: str) -> tuple[str, ...]:
    """A column of texts, as a tuple."""
    values = tuple(frame[name])
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} holds no texts")
    return values


@dataclass(frozen=True)
class Axis:
    """The layers along one side of a matrix, each of some model."""

    models: tuple[str, ...]  # the model of each entry
    layers: tuple[int, ...]  # the layer of each entry
    names: tuple[str, ...]  # what each layer is called: its number, unless it was given a name

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def labels(self) -> list[str]:
        """`3`, or `model:3` where there are several models."""
        several = len(set(self.models)) > 1
        return [f"{m}:{name}" if several else name for m, name in zip(self.models, self.names, strict=True)]

    @property
    def side(self) -> HeatmapAxis:
        """The axis in the form that figures take."""
        models = dict.fromkeys(self.models)
        name = f"layer of {next(iter(models))}" if len(models) == 1 else "model and layer"
        return HeatmapAxis(name, tuple(map(str, self.models)), self.names)


@dataclass(repr=False)
class Similarity(Result):
    """`values[i, j]` is the measure of row layer i and column layer j; NaN where undefined, with the reason.

    Attributes:
        values: The matrix; `rows` and `columns` are its layers' labels.
        row_axis: The models and layers of the rows.
        column_axis: The same of the columns.
        measure: The measure's name.
        options: The measure's options.
        n: How many rows of states (or sentences) it is measured on.
        reasons: Why a cell is undefined, by its place.
        bounds: The least and the greatest value that the measure can have.
        provenance: Models, data, settings and versions.
        low: The lower end of an interval, where one was asked for.
        high: The upper end.
        left_out: The values without each group of texts in turn (groups, rows, columns), which intervals are made of.
        bias: The jackknife's estimate of how far the values are off for lack of rows, with intervals.
        debiased: The values less that bias; beside `cka` those of `cka_debiased`.
        baseline: The mean that shuffled texts give, where that was asked for.
        p_values: How often shuffled texts give as much, with `baseline=200`. Where texts differ in length, this and
            what follows are over the rows that have a counterpart in texts of about the same length.
        calibrated: The similarity above chance, with `baseline=200`: max(0, (s - tau) / (1 - tau)), tau the 95th
            percentile of what shuffled texts give.
        best: The most similar pair of different layers, with its p-value and calibrated similarity: the best that
            shuffled texts give among as many pairs is what it is set beside.
        heads: For each cell the values by attention head, of measures that have them.
        distance: Whether lower is more alike, as with `angular`. P-values, `calibrated` and `best` allow for it.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> rows = np.random.default_rng(0).normal(size=(50, 4))
        >>> similarity = ls.compare([rows, rows + 1], [rows])
        >>> similarity.values.shape, similarity.n, len(similarity.frame)
        ((2, 1), 50, 2)
    """

    name = "similarity"

    values: np.ndarray
    row_axis: Axis
    column_axis: Axis
    measure: str
    options: dict[str, Any]
    n: int
    reasons: dict[tuple[int, int], str] = field(default_factory=dict)
    bounds: tuple[float, float] = (0.0, 1.0)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    baseline: np.ndarray | None = None
    heads: dict[tuple[int, int], np.ndarray] | None = None  # (heads of i, heads of j) for each cell
    left_out: np.ndarray | None = None  # (groups, rows, columns)
    bias: np.ndarray | None = None
    debiased: np.ndarray | None = None
    p_values: np.ndarray | None = None
    calibrated: np.ndarray | None = None
    best: Best | None = None
    distance: bool = False

    @property
    def matches(self) -> dict[tuple[int, int], np.ndarray]:
        """Of attention: for each head of row layer i the head (from 0) of column layer j most like it; -1 if none."""
        if self.heads is None:
            able = ", ".join(name for name, m in MEASURES.items() if m.by_head)
            raise InputError(f"{self.measure} does not match attention heads; {able} do.")
        return {cell: matched(values) for cell, values in self.heads.items()}

    @property
    def rows(self) -> list[str]:
        return self.row_axis.labels

    @property
    def columns(self) -> list[str]:
        return self.column_axis.labels

    @property
    def frame(self) -> pandas.DataFrame:
        """One row per pair of layers: row_model, row_layer, column_model, column_layer, measure, value, low, high,
        bias, debiased, baseline, p_value, calibrated, n, reason."""
        import pandas

        records = []
        for i in range(len(self.row_axis)):
            for j in range(len(self.column_axis)):
                record = {
                    "row_model": self.row_axis.models[i],
                    "row_layer": self.row_axis.names[i],
                    "column_model": self.column_axis.models[j],
                    "column_layer": self.column_axis.names[j],
                    "measure": self.measure,
                    "value": float(self.values[i, j]),
                }
                for name, column in _EXTRAS.items():
                    extra = getattr(self, name)
                    record[column] = math.nan if extra is None else float(extra[i, j])
                records.append({**record, "n": self.n, "reason": self.reasons.get((i, j), "")})
        return pandas.DataFrame(records)

    def arrow(self) -> Any:
        """The table, with a column of lists for attention heads and for groups left out, where there are any."""
        import pyarrow

        table = super().arrow()
        if self.left_out is not None:
            groups = self.left_out.reshape(len(self.left_out), -1).T
            table = table.append_column("left_out", pyarrow.array(list(groups)))
        if self.heads is not None:
            cells = [self.heads[cell].tolist() for cell in np.ndindex(self.values.shape)]
            table = table.append_column("heads", pyarrow.array(cells))
        return table

    def card(self) -> dict[str, Any]:
        return {
            "measure": self.measure,
            "options": self.options,
            "n": self.n,
            "bounds": self.bounds,
            "shape": self.values.shape,
            "layers": [list(self.row_axis.layers), list(self.column_axis.layers)],
            "extras": [name for name in _EXTRAS if getattr(self, name) is not None],
            "best": None if self.best is None else self.best.model_dump(),
            "distance": self.distance,
        }

    @staticmethod
    @checked
    def load(path: str | Path) -> Similarity:
        """The similarity in a Parquet file that `save` wrote."""
        frame, card = read_table(path, Similarity.name)
        try:
            return Similarity._restored(frame, dict(shaped(card, SimilarityCard)))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise DataError(f"{path} is damaged ({first_line(error)}); make it again.") from error

    @staticmethod
    def _restored(frame: pandas.DataFrame, card: Mapping[str, Any]) -> Similarity:
        """The similarity of a saved table and its metadata; raises ValueError where they do not fit."""
        rows, columns = card["shape"]
        if [len(layers) for layers in card["layers"]] != [rows, columns]:
            raise ValueError("its layers are not those of its matrix")
        first, top = frame.iloc[::columns], frame.iloc[:columns]
        reasons = {divmod(k, columns): str(reason) for k, reason in enumerate(frame["reason"]) if reason}
        heads = {divmod(k, columns): np.stack(list(cell)) for k, cell in enumerate(frame.get("heads", ()))}
        values = _matrix(frame, "value", (rows, columns))
        if any((int(i), int(j)) not in reasons for i, j in np.argwhere(~np.isfinite(values))):
            raise ValueError("a value is undefined and no reason is given")
        return Similarity(
            values,
            Axis(_texts(first, "row_model"), tuple(card["layers"][0]), _texts(first, "row_layer")),
            Axis(_texts(top, "column_model"), tuple(card["layers"][1]), _texts(top, "column_layer")),
            card["measure"],
            card["options"],
            card["n"],
            reasons,
            tuple(card["bounds"]),
            card["provenance"],
            **{name: _matrix(frame, _EXTRAS[name], (rows, columns)) for name in card["extras"]},
            best=card["best"],
            distance=card["distance"],
            heads=heads or None,
            left_out=np.stack(list(frame["left_out"]), axis=-1).reshape(-1, rows, columns)
            if "left_out" in frame
            else None,
        )

    def figures(self) -> list[Figure]:
        above = [] if self.calibrated is None else [calibrated_heatmap(self)]
        return [self.heatmap(), *above]

    def findings(self) -> list[Finding]:
        """What shuffled texts say of the most similar pair of layers, and how the layers lie to one another.

        That is the largest step inside each model, and how like the same layers of two models are.
        """
        frame = self.frame
        findings: list[Finding] = []
        for (first, second), part in frame[frame["value"].notna()].groupby(["row_model", "column_model"], sort=False):
            if first == second:
                findings += _largest_step(self, part, str(first) if frame["row_model"].nunique() > 1 else "")
            elif len(findings) < _ENOUGH:
                findings += _between_models(self, part, str(first), str(second))
        if told := self.provenance.get("data", {}).get("learned"):
            findings.append(Finding(str(told), "", None, SUPPORT))
        return findings if self.best is None else [_above_chance(self), *findings]

    def next_step(self) -> NextStep:
        """What chance gives, where that is not known yet; else what each cut costs, or which layers to tune."""
        entry = MEASURES.get(self.measure)
        if self.baseline is None and not (entry is not None and entry.needs == "attention"):  # which has no baseline
            more = (*(() if self.low is not None else ("--ci", "0.95")), "--baseline", "200")
            arguments = ("--measure", self.measure, "--ci", "0.95", "--baseline", "200", "-o", "compared")
            models = tuple(str(model.get("name", "")) for model in self.provenance.get("models", ()))
            return NextStep("compare", arguments, "Add intervals, and what chance gives", models, again=more)
        headed = with_head(self.provenance.get("models", ()))
        if not headed:
            return SPECIALTY
        why = "See what each cut of the top blocks costs"
        return NextStep("truncate", ("--curve", "-o", "truncated"), why, (headed[0],))

    def heatmap(self) -> HeatmapFigure:
        """The matrix as a heat map."""
        return heatmap(self)

    def plot_heads(
        self, row: int | str, column: int | str, path: str | Path | None = None, ax: Axes | None = None
    ) -> Axes:
        """Every attention head of one layer with every head of another, the matches marked; layers by their labels."""
        return draw(self.head_heatmap(row, column), path, ax)

    def head_heatmap(self, row: int | str, column: int | str) -> HeatmapFigure:
        """The attention heads of two layers, by their labels: values, and a ring around each row's match."""
        return head_heatmap(self, self._place(row, self.rows, "row"), self._place(column, self.columns, "column"))

    @staticmethod
    def _place(label: int | str, labels: list[str], side: str) -> int:
        """The place of a layer's label along one side."""
        if str(label) not in labels:
            raise InputError(f"There is no {side} layer {label!r}; there are {', '.join(labels)}.")
        return labels.index(str(label))

    def __repr__(self) -> str:
        undefined = int(np.isnan(self.values).sum())
        gaps = f", {undefined} undefined" if undefined else ""
        return f"Similarity({self.measure}, {len(self.row_axis)} x {len(self.column_axis)} layers, n = {self.n}{gaps})"


def matched(heads: np.ndarray) -> np.ndarray:
    """(H,) for each head of the first layer (rows) the head of the second that is most like it; -1 if none is."""
    filled = np.where(np.isnan(heads), -np.inf, heads)
    return np.where(np.isneginf(filled.max(axis=1)), -1, filled.argmax(axis=1))


def panels(similarities: Mapping[str, Similarity] | Sequence[Similarity], path: str | Path) -> None:
    """Draw several heat maps side by side on one colour scale, under the names of a mapping if one is given.

    Args:
        similarities: The similarities, or a mapping from a name to each.
        path: The file to write: PNG, SVG or PDF.

    Example:
        >>> import numpy as np, tempfile, layerscope as ls
        >>> rows = np.random.default_rng(0).normal(size=(50, 4))
        >>> cka, svcca = ls.compare([rows, rows**2], measure=["cka", "svcca"]).values()
        >>> ls.panels({"CKA": cka, "SVCCA": svcca}, f"{tempfile.mkdtemp()}/both.png")
    """
    named = isinstance(similarities, Mapping)
    each = list(similarities.values() if isinstance(similarities, Mapping) else similarities)
    names = [str(name) for name in similarities] if named else [s.measure for s in each]
    titles = [s.measure if name == s.measure else f"{name}: {s.measure}" for name, s in zip(names, each, strict=True)]
    figures = [replace(s.heatmap(), title=f"{title}, n = {s.n:,}") for s, title in zip(each, titles, strict=True)]
    draw_panels(figures, path)


def heatmap(similarity: Similarity) -> HeatmapFigure:
    """The heat map of the matrix, with intervals, biases and baselines for each cell."""
    entry = MEASURES.get(similarity.measure)
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
    """The heat map of the calibrated values: what is left of the similarity above chance."""
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


def _above_chance(similarity: Similarity) -> Finding:
    """What shuffled texts say of the most similar pair of layers."""
    best = similarity.best
    assert best is not None
    end = "lowest" if similarity.distance else "highest"
    above = best.p_value < SIGNIFICANT
    text = (
        f"The {end} {similarity.measure} is {best.value:.3f}, of the layers {best.row} and {best.column}, and "
        f"{'is more than chance' if above else 'may be chance'}: among as many pairs of layers shuffled texts give "
        f"{best.baseline:.3f} at their best (p = {best.p_value:.3g}), and {best.calibrated:.3f} is left above chance."
    )
    return Finding(text, "", bool(above), DETAIL)


def _apart(similarity: Similarity, part: pandas.DataFrame, place: Any) -> pandas.Series | None:
    """Which pairs of layers in a part of the table are told apart from one of them; None without intervals."""
    without = similarity.left_out
    return apart(part, "value", place, None if without is None else without.reshape(len(without), -1))


def _largest_step(similarity: Similarity, part: pandas.DataFrame, model: str) -> list[Finding]:
    """The pair of neighbouring layers of one model that is least alike; none where there are too few layers."""
    measure, far = similarity.measure, similarity.distance
    order = list(dict.fromkeys(part["row_layer"]))
    place = {layer: k for k, layer in enumerate(order)}
    near = part[
        [place.get(b, -9) == place[a] + 1 for a, b in zip(part["row_layer"], part["column_layer"], strict=True)]
    ]
    if len(near) < 2:
        return []
    step = extreme(near, "value", most=far)
    others = near.drop(step.name)
    nearest = float(others["value"].max() if far else others["value"].min())
    differ = _apart(similarity, near, step.name)
    sure = None if differ is None else bool(differ.drop(step.name).all())
    whose = f" of {model}" if model else ""
    text = (
        f"The largest step{whose} is from layer {step['row_layer']} to layer {step['column_layer']}: {measure} is "
        f"{number(step['value'])} there, and {number(others['value'].mean())} on average between other neighbouring "
        f"layers."
    )
    bounds = "" if sure is None else f"{interval(step['low'], step['high'])}; "
    return [Finding(text, f"{bounds}the next largest step has {number(nearest)}{rows(similarity.n)}", sure, SUPPORT)]


def _between_models(similarity: Similarity, part: pandas.DataFrame, first: str, second: str) -> list[Finding]:
    """The layers of the same number in two models that are most and least alike; the best pair where none are."""
    measure, far, n = similarity.measure, similarity.distance, similarity.n
    same = part[part["row_layer"] == part["column_layer"]]
    if len(same) < 2:
        best = part.sort_values("value", ascending=far).iloc[0]
        text = (
            f"Of {first} and {second}, layers {best['row_layer']} and {best['column_layer']} are most alike: {measure} "
            f"{number(best['value'])}."
        )
        evidence = f"{interval(best['low'], best['high'])}{rows(n)}; the best of {len(part)} pairs"
        return [Finding(text, evidence, None, ANSWER)]
    order = same.sort_values("value", ascending=far)
    most, least = order.iloc[0], order.iloc[-1]
    differ = _apart(similarity, same, least.name)
    text = (
        f"{first} and {second} are less alike in layer {least['row_layer']} ({measure} {number(least['value'])}) than "
        f"in layer {most['row_layer']} ({number(most['value'])}), the ends of their range; the mean over layers is "
        f"{number(same['value'].mean())}."
    )
    evidence = f"layer {least['row_layer']}: {interval(least['low'], least['high'])}{rows(n)}"
    findings = [Finding(text, evidence, None if differ is None else bool(differ[order.index[0]]), ANSWER)]
    if not math.isnan(p := float(least["p_value"])):
        # It speaks of all layers through the one that speaks most against it, so the choice needs no allowance.
        above = p < SIGNIFICANT
        text = (
            f"Even there they {'share more than chance' if above else 'are not shown to share more than chance'}: "
            f"shuffled texts give {measure} {number(least['baseline'])}."
        )
        findings.append(Finding(text, f"p = {p:.2g}{rows(n)}", above, DETAIL))
    return findings


def _reading(similarity: Similarity) -> str:
    """How the heat map is read, in sentences."""
    first = similarity.row_axis.names[0]
    lowest = "layer 0 (the embeddings)" if first == "0" else f"layer {first}"
    high = similarity.bounds[1]
    ends = f"{high:g} is the most it can be" if np.isfinite(high) else "higher is more alike"
    square, band = "bright", "dark"
    if similarity.distance:
        ends, square, band = "lower is more alike", "dark", "bright"
    text = (
        f"Each cell is one pair of layers: {lowest} is at the lower left, and {ends}. A {square} square along the "
        f"diagonal is a run of layers that hold the same thing; a {band} band is where they part."
    )
    if similarity.low is not None:
        text += " The interval is a delete-a-group jackknife over texts; the bias is what few rows add to the value."
    if similarity.baseline is None:
        return text + " --baseline 200 adds what shuffled texts give."
    text += " The baseline is what shuffled texts give: a value near it says nothing."
    if "baseline" in similarity.provenance:
        rows = similarity.provenance["baseline"]["rows"]
        text += f" It is over {rows:,} of {similarity.n:,} rows: those that texts of about one length all have."
    return text


def _over(similarity: Similarity) -> str:
    """The task, the split and the pool that the rows are of, in words."""
    data, settings = similarity.provenance.get("data", {}), similarity.provenance.get("settings", {})
    task, split, pool = data.get("task"), data.get("split"), settings.get("pool")
    words = f" of {task}" if task else ""
    words += f" ({split})" if task and split else ""
    return words + (f", pool {pool}" if pool else "")


def _scale(similarity: Similarity) -> tuple[float, float]:
    """The ends of the colour scale.

    They are 0 and 1 for measures with that range, the lower half of a distance's range if its values fit, and otherwise
    the least and the greatest value.
    """
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
    defined = values[np.isfinite(values)]
    return HeatmapFigure(
        title=f"Attention heads of layers {similarity.rows[row]} and {similarity.columns[column]}: "
        f"{similarity.measure} {similarity.values[row, column]:.3f}",
        shows=f"{similarity.measure} of every attention head of one layer with every head of another.",
        reading="A ring marks the head of the columns' layer that is most like the row's head.",
        group="Attention heads",
        facets={"measure": similarity.measure},
        values=values,
        rows=_head_side(similarity.row_axis, row, values.shape[0]),
        columns=_head_side(similarity.column_axis, column, values.shape[1]),
        value_name=similarity.measure,
        scale=(low if np.isfinite(low) else float(defined.min(initial=0.0)), high),
        reasons={(int(i), int(j)): "this pair of heads has no value" for i, j in np.argwhere(np.isnan(values))},
        marked=tuple((i, int(j)) for i, j in enumerate(matches) if j >= 0),
        n=similarity.n,
    )


def _head_side(axis: Axis, place: int, count: int) -> HeatmapAxis:
    """The axis of the attention heads of one layer."""
    name = f"attention heads of layer {axis.names[place]}, {axis.models[place]}"
    return HeatmapAxis(name, ("",) * count, tuple(map(str, range(count))))
