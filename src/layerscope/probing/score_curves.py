"""The curves of layer scores: from rows, or from one pass of a model over its texts that keeps rows or moments alone.

Without rows PRESS leaves out one of ten groups of texts at a time, exactly, since the moments of the rest are those of
all texts less the group's. nu needs moments in which classes weigh alike, one for each labelling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.data import Examples
from layerscope.distributed import Team
from layerscope.errors import InputError, some
from layerscope.extraction.loop import note_unread
from layerscope.extraction.pooling import Reading
from layerscope.extraction.representations import Representations, check_finite
from layerscope.extraction.row_store import Rows
from layerscope.extraction.stream import Batch, Streamer
from layerscope.models import Model
from layerscope.probing.labelled_rows import (
    add_intervals,
    check_choices,
    check_numbers,
    extreme,
    half,
    half_seeds,
    provenance_of_rows,
    several_classes,
)
from layerscope.probing.layer_score import LayerRows, LayerScore, targets
from layerscope.probing.permutation import add_null, permuted_labels
from layerscope.probing.scores.nu import class_weights
from layerscope.progress import progress
from layerscope.registry import LAYER_SCORES
from layerscope.resampling import folds, jackknifed
from layerscope.results import Curve, provenance_of
from layerscope.results.finding import label
from layerscope.similarity.moments import Moments

GROUPS = 10
ROOM = 2 << 30  # bytes of rows that a pass may keep in memory
SINGLE = ("cls", "mean", "last")  # pools that make one row of a text
_WAITING = 1 << 25  # numbers that wait in all groups to be multiplied
_FORM = f"one of {GROUPS} groups of texts left out at a time, exactly, from moments"


def score_curves(
    reps: Representations, several: Sequence[LayerScore], *, ci: float | None, null: int, seed: int
) -> dict[str, Curve]:
    """The curves of some layer scores, by name; what they share of a layer is made once."""
    scores = {score.name: score for score in several}
    check_finite(reps)
    check_choices(reps, several[0].name if len(scores) == 1 else "A layer score")
    texts = reps.rows.row
    labels = checked_labels(reps.labels, texts, several)
    labellings = np.vstack([labels[None], permuted_labels(labels, texts, null, seed)])
    masks = {
        count: np.stack([half(texts, labels, each) for each in half_seeds(count, seed)])
        for count in ({score.resamples for score in scores.values()} if ci is not None else ())
    }
    order = text_order(texts)
    texts, labels, labellings = texts[order], labels[order], labellings[:, order]
    masks = {count: mask[:, order] for count, mask in masks.items()}
    values: dict[str, list[np.ndarray]] = {name: [] for name in scores}
    draws: dict[str, list[np.ndarray]] = {name: [] for name in scores}
    with progress("layer scores", len(reps.layers), "layers") as advance:
        for at in reps.layers:
            layer = LayerRows(reps[at][order], texts)
            for name, score in scores.items():
                undefined = np.full(len(labellings), np.nan)
                values[name].append(score.values(layer, labellings) if layer.varies else undefined)
                if ci is not None:
                    drawn = masks[score.resamples]
                    undefined = np.full(len(drawn), np.nan)
                    draws[name].append(score.of_halves(layer, labels, drawn) if layer.varies else undefined)
            advance(1)
    curves = {}
    for name, score in scores.items():
        table = np.stack(values[name], axis=1)  # (labellings, layers)
        best = extreme(reps.layers, table[0], score.least)
        origin = provenance_of_rows(reps, **score.settings, null=null)
        curves[name] = curve_from(score, label(origin["models"][0]), reps.layers, table, origin, best)
        if ci is not None:
            add_intervals(curves[name], np.stack(draws[name], axis=1), score.least, score.within, ci)
    return curves


def text_order(texts: np.ndarray) -> Any:
    """What brings rows into an order in which those of a text follow one another: all as they are, or positions."""
    return slice(None) if (np.diff(texts) >= 0).all() else np.argsort(texts, kind="stable")


def curve_from(
    score: LayerScore,
    model: str,
    layers: Sequence[int],
    values: np.ndarray,
    origin: Mapping[str, Any],
    best: int | None,
) -> Curve:
    """The curve of a score from (labellings, layers) its values under the true labels, first, and permuted ones."""
    words = score.words
    curve = score.made(score.name, [model] * len(layers), list(layers), values[0], origin, best, words=words)
    curve.explain_gaps(score.undefined)
    if len(values) > 1:
        add_null(curve, values[1:], score.least)
    return curve


def checked_labels(labels: Any, texts: np.ndarray, scores: Sequence[LayerScore]) -> np.ndarray:
    """The labels as class numbers without gaps, or as numbers; raises InputError where a score has no meaning there."""
    noun, count = scores[0].name if len(scores) == 1 else "A layer score", len(np.unique(texts))
    fewest = max(score.fewest for score in scores)
    if count < fewest:
        raise InputError(f"{noun} leaves texts out and looks at the others; it needs {fewest}, and there are {count}.")
    if labels is not None and np.asarray(labels).dtype.kind == "f":
        if refused := [score.name for score in scores if not score.numbers]:
            fitting = [name for name in LAYER_SCORES if LAYER_SCORES[name].numbers]
            raise InputError(
                f"The labels are numbers, and {some(refused)} is defined for classes; take {some(fitting)}."
            )
        check_numbers(labels, noun)
        values = np.asarray(labels, dtype=float)
        if np.ptp(values) == 0:
            raise InputError(f"All {len(values):,} labels are {values[0]:g}, so there is nothing to tell.")
        return values
    values = several_classes(labels, noun)
    if len(values) == int(values.max()) + 1:
        raise InputError(
            f"Each of the {len(values)} rows has a class of its own, so no row says anything of another's class."
        )
    for score in scores:
        score.warn(values)
    return values


def rows_fit(rows: int, model: Model, scores: Sequence[LayerScore], null: int) -> bool:
    """Whether the rows of all layers, in float32, take little memory, or less than the moments in their place."""
    parts = {"": 0, "groups": GROUPS, "classes": null + 1}
    count = sum(parts[kind] for kind in {score.moments for score in scores})
    return 4 * rows * sum(model.widths) <= max(ROOM, 8 * count * sum(width**2 for width in model.widths))


def streamed_curves(
    model: Model,
    examples: Examples,
    scores: Sequence[LayerScore],
    *,
    keep: bool,
    pool: str,
    max_length: int,
    ci: float | None,
    null: int,
    seed: int,
) -> dict[str, Curve]:
    """The curves of some layer scores of a model, from one pass; texts have one row each.

    With `keep` the rows stay in memory, else only moments do: scores that need rows are refused, and intervals, where
    there are any, leave out one group of texts at a time.
    """
    labels = checked_labels(examples.labels, examples.rows, scores)
    labellings = np.vstack([labels[None], permuted_labels(labels, examples.rows, null, seed)])
    collectors: dict[str, Any] = {}
    if keep:
        collectors["rows"] = _Rows(examples, model)
    else:
        if refused := [score.name for score in scores if not score.moments]:
            raise InputError(
                f"{some(refused)} needs the rows, and without them there are second moments alone; give keep=True."
            )
        kinds = {"groups": _Groups, "classes": _Classes}
        weighting = next((score.settings["weighting"] for score in scores if "weighting" in score.settings), "class")
        for kind in {score.moments for score in scores}:
            collectors[kind] = kinds[kind](examples, model, labellings, weighting)
    streamer = Streamer([model], None, Reading(pool, max_length=max_length))
    team = Team.current()
    part = examples.take(slice(team.rank, None, team.size))
    title = f"{model.name} over {examples.task} ({examples.split})"
    tally = streamer.feed(part, list(collectors.values()), title)
    note_unread(tally, examples, [model], max_length)
    for collector in collectors.values():
        collector.reduce(team)
    if keep:
        reading = {"pool": pool, "max_length": max_length}
        reps = collectors["rows"].representations(examples, model, reading)
        return score_curves(reps, scores, ci=ci, null=null, seed=seed)
    curves, layers = {}, list(range(model.depth + 1))
    columns = len(targets(labellings, 0, 1)[0, 0])
    for score in scores:
        parts = collectors[score.moments].parts
        values, without = score.of_moments(parts, len(layers), columns, intervals=ci is not None)
        form = {"form": _FORM} if "form" in score.settings else {}
        settings = {"pool": pool, "max_length": max_length, **score.settings, **form, "null": null}
        origin, best = provenance_of([model], examples, settings), extreme(layers, values[0], score.least)
        curve = curve_from(score, model.label, layers, values, origin, best)
        if ci is not None and without is not None:
            curve.left_out = without
            half = jackknifed(without, ci)
            curve.low, curve.high = np.clip([curve.values - half, curve.values + half], *score.within)
        curves[score.name] = curve
    return curves


class _Collector:
    """What consumers of batches share: the places of their rows among the examples, which have one row each."""

    def __init__(self, examples: Examples) -> None:
        self._place = {row: k for k, row in enumerate(examples.rows.tolist())}

    def _places(self, batch: Batch) -> Tensor:
        """The place of every row of a batch."""
        return torch.tensor([self._place[row] for row in batch.rows.row.tolist()])


class _Rows(_Collector):
    """A consumer that keeps the rows of every layer, in the order of the data."""

    def __init__(self, examples: Examples, model: Model) -> None:
        super().__init__(examples)
        self._device = model.device
        self._states = [torch.zeros(len(examples), width) for width in model.widths]
        self._seen = torch.zeros(len(examples), dtype=torch.bool)

    def update(self, batch: Batch) -> None:
        states, at = batch.states[0], self._places(batch)
        for layer, target in enumerate(self._states):
            target[at] = states[layer].to("cpu", torch.float32)
        self._seen[at] = True

    def reduce(self, team: Team) -> None:
        """Add the rows of all processes: each row comes to one of them, and is 0 in the others."""
        if team.size > 1:
            device = self._device if self._device.type == "cuda" else torch.device("cpu")
            for state in self._states:
                state.copy_(team.all_reduce(state.to(device)))
            self._seen = team.all_reduce(self._seen.long().to(device)).cpu() > 0

    def representations(self, examples: Examples, model: Model, reading: dict[str, Any]) -> Representations:
        """What was kept; a text without a row is left out."""
        info = {"model": model.name, "described": model.described(), "data": examples.described(), "reading": reading}
        rows = Rows(examples.task, examples.split, examples.fingerprint, examples.rows)
        states = dict(enumerate(self._states))
        reps = Representations(states, rows, examples.labels, label_names=examples.label_names, info=info)
        return reps if bool(self._seen.all()) else reps.select(rows=self._seen.numpy())


class _Groups(_Collector):
    """A consumer that keeps the moments of ten groups of texts: every layer with the labels of all labellings."""

    def __init__(self, examples: Examples, model: Model, labellings: np.ndarray, _: str) -> None:
        super().__init__(examples)
        count = min(GROUPS, len(examples))
        self._group = torch.from_numpy(folds(examples.rows, count, seed=0))
        self._labels = targets(labellings).flatten(1)
        layers = model.depth + 1
        widths, pairs = [*model.widths, self._labels.shape[1]], [(k, layers) for k in range(layers)]
        waiting = min(2048, max(64, _WAITING // (count * sum(widths))))
        options: dict[str, Any] = {"pairs": pairs, "exact": True, "device": model.device, "block": waiting}
        self.parts = [Moments(widths, **options) for _ in range(count)]

    def update(self, batch: Batch) -> None:
        states, at = batch.states[0], self._places(batch)
        group, labels = self._group[at], self._labels[at]
        for k in torch.unique(group).tolist():
            rows = torch.nonzero(group == k)[:, 0]
            views = [states[layer][rows.to(states[layer].device)] for layer in sorted(states)]
            self.parts[k].update([*views, labels[rows]])

    def reduce(self, team: Team) -> None:
        """Add the moments of all processes."""
        self.parts = [moments.reduce(team) for moments in self.parts]


class _Classes(_Collector):
    """A consumer that keeps, for each labelling, class-weighted moments of every layer with one-hot labels."""

    def __init__(self, examples: Examples, model: Model, labellings: np.ndarray, weighting: str) -> None:
        super().__init__(examples)
        self._labels = torch.from_numpy(np.ascontiguousarray(labellings))
        self._weights = torch.from_numpy(np.stack([class_weights(each, weighting) for each in labellings]))
        self._classes, layers = int(labellings.max()) + 1, model.depth + 1
        widths, pairs = [*model.widths, self._classes], [(k, layers) for k in range(layers)]
        options: dict[str, Any] = {"pairs": pairs, "exact": True, "device": model.device}
        if len(labellings) > 1:
            options["block"] = max(64, model.width // 4)  # waiting rows must not take more than the products
        self.parts = [Moments(widths, **options) for _ in labellings]

    def update(self, batch: Batch) -> None:
        states, at = batch.states[0], self._places(batch)
        for moments, labels, weights in zip(self.parts, self._labels, self._weights, strict=True):
            one_hot = torch.nn.functional.one_hot(labels[at], self._classes).double().to(moments.device)
            moments.update([*(states[layer] for layer in sorted(states)), one_hot], weights[at])

    def reduce(self, team: Team) -> None:
        """Add the moments of all processes."""
        self.parts = [moments.reduce(team) for moments in self.parts]
