"""Are two models the same up to a map? Aligners fitted on the same texts, layer by layer, and scored on others.

The study of Ren et al. 2023, table 4 and figures 2 to 5, with its table and its figures. Every aligner is kept in the
store.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.alignment.align import Fitting, Place, fit_all
from layerscope.alignment.aligner import Aligner, Options, check_methods, options_for, usable
from layerscope.alignment.alignment_error import relative_without
from layerscope.alignment.linear_maps import held_out_pwcca
from layerscope.alignment.model_pairs import Attention, Correspondence, ModelSide, States
from layerscope.data import Examples, TaskSource
from layerscope.data import task as open_task
from layerscope.drawing.captions import caveat, numbers
from layerscope.drawing.figure import HeatmapAxis
from layerscope.drawing.figures.bars import BarsFigure
from layerscope.drawing.figures.box import BoxFigure
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.drawing.figures.heatmap import HeatmapFigure
from layerscope.engine import check_engine
from layerscope.errors import InputError, LayerscopeError, check_count, check_seed, choose, log
from layerscope.evaluation.evaluator import GROUPS, groups_of
from layerscope.extraction.pooling import Reading
from layerscope.models import Model, load
from layerscope.models.load import ModelSource, labels_of
from layerscope.results import Finding, NextStep, Tabled, provenance_of
from layerscope.results.finding import ANSWER, NO_INTERVAL, SUPPORT, interval, rows, widened
from layerscope.similarity.registry import measure

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
    """A table with figures and summaries that are made from it; the base of the studies of alignment.

    `left_out` has, for each row, its error without each group of texts, or for injections the loss.
    """

    def __repr__(self) -> str:
        methods = ", ".join(map(str, self._frame["method"].unique()))
        return f"{type(self).__name__}({methods}; {len(self._frame)} rows)"


class AlignmentStudy(Study):
    """How well the layers of some models map onto those of others; `ls.alignment_study` makes one.

    `frame` has one row per pair of models, pair of layers, method and split: source, target, layer, target_layer,
    method, split, n, the errors with their intervals, and for PWCCA its `similarity` instead of an error. Directions
    and weights of that are found on the rows that aligners learn from, and on test rows the correlations along them are
    measured. `summary` averages it.
    """

    name = "alignment"

    @property
    def summary(self) -> pandas.DataFrame:
        """One row per method: mean and standard deviation over pairs and layers, on train and test rows (table 4).

        Layer 0, the embeddings, is not among the layers that are averaged, unless there is no other.
        """
        import pandas

        names = [name for name in ("mse", "relative", "similarity") if name in self._frame]
        above = self._frame[(self._frame["layer"] > 0) & (self._frame["target_layer"] > 0)]
        rows = []
        for method, part in (above if len(above) else self._frame).groupby("method", sort=False):
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

    def findings(self) -> list[Finding]:
        """What maps between layers of the same number leave unexplained: in the highest layer, and over the layers."""
        scored = self._scored
        scored = scored[scored["layer"] == scored["target_layer"]]
        if not len(scored):
            return []
        errors = scored.groupby(["layer", "method"], sort=False)["relative"].mean().unstack(sort=False)
        findings = [_at_the_top(scored[scored["layer"] == errors.index.max()])]
        best = errors.min(axis=1)
        if len(best) > 2:
            text = (
                f"Over the layers the best map leaves between {best.min():.0%} (layer {best.idxmin()}) and "
                f"{best.max():.0%} (layer {best.idxmax()}) of the spread unexplained."
            )
            evidence = f"means over pairs of models; {NO_INTERVAL} for the difference"
            findings.append(Finding(text, evidence, None, SUPPORT))
        return findings

    def next_step(self) -> NextStep | None:
        """The injection of one model's states into the other, where there are two models."""
        pair = tuple(dict.fromkeys(str(model.get("name", "")) for model in self.provenance.get("models", ())))[:2]
        why = "See whether one works on the other's states"
        return NextStep("inject", ("-o", "injected"), why, pair) if len(pair) == 2 else None

    def plot(self, path: str | Path | None = None, ax: Axes | None = None) -> Axes:
        if not len(self._scored):
            raise InputError("The study has no relative error on test rows that is defined; there is nothing to draw.")
        return super().plot(path, ax)

    @property
    def _scored(self) -> pandas.DataFrame:
        """The rows of the table that are drawn: defined errors on test rows."""
        if "relative" not in self._frame:  # similarities alone
            return self._frame[:0]
        return self._frame[(self._frame["split"] == "test") & self._frame["relative"].notna()]


def _at_the_top(scored: pandas.DataFrame) -> Finding:
    """What every method leaves unexplained in one layer, and whether the best one explains anything."""
    layer, means = scored["layer"].iloc[0], scored.groupby("method", sort=False)["relative"].mean()
    shares = ", ".join(f"{method} {value:.0%}" for method, value in means.items())
    pairs = scored[["source", "target"]].drop_duplicates()
    between = (
        f"from {pairs['source'].iloc[0]} to {pairs['target'].iloc[0]}"
        if len(pairs) == 1
        else f"between {len(pairs)} pairs of models, on average"
    )
    text = (
        f"Maps {between} at layer {layer}, on texts that they did not learn from, leave this much of the spread "
        f"unexplained: {shares}."
    )
    best = str(means.idxmin())
    own = scored[scored["method"] == best]
    low, high = (float(own[name].iloc[0]) if len(own) == 1 and name in own else math.nan for name in _ERRORS[1:])
    if math.isnan(low):
        what = NO_INTERVAL if len(own) == 1 else f"means over {len(own)} pairs of models"
        return Finding(text, what + rows(own["n"].iloc[0]), None, ANSWER)
    # The best of several maps was picked, so its interval is widened before it is held against the mean's error, 1.
    _, highest = widened(float(means[best]), low, high, len(means))
    verb = "leaves" if highest < 1 else "is not shown to leave"
    text += f" The best, {best}, {verb} less than the mean of the texts does."
    return Finding(text, f"{best}: {interval(low, high)}{rows(own['n'].iloc[0])}", bool(highest < 1), ANSWER)


def _curves(scored: pandas.DataFrame) -> CurveFigure:
    """The errors of every method over the layers; with a single pair of models, their intervals too."""
    pairs = len(scored[["source", "target"]].drop_duplicates())
    spread = "bands are 95% intervals over texts" if pairs == 1 else f"the mean over {pairs} pairs of models"
    series = []
    for method, part in scored.groupby("method", sort=False):
        means = part.groupby("layer")[list(_ERRORS)].mean()
        layers = tuple(float(layer) for layer in means.index)
        names = _ERRORS if pairs == 1 else _ERRORS[:1]
        series.append(Series(str(method), layers, *(tuple(map(float, means[name])) for name in names)))
    return CurveFigure(
        title="Relative error of every method over the layers",
        shows=f"{_SHOWS}; {spread}.",
        reading=_READING,
        caveat=_caveat(scored),
        series=tuple(series),
        x_name="layer",
        y_name=_RELATIVE,
        n=_least(scored),
    )


def _layer_boxes(method: str, rows: pandas.DataFrame) -> BoxFigure:
    """The errors of one method over pairs of models, a box for each layer."""
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
    """The errors at a single layer over pairs of models, a box for each method."""
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
    """The errors at a single layer of one pair of models, a bar for each method."""
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
    """The errors of one method from every layer to every layer."""
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
        rows=HeatmapAxis("from layer", (models[0],) * len(layers[0]), layers[0]),
        columns=HeatmapAxis("to layer", (models[1],) * len(layers[1]), layers[1]),
        value_name=_RELATIVE,
        scale=(0.0, 1.0),
        n=_least(rows),
        group="Every layer mapped to every other",
        facets={"method": method},
    )


def _caveat(rows: pandas.DataFrame) -> str:
    """What a reader of the errors should know."""
    return caveat("An invertible network and a linear map differ in more than what they can express.", _least(rows))


def _least(rows: pandas.DataFrame) -> int:
    """The least number of rows that any error was measured on."""
    return int(rows["n"].min())


SIMILARITY = "pwcca"  # it weights correlations and gives no map, so the tables show its similarity
WHAT = ("states", "attention")
AGAINST = ("same", "every")
SPLITS = ("train", "test")

Sides = tuple[ModelSide, ModelSide]  # the rows of one model that aligners learn from, and those that they are scored on


def alignment_study(
    models: Mapping[str, ModelSource] | Sequence[ModelSource],
    task: TaskSource,
    *,
    layers: Sequence[int] | None = None,
    methods: Sequence[str] | None = None,
    pairs: int | str = 8,
    representation: str = "states",
    target_layers: str = "same",
    pool: str = "mean",
    train: int = 1600,
    test: int = 1600,
    max_length: int = 128,
    seed: int = 0,
    options: Options | None = None,
    engine: str = "local",
) -> AlignmentStudy:
    """Fit every method from each model to another, on some texts, and score it on those and on others.

    Args:
        models: Two models or more, or one with `target_layers="every"`; in Python a mapping gives them names.
        task: A task of the registry (`layerscope tasks` lists them), a file, a folder, a hub id, or a `Task`.
        layers: Only these layers: `8`, `0,4,8` or `6-12`; all if not given.
        methods: Alignment methods, and `pwcca` for its similarity, separated by commas; all that fit the widths if not
            given.
        pairs: How many ordered pairs of models are drawn; `all` for every two models once, so 300 pairs of 25.
        representation: What is mapped: `states`, or `attention` for attention weights: one row per pair of words (of
            tokens where the task has no words), one column per attention head.
        target_layers: `same` maps each layer to that of the same number, `every` to every layer (figure 3).
        pool: How token states become rows.
        train: How many texts aligners learn from.
        test: How many texts they are scored on.
        max_length: The longest text in tokens.
        seed: Decides pairs, folds and networks.
        options: A method's own options, such as `{"inn": {"steps": 500}}`.
        engine: Where the fits run: `local` (one after another, here), `processes:N`, `ray` or `ray:ADDRESS`.

    Returns:
        The study: `frame` has one row per pair of models, pair of layers, method and split, with intervals over texts;
        `summary` one per method.

    Example:
        >>> import pandas
        >>> import layerscope as ls
        >>> texts = pandas.DataFrame({"text": [f"{word} {k}" for word in ("file", "list") for k in range(20)]})
        >>> seeds = ["garden:bert-s0", "garden:bert-s1"]
        >>> study = ls.alignment_study(seeds, texts, methods=["mean", "linear"], layers=[4], pairs=1)
        >>> study.summary["method"].tolist()
        ['mean', 'linear']
        >>> sorted(study.frame["split"].unique())
        ['test', 'train']
    """
    import pandas

    check_methods(methods, options, SIMILARITY)
    choose("alignment of", representation, WHAT)
    choose("alignment against", target_layers, AGAINST)
    check_seed(seed)
    check_engine(engine)
    reading = Reading(pool, max_length=max_length)
    opened = _opened(models)
    parts = parts_of(open_task(task), train, test)
    drawn = _pairs(list(opened), pairs, target_layers, seed)
    sides = _sides(
        {name: opened[name] for pair in drawn for name in pair}, parts, layers, representation, reading, seed
    )
    comparisons = []
    for pair in drawn:
        source, target = (sides[name] for name in pair)
        places = _places(source[0], target[0], target_layers)
        chosen = methods if methods is not None else [*usable(source[0].width, target[0].width, options), SIMILARITY]
        for method in chosen:
            fitting = None
            if method != SIMILARITY:
                given, device = options_for(method, options), target[0].model.device
                fitting = Fitting(source[0], target[0], places, method, seed, given, device)
            comparisons.append(_Comparison(pair, source, target, places, method, fitting))
    asked = [(c.fitting, c.name) for c in comparisons if c.fitting is not None]
    fitted = iter(fit_all([fitting for fitting, _ in asked], "alignment", engine, [name for _, name in asked]))
    scored = [row for c in comparisons for row in c.scored(next(fitted) if c.fitting is not None else None)]
    rows, left_out = [row for row, _ in scored], np.asarray([without for _, without in scored])
    settings = {
        "methods": list(dict.fromkeys(c.method for c in comparisons)),
        "layers": None if layers is None else [int(layer) for layer in layers],
        "pairs": len(drawn),
        "of": representation,
        "against": target_layers,
        "pool": pool if representation == "states" else None,
        "train": train,
        "test": test,
        "max_length": max_length,
        "seed": seed,
        "options": {name: dict(given) for name, given in options.items()} if options else None,
    }
    provenance = provenance_of([side.model for side, _ in sides.values()], parts[1], settings)
    return AlignmentStudy(pandas.DataFrame(rows), provenance, left_out)


@dataclass(frozen=True)
class _Comparison:
    """One method between the layers of one pair of models."""

    pair: tuple[str, str]
    source: Sides
    target: Sides
    places: Sequence[Place]
    method: str
    fitting: Fitting | None  # None for a similarity, which has no map

    @property
    def name(self) -> str:
        """The name of its fitting as a job."""
        return f"{self.method} from {self.pair[0]} to {self.pair[1]}"

    def scored(self, aligners: Sequence[Aligner] | None) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
        """One row of the table per pair of layers and split, each with its error without each group of texts."""
        for k, (a, b) in enumerate(self.places):
            for part, split in enumerate(SPLITS):
                x, y = self.source[part][a], self.target[part][b]
                row = {"source": self.pair[0], "target": self.pair[1], "layer": a, "target_layer": b}
                row |= {"method": self.method, "split": split, "n": len(x)}
                texts, without = self.source[part].texts, np.full(GROUPS, np.nan)  # few texts make fewer groups
                if aligners is None:
                    learned = self.source[0][a], self.target[0][b]
                    held_out = held_out_pwcca(learned, (x, y)) if part else measure(self.method)(x, y)
                    yield {**row, "similarity": held_out}, without
                else:
                    errors = aligners[k].error(x, y, texts=texts)
                    left_out = relative_without(aligners[k](x), y, groups_of(texts))
                    without[: len(left_out)] = left_out
                    yield {**row, **errors, "round_trip": aligners[k].report_["round_trip"]}, without


def parts_of(task: Any, train: int, test: int) -> tuple[Examples, Examples]:
    """The texts to learn from and those to score; no text is in both, and so no two words of one text are.

    Maps need no labels: where the split that would be scored has fewer texts than were asked for, the split `test`
    serves if it has more. What is still missing is said.
    """
    check_count(train, "train")
    check_count(test, "test")
    learned, scored = task.parted(test / (train + test), limits=(train, test))
    if len(scored) < test and "test" in task.splits and "test" not in (learned.split, scored.split):
        try:
            others = task.split("test", limit=test)
            scored = others if len(others) > len(scored) else scored
        except LayerscopeError as error:  # it is on the hub alone, perhaps
            log.info("The split test of %s cannot be read, so %s is scored: %s", task.name, scored.split, error)
    for what, part, asked in (("learn from", learned, train), ("score", scored, test)):
        if len(part) < asked:
            log.warning(
                "%d texts of %s (%s) serve to %s, where %d were asked for: there are no more.",
                len(part),
                task.name,
                part.split,
                what,
                asked,
            )
    return learned, scored


def _sides(
    models: Mapping[str, Model],
    parts: tuple[Examples, Examples],
    layers: Sequence[int] | None,
    of: str,
    reading: Reading,
    seed: int,
) -> dict[str, Sides]:
    """The sides of each model: its rows of both parts of the texts, which are not read yet."""
    correspondences = [Correspondence() for _ in parts]

    def side(model: Model, part: int) -> ModelSide:
        if of == "attention":
            return Attention(model, parts[part], layers, reading.max_length, correspondences[part], seed)
        return States(model, parts[part], layers, reading, correspondences[part])

    return {name: (side(model, 0), side(model, 1)) for name, model in models.items()}


def _opened(models: Mapping[str, Any] | Sequence[Any]) -> dict[str, Model]:
    """The models, loaded, by name; equal names are numbered."""
    if isinstance(models, Mapping):
        return {str(name): load(model) for name, model in models.items()}
    loaded = [load(model) for model in models]
    labels = labels_of(loaded)
    return {
        label if labels.count(label) == 1 else f"{label} ({k + 1})": model
        for k, (label, model) in enumerate(zip(labels, loaded, strict=True))
    }


def _pairs(names: Sequence[str], count: int | str, target_layers: str, seed: int) -> list[tuple[str, str]]:
    """At most `count` ordered pairs of different models, drawn at random; a model with itself where it is alone.

    With `all` every two models are a pair once, from the one that was given first to the other.
    """
    if isinstance(count, str) and count != "all" and not count.lstrip("-").isdigit():
        raise InputError(f"pairs is {count!r}; it must be a number of at least 1, or all.")
    if count != "all" and (count := int(count)) < 1:
        raise InputError(f"pairs is {count}; it must be at least 1.")
    if len(names) == 1:
        if target_layers == "same":
            raise InputError(
                "One model was given; an alignment study maps between two or more, or with target_layers='every' "
                "(--target-layers every) between the layers of one."
            )
        return [(names[0], names[0])]
    if isinstance(count, str):
        return list(combinations(names, 2))
    if count == 1 and len(names) == 2:
        return [(names[0], names[1])]  # as they were given
    everything = list(permutations(names, 2))
    places = np.random.default_rng(seed).permutation(len(everything))[:count]
    return [everything[k] for k in sorted(places)]


def _places(source: ModelSide, target: ModelSide, target_layers: str) -> list[Place]:
    """The pairs of layers between which aligners are fitted."""
    if target_layers == "every":
        return [(a, b) for a in source.layers for b in target.layers]
    common = [layer for layer in source.layers if layer in target.layers]
    if not common:
        raise InputError(
            "The two models have no layer of the same number; use target_layers='every' (--target-layers every)."
        )
    return [(layer, layer) for layer in common]
