"""Task specialty: how well a layer's states fall into the task's classes, with nothing trained (Xie et al. 2022)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.data import Examples
from layerscope.errors import InputError, check_level, check_seed, choose
from layerscope.extraction.extracting import examples_of, refuse_reading
from layerscope.extraction.finite import check_finite
from layerscope.extraction.reading import Reading
from layerscope.extraction.representations import Representations
from layerscope.extraction.streaming import Batch, Streamer
from layerscope.extraction.tally import note_unread
from layerscope.models import Model, load
from layerscope.probing.labelled import check_choices, curve_of, extreme, labelled_rows
from layerscope.probing.nu import (
    WEIGHTINGS,
    class_numbers,
    class_weights,
    nu_of_moments,
    nu_of_rows,
    warn_of_single_rows,
)
from layerscope.probing.permuting import add_null, check_null, permuted_labels
from layerscope.results import Curve, provenance_of
from layerscope.similarity.moments import Moments
from layerscope.team import Team

WORDS = {
    "title": "nu: how mixed the classes are in each layer",
    "shows": "nu, the variability within classes over that between them, of the training rows in each layer "
    "(Xie et al. 2022). A band around it is an interval over halves of the texts.",
    "reading": "Lower is better separated. l* is the layer with the least nu among layers 1 and up. What lies below "
    "nu with permuted labels shows the labels; the shape that both share is the layers' own.",
    "caveat": "Intervals come from halves of the texts; a rough or flat curve is no ground to choose on.",
}
ROOM = 2 << 30  # bytes of rows that a pass may keep in memory for permuted labels
_EQUAL_MEANS = "the means of all classes are the same there up to rounding"
_SINGLE = ("cls", "mean", "last")  # pools that make one row of a text


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
    null: int = 20,
    seed: int = 0,
) -> Curve:
    """Measure nu of every layer: within-class over between-class variability, 1/C trace(S_w S_b^+). Low is good.

    Nothing is trained (Xie et al. 2022, equation 3). Classes count equally, whatever their sizes. Part of nu is the
    layer's own, whatever the labels say, so it is measured with permuted labels too.

    Args:
        source: Representations with labels, or a model, which streams over the task's train split. Where texts have
            choices, each choice is a row, and its class is whether it is the right one.
        task: The task, for a model.
        weighting: `class`, or `rows` for the plain form, in which each row counts equally within.
        split: The split; `train` where there is one, else the only one, all of it (`ls.choose` and `ls.tune`, which
            score a fifth of it, look for l* in the rest).
        pool: How a model's token states become rows.
        limit: Use only the first N examples.
        max_length: The longest text in tokens.
        ci: Add intervals of this level, such as 0.95, and `wins`: how often each layer came out as l*, over halves of
            the texts. A model's rows are extracted first.
        null: How many times labels are permuted among texts, for `null`, `ratio` and `p`; 0 leaves them out.
        seed: Decides the halves and the permutations.

    Returns:
        A `Curve`; `curve.best` is l*, the layer with the least nu among 1..L. `curve.null` is the median nu with
        permuted labels, `curve.ratio` nu over it, `curve.p` how often permuted labels give a nu as low in that layer,
        and `curve.p_best` the same for l* after allowing for the choice among layers.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> draw, labels = np.random.default_rng(0).normal, np.arange(60) % 3
        >>> mixed, apart = draw(size=(60, 4)), draw(size=(60, 4)) + 5 * np.eye(3, 4)[labels]
        >>> curve = ls.specialty(ls.Representations.from_arrays([mixed, mixed, apart], labels))
        >>> curve.best, bool(curve.ratio[2] < 0.1 < curve.ratio[1]), bool(curve.p_best < 0.05)
        (2, True, True)
    """
    choose("weighting", weighting, WEIGHTINGS)
    check_level(ci)
    check_seed(seed)
    check_null(null)
    if isinstance(source, Representations):
        if task is not None:
            raise InputError("A task was given together with representations, which have theirs already.")
        refuse_reading(split=(split, None), limit=(limit, None), pool=(pool, "mean"), max_length=(max_length, 128))
        return _of_representations(source, weighting, ci, null, seed)
    if task is None:
        raise InputError("A model's specialty is for a task: name one, as in specialty('model', 'sst2').")
    examples = examples_of(task, split, limit, learning=True)
    if ci is not None or pool not in _SINGLE or examples.choices is not None:
        reps = labelled_rows(source, examples, pool=pool, max_length=max_length)
        return _of_representations(reps, weighting, ci, null, seed)
    options: dict[str, Any] = {"pool": pool, "max_length": max_length}
    return streamed(load(source), examples, weighting=weighting, null=null, seed=seed, **options)


def _of_representations(reps: Representations, weighting: str, ci: float | None, null: int, seed: int) -> Curve:
    check_finite(reps)
    check_choices(reps, "nu")
    values = partial(_of_rows, weighting=weighting)
    settings: dict[str, Any] = {"weighting": weighting, "null": null, "undefined": _EQUAL_MEANS}
    settings["within"] = (0.0, math.inf)
    warn_of_single_rows(class_numbers(reps.labels))
    curve = curve_of("nu", values, reps, least=True, ci=ci, seed=seed, words=WORDS, **settings)
    if null:
        labels = permuted_labels(class_numbers(reps.labels), reps.rows.row, null, seed)
        add_null(curve, _under(reps, labels, weighting))
    return curve


def _of_rows(reps: Representations, weighting: str) -> np.ndarray:
    return _under(reps, class_numbers(reps.labels)[None], weighting)[0]


def _under(reps: Representations, labellings: np.ndarray, weighting: str) -> np.ndarray:
    """(labellings, layers) nu of rows that are there, under each labelling."""

    def blocks(size: int, layer: int) -> Iterator[Tensor]:
        return (reps.part(layer, start, start + size) for start in range(0, len(reps), size))

    values = [nu_of_rows(partial(blocks, layer=layer), labellings, weighting) for layer in reps.layers]
    return np.stack(values, axis=1)


def streamed(
    model: Model,
    examples: Examples,
    *,
    weighting: str = "class",
    pool: str = "mean",
    max_length: int = 128,
    null: int = 0,
    seed: int = 0,
) -> Curve:
    """nu of every layer of a model over these texts, in one pass, with permuted labels too.

    Permuted labels need the rows, or one weighted moment for each permutation: whichever takes less memory, and the
    rows where they fit into `ROOM`, since they cost far fewer products. Without permutations no row is kept.
    """
    labels = class_numbers(examples.labels)
    warn_of_single_rows(labels)
    labellings = np.vstack([labels[None], permuted_labels(labels, examples.rows, null, seed)])
    layers = list(range(model.depth + 1))
    keeps = null > 0 and _takes_less(len(examples), model.width, len(layers), null)
    feed: _Kept | _Summed
    feed = _Kept(examples, model) if keeps else _Summed(examples, labellings, weighting, model)
    streamer = Streamer([model], None, Reading(pool, max_length=max_length))
    team = Team.current()
    own = examples.take(slice(team.rank, None, team.size))
    tally = streamer.feed(own, [feed], f"{model.name} over {examples.task} ({examples.split})")
    note_unread(tally, examples, [model], max_length)
    feed.reduce(team)
    draws = feed.values(labellings, weighting)
    settings = {"pool": pool, "max_length": max_length, "weighting": weighting, "null": null}
    origin, best = provenance_of([model], examples, settings), extreme(layers, draws[0], least=True)
    curve = Curve("nu", [model.name] * len(layers), layers, draws[0], origin, best, words=WORDS)
    curve.explain_gaps(_EQUAL_MEANS)
    if null:
        add_null(curve, draws[1:])
    return curve


def _takes_less(rows: int, width: int, layers: int, null: int) -> bool:
    """Whether rows in float32 take less memory than a moment per labelling in float64, or little enough."""
    return 4 * rows * width * layers <= max(8 * (null + 1) * width**2 * layers, ROOM)


class _Kept:
    """A consumer that keeps the rows of every layer, in the data's order."""

    def __init__(self, examples: Examples, model: Model) -> None:
        self._place = {row: k for k, row in enumerate(examples.rows.tolist())}
        self._device = model.device
        self._states = [torch.zeros(len(examples), width) for width in model.widths]
        self._seen = torch.zeros(len(examples), dtype=torch.bool)

    def update(self, batch: Batch) -> None:
        states = batch.states[0]
        at = torch.tensor([self._place[row] for row in batch.rows.row.tolist()])
        for layer, target in enumerate(self._states):
            target[at] = states[layer].to("cpu", torch.float32)
        self._seen[at] = True

    def reduce(self, team: Team) -> None:
        """Add what the other processes have: each row comes to one of them, and is 0 in the others."""
        if team.size > 1:
            device = self._device if self._device.type == "cuda" else torch.device("cpu")
            for state in self._states:
                state.copy_(team.add(state.to(device)))
            self._seen = team.add(self._seen.long().to(device)).cpu() > 0

    def values(self, labellings: np.ndarray, weighting: str) -> np.ndarray:
        """(labellings, layers) nu."""
        seen = self._seen.numpy()
        kept = labellings if seen.all() else labellings[:, seen]
        states = self._states if seen.all() else [state[self._seen] for state in self._states]
        return np.stack([nu_of_rows(state.split, kept, weighting) for state in states], axis=1)


class _Summed:
    """A consumer that keeps no row: class-weighted moments of every layer with the one-hot labels, per labelling."""

    def __init__(self, examples: Examples, labellings: np.ndarray, weighting: str, model: Model) -> None:
        self._place = {row: k for k, row in enumerate(examples.rows.tolist())}
        self._labels = torch.from_numpy(np.ascontiguousarray(labellings))
        self._weights = torch.from_numpy(np.stack([class_weights(each, weighting) for each in labellings]))
        self._classes, self._layers = int(labellings.max()) + 1, model.depth + 1
        widths, pairs = [*model.widths, self._classes], [(k, self._layers) for k in range(self._layers)]
        options: dict[str, Any] = {"pairs": pairs, "exact": True, "device": model.device}
        if len(labellings) > 1:
            options["block"] = max(64, model.width // 4)  # waiting rows must not take more than the products
        self.moments = [Moments(widths, **options) for _ in labellings]

    def update(self, batch: Batch) -> None:
        states = batch.states[0]
        at = torch.tensor([self._place[row] for row in batch.rows.row.tolist()])
        for moments, labels, weights in zip(self.moments, self._labels, self._weights, strict=True):
            one_hot = torch.nn.functional.one_hot(labels[at], self._classes).double().to(moments.device)
            moments.update([*(states[layer] for layer in sorted(states)), one_hot], weights[at])

    def reduce(self, team: Team) -> None:
        """Add the moments of the other processes."""
        self.moments = [moments.reduce(team) for moments in self.moments]

    def values(self, labellings: np.ndarray, weighting: str) -> np.ndarray:
        """(labellings, layers) nu."""
        return np.asarray([self._of(moments, weighting) for moments in self.moments])

    def _of(self, moments: Moments, weighting: str) -> Sequence[float]:
        return [nu_of_moments(moments, layer, weighting) for layer in range(self._layers)]


def smoothness(curve: Curve) -> float:
    """Measure how smooth a curve is: zeta, the sum of squared second differences of its z-scored values over 1..L.

    A straight line has 0; values that jump up and down from layer to layer have about 6 per layer.

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
    if len(models := dict.fromkeys(curve.models)) > 1:
        raise InputError(f"zeta is of one model's layers, and this curve is of {len(models)}: {', '.join(models)}.")
    values = np.asarray([v for layer, v in zip(curve.layers, curve.values, strict=True) if layer >= 1])
    if len(values) < 3 or np.isnan(values).any() or values.std() == 0:
        return math.nan
    scaled = (values - values.mean()) / values.std()
    return float((np.diff(scaled, 2) ** 2).sum())
