"""Task specialty: how well a layer's states fall into the task's classes, with nothing trained (Xie et al. 2022)."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.analysis.curves import Curve
from layerscope.analysis.labelled import classes_of, curve_of, extreme, level
from layerscope.data import Examples
from layerscope.data import task as open_task
from layerscope.errors import InputError, check_seed, choose
from layerscope.extract import extract
from layerscope.extract.reading import Reading
from layerscope.extract.representations import Representations
from layerscope.extract.run import examples_of
from layerscope.extract.streaming import Batch, Streamer
from layerscope.measures import Moments
from layerscope.models import Model, load

WEIGHTINGS = ("class", "rows")
_BLOCK = 8192


def specialty(
    source: Any,
    task: Any = None,
    *,
    weighting: str = "class",
    split: str | None = None,
    pool: str = "mean",
    limit: int | None = None,
    max_length: int = 128,
    ci: float | None = None,
    seed: int = 0,
) -> Curve:
    """nu of every layer: within-class over between-class variability, 1/C trace(S_w S_b^+), equation 3. Low is good.

    `source` is representations with labels, or a model with a `task`, which streams over the train split. Classes count
    equally, whatever their sizes (`weighting="rows"`: the plain form, each row counts equally within). `curve.best` is
    l*, the layer with the least nu among 1..L.

    `ci=0.95` adds intervals and `wins`, how often each layer came out as l*, over halves of the rows drawn without
    replacement: where the minimum is flat, several layers win. A model's rows are then extracted first.
    """
    choose("weighting", weighting, WEIGHTINGS)
    level(ci)
    check_seed(seed)
    if ci is not None and task is not None:
        source, task = _extracted(source, task, split, pool, limit, max_length), None
    if isinstance(source, Representations):
        if task is not None:
            raise InputError("A task was given together with representations, which have theirs already.")
        values = partial(_of_rows, weighting=weighting)
        return curve_of("nu", values, source, least=True, ci=ci, seed=seed, weighting=weighting)
    if task is None:
        raise InputError("A model's specialty is for a task: name one, as in specialty('model', 'sst2').")
    examples = examples_of(task, split, limit, learning=True)
    return streamed(load(source), examples, weighting=weighting, pool=pool, max_length=max_length)


def streamed(
    model: Model, examples: Examples, *, weighting: str = "class", pool: str = "mean", max_length: int = 128
) -> Curve:
    """nu of every layer of a model over these rows, in one pass that keeps none of them."""
    weights, classes = _weights(examples.labels, weighting)
    feed = _Feed(examples.labels, examples.rows, weights, classes, model.depth + 1, model.width, model.device)
    streamer = Streamer([model], None, Reading(pool, max_length=max_length))
    streamer.feed(examples, [feed], f"{model.name} over {examples.task} ({examples.split})")
    layers = list(range(model.depth + 1))
    found = np.asarray([variability(feed.moments, layer, classes, weighting) for layer in layers])
    provenance = {"task": examples.task, "split": examples.split, "pool": pool, "weighting": weighting}
    return Curve("nu", [model.name] * len(layers), layers, found, provenance, extreme(layers, found, least=True))


def _extracted(
    model: Any, task: Any, split: str | None, pool: str, limit: int | None, max_length: int
) -> Representations:
    data = open_task(task)
    learned = data.resolve(split, learning=True)
    return extract(model, data, split=learned, pool=pool, limit=limit, max_length=max_length)


def _of_rows(reps: Representations, weighting: str) -> np.ndarray:
    weights, classes = _weights(reps.labels, weighting)
    one_hot = torch.nn.functional.one_hot(torch.as_tensor(reps.labels), classes).double()
    widths = [reps.part(layer, 0, 1).shape[1] for layer in reps.layers]
    last = len(widths)
    moments = Moments([*widths, classes], pairs=[(k, last) for k in range(last)], exact=True)
    for start in range(0, len(reps), _BLOCK):
        rows = [reps.part(layer, start, start + _BLOCK) for layer in reps.layers]
        moments.update([*rows, one_hot[start : start + _BLOCK]], weights[start : start + _BLOCK])
    return np.asarray([variability(moments, k, classes, weighting) for k in range(last)])


class _Feed:
    """A consumer: class-weighted moments of every layer with the one-hot labels."""

    def __init__(
        self,
        labels: Any,
        rows: np.ndarray,
        weights: Tensor,
        classes: int,
        layers: int,
        width: int,
        device: torch.device,
    ) -> None:
        pairs = [(k, layers) for k in range(layers)]
        self.moments = Moments([width] * layers + [classes], pairs=pairs, exact=True, device=device)
        self._weight = dict(zip(rows.tolist(), weights.tolist(), strict=True))
        self._label = dict(zip(rows.tolist(), np.asarray(labels).tolist(), strict=True))
        self._classes = classes

    def update(self, batch: Batch) -> None:
        states = batch.states[0]
        rows = batch.rows.row.tolist()
        labels = torch.tensor([self._label[row] for row in rows])
        one_hot = torch.nn.functional.one_hot(labels, self._classes).double().to(self.moments.device)
        weights = torch.tensor([self._weight[row] for row in rows], dtype=torch.float64)
        self.moments.update([*(states[layer] for layer in sorted(states)), one_hot], weights)


def _weights(labels: Any, weighting: str) -> tuple[Tensor, int]:
    """A weight a row, summing to 1, and the number of classes (those of the labels, whether all have rows or not)."""
    values = classes_of(labels, "nu")
    counts = np.bincount(values)
    present = int((counts > 0).sum())
    if present < 2:
        raise InputError(f"nu compares classes, and the rows are of {present} class only.")
    share = 1 / (present * counts[values]) if weighting == "class" else np.full(len(values), 1 / len(values))
    return torch.from_numpy(share.astype(np.float64)), len(counts)


def variability(moments: Moments, view: int, classes: int, weighting: str = "class") -> float:
    """nu from moments whose last view is the one-hot labels: 1/C trace(S_w S_b^+) in the small space of class means.

    NaN where all class means are the same (the summary token at layer 0).
    """
    labels = len(moments.widths) - 1
    mass = moments.mean(labels) * moments.weight  # (C,) each class's summed weight
    seen = mass > 1e-12 * moments.weight
    mean = moments.mean(view)
    # scatter(x, y) = sum w (h - mean) y', so a class mean less the weighted mean is its column over the class's weight.
    offset = (moments.scatter(view, labels) / mass.clamp_min(1e-300))[:, seen]  # (d, C)
    share = mass[seen] / moments.weight
    count = int(seen.sum())
    between = offset - offset.mean(dim=1, keepdim=True) if weighting == "class" else offset
    u, s, _ = torch.linalg.svd(between / count**0.5, full_matrices=False)
    # Compare with the layer's own scale: class means that differ by rounding alone are the same.
    scale = max(float(mean @ mean), float(moments.cov(view, view).diagonal().sum()))
    rank = int((s > 1e-7 * s[0]).sum()) if float(s[0]) ** 2 > 1e-12 * scale else 0
    if rank == 0:
        return math.nan
    u, s = u[:, :rank], s[:rank]
    total = (u * (moments.cov(view, view) @ u)).sum(dim=0)  # u' S_total u
    explained = ((u.T @ offset).pow(2) * share).sum(dim=1)  # the part of it between classes
    return float(((total - explained).clamp_min(0.0) / s**2).sum()) / count


def smoothness(curve: Curve) -> float:
    """zeta: the sum of squared second differences of the z-scored curve over layers 1..L; low is smooth."""
    values = np.asarray([v for layer, v in zip(curve.layers, curve.values, strict=True) if int(layer) >= 1])
    if len(values) < 3 or np.isnan(values).any() or values.std() == 0:
        return math.nan
    scaled = (values - values.mean()) / values.std()
    return float((np.diff(scaled, 2) ** 2).sum())
