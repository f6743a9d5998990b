"""Task specialty: how well a layer's states fall into the task's classes, with nothing trained (Xie et al. 2022)."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.data import Examples
from layerscope.data import task as open_task
from layerscope.errors import InputError, check_level, check_seed, choose
from layerscope.extraction.extracting import examples_of, extract
from layerscope.extraction.reading import Reading
from layerscope.extraction.representations import Representations
from layerscope.extraction.streaming import Batch, Streamer
from layerscope.models import Model, load
from layerscope.probing.labelled import classes_of, curve_of, extreme
from layerscope.results import Curve, provenance_of
from layerscope.similarity.moments import Moments

WEIGHTINGS = ("class", "rows")
WORDS = {
    "title": "nu: how mixed the classes are in each layer",
    "shows": "nu, the variability within classes over that between them, of the training rows in each layer "
    "(Xie et al. 2022). A band is an interval over subsamples of the rows.",
    "reading": "Lower is better separated. l* is the layer with the least nu among layers 1 and up.",
    "caveat": "Intervals come from subsamples of the rows; a rough or flat curve is no ground to choose on.",
}
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
    """Measure nu of every layer: within-class over between-class variability, 1/C trace(S_w S_b^+). Low is good.

    Nothing is trained (Xie et al. 2022, equation 3). Classes count equally, whatever their sizes.

    Args:
        source: Representations with labels, or a model, which streams over the task's train split.
        task: The task, for a model.
        weighting: `class`, or `rows` for the plain form, in which each row counts equally within.
        split: The split; `train` where there is one.
        pool: How a model's token states become rows.
        limit: Only the first so many examples.
        max_length: The longest text in tokens.
        ci: Add intervals of this level, such as 0.95, and `wins`: how often each layer came out as l*, over halves of
            the rows drawn without replacement. A model's rows are extracted first.
        seed: Decides the halves.

    Returns:
        A `Curve`; `curve.best` is l*, the layer with the least nu among 1..L.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> draw, labels = np.random.default_rng(0).normal, np.arange(60) % 3
        >>> mixed, apart = draw(size=(60, 4)), draw(size=(60, 4)) + 5 * np.eye(3, 4)[labels]
        >>> ls.specialty(ls.Representations.from_arrays([mixed, mixed, apart], labels)).best
        2
    """
    choose("weighting", weighting, WEIGHTINGS)
    check_level(ci)
    check_seed(seed)
    if ci is not None and task is not None:
        source, task = _extracted(source, task, split, pool, limit, max_length), None
    if isinstance(source, Representations):
        if task is not None:
            raise InputError("A task was given together with representations, which have theirs already.")
        values = partial(_of_rows, weighting=weighting)
        return curve_of("nu", values, source, least=True, ci=ci, seed=seed, words=WORDS, weighting=weighting)
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
    nu = np.asarray([variability(feed.moments, layer, classes, weighting) for layer in layers])
    settings = {"pool": pool, "max_length": max_length, "weighting": weighting}
    origin, best = provenance_of([model], examples, settings), extreme(layers, nu, least=True)
    return Curve("nu", [model.name] * len(layers), layers, nu, origin, best, words=WORDS)


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
    """One weight per row, summing to 1, and the number of classes (of the labels, whether all have rows or not)."""
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
    """Measure how smooth a curve is: zeta, the sum of squared second differences of its z-scored values over 1..L.

    Args:
        curve: A curve over layers.

    Returns:
        zeta; low is smooth. NaN with fewer than three layers, or where the curve is flat or undefined.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> line = ls.Curve("nu", ["m"] * 5, [0, 1, 2, 3, 4], np.arange(5.0))
        >>> round(ls.smoothness(line), 6)
        0.0
    """
    values = np.asarray([v for layer, v in zip(curve.layers, curve.values, strict=True) if layer >= 1])
    if len(values) < 3 or np.isnan(values).any() or values.std() == 0:
        return math.nan
    scaled = (values - values.mean()) / values.std()
    return float((np.diff(scaled, 2) ** 2).sum())
