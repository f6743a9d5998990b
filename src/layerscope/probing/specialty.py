"""Task specialty: how well a layer's states fall into the task's classes, with nothing trained (Xie et al. 2022).

The measure is nu = 1/C trace(S_w S_b^+), computed from moments, or from rows under many labellings at once. The
between-class scatter S_b has a rank below the number of classes, so all is done in the small space of class means: no
matrix of width x width is inverted, and from rows none is made.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from layerscope.data import Examples
from layerscope.distributed import Team
from layerscope.drawing.captions import listed
from layerscope.errors import InputError, LayerscopeWarning, check_level, check_seed, choose
from layerscope.extraction.extract import examples_of, refuse_reading
from layerscope.extraction.loop import note_unread
from layerscope.extraction.pooling import Reading
from layerscope.extraction.representations import Representations, check_finite
from layerscope.extraction.stream import Batch, Streamer
from layerscope.models import Model, load
from layerscope.probing.labelled_rows import check_choices, curve_of, extreme, labelled_rows, several_classes
from layerscope.probing.permutation import add_null, check_null, permuted_labels
from layerscope.results import Curve, Finding, provenance_of
from layerscope.results.finding import ANSWER, SIGNIFICANT, SUPPORT, interval, number, rows
from layerscope.results.finding import extreme as extreme_row
from layerscope.similarity.moments import Moments

if TYPE_CHECKING:
    import pandas

WEIGHTINGS = ("class", "rows")
_CELLS = 1 << 22  # numbers that one product of a block with all labellings makes
_BLOCK = 8192

Blocks = Callable[[int], Iterable[Tensor]]  # from a number of rows to the rows of a layer, so many at a time


def class_numbers(labels: Any) -> np.ndarray:
    """The labels as class numbers 0.. without gaps; raises InputError where nu has no meaning for them."""
    values = several_classes(labels, "nu")
    if len(values) == int(values.max()) + 1:
        raise InputError(
            f"nu looks at how rows vary within classes, and each of the {len(values)} rows has a class of its own."
        )
    return values


def warn_of_single_rows(labels: np.ndarray) -> None:
    """Warn where classes (numbers 0.. without gaps) have one row only."""
    single = int((np.bincount(labels) == 1).sum())
    if single:
        classes = "1 class has" if single == 1 else f"{single} classes have"
        warnings.warn(
            f"{classes} one row only, within which nothing varies, so that nu comes out too low; leave such classes "
            "out, or give more rows of them.",
            LayerscopeWarning,
            stacklevel=4,
        )


def class_weights(labels: np.ndarray, weighting: str) -> np.ndarray:
    """One weight per row, summing to 1: classes count equally, or rows do."""
    if weighting == "rows":
        return np.full(len(labels), 1 / len(labels))
    counts = np.bincount(labels)
    return 1 / (len(counts) * counts[labels])


def nu_of_rows(blocks: Blocks, labellings: np.ndarray, weighting: str = "class") -> np.ndarray:
    """nu of one layer under each of several labellings, in two passes over its rows.

    Args:
        blocks: Gives the layer's rows, so many at a time.
        labellings: (P, n), numbers 0..C-1; each has rows of every class.
        weighting: `class`, or `rows`.

    Returns:
        (P,) values, each with class weights of its own; NaN where all class means are the same.
    """
    count, classes = len(labellings), int(labellings.max()) + 1
    size = max(64, min(_BLOCK, _CELLS // (count * classes)))
    labels = torch.from_numpy(np.ascontiguousarray(labellings))
    shift, sums, squares = _class_sums(blocks, labels, classes, size)
    sizes = torch.stack([torch.bincount(each, minlength=classes) for each in labels]).double()  # (P, C)
    means = sums / sizes[..., None]  # (P, C, d), about the shift
    share = torch.full_like(sizes, 1 / classes) if weighting == "class" else sizes / sizes.sum(dim=1, keepdim=True)
    offset = means - (share[..., None] * means).sum(dim=1, keepdim=True)
    directions, lengths, _ = torch.linalg.svd(offset.transpose(1, 2) / classes**0.5, full_matrices=False)
    real = _real(lengths, shift, sums[0].sum(dim=0) / labels.shape[1], float(squares) / labels.shape[1])
    within = _within(blocks, labels, means, directions, share / sizes, shift, size)
    each = torch.where(real, within / lengths.clamp_min(1e-300).pow(2), torch.zeros_like(within)).sum(dim=1) / classes
    return torch.where(real.any(dim=1), each, torch.full_like(each, math.nan)).numpy()


def _class_sums(blocks: Blocks, labels: Tensor, classes: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """A shift near the mean, the sums (P, C, d) about it of the rows of every class of every labelling, and the sum of
    squares about it of all rows."""
    shift, sums, squares, start = None, None, torch.zeros((), dtype=torch.float64), 0
    for block in blocks(size):
        rows = block.double()
        if shift is None or sums is None:
            shift = rows.mean(dim=0)
            sums = torch.zeros(len(labels) * classes, rows.shape[1], dtype=torch.float64)
        rows = rows - shift
        member = torch.nn.functional.one_hot(labels[:, start : start + len(rows)], classes)  # (P, k, C)
        sums += member.transpose(1, 2).reshape(-1, len(rows)).double() @ rows
        squares += rows.pow(2).sum()
        start += len(rows)
    assert shift is not None
    assert sums is not None
    return shift, sums.view(len(labels), classes, -1), squares


def _real(lengths: Tensor, shift: Tensor, mean: Tensor, square: float) -> Tensor:
    """(P, C) whether a direction between class means is more than rounding, beside the scale of the layer itself."""
    scale = max(float((shift + mean).pow(2).sum()), square - float(mean @ mean))
    first = lengths[:, :1]
    return (lengths > 1e-7 * first) & (first.pow(2) > 1e-12 * scale)


def _within(
    blocks: Blocks, labels: Tensor, means: Tensor, directions: Tensor, weights: Tensor, shift: Tensor, size: int
) -> Tensor:
    """(P, directions) the weighted variance of rows about the mean of their class, along every direction."""
    count = len(weights)
    joined = directions.permute(1, 0, 2).reshape(len(shift), -1)  # (d, P x directions)
    centres = means @ directions  # (P, C, directions)
    within, start = torch.zeros(count, directions.shape[2], dtype=torch.float64), 0
    each = torch.arange(count)[:, None]
    for block in blocks(size):
        rows = block.double() - shift
        here = labels[:, start : start + len(rows)]
        along = (rows @ joined).view(len(rows), count, -1).transpose(0, 1)  # (P, k, directions)
        within += (weights[each, here][..., None] * (along - centres[each, here]).pow(2)).sum(dim=1)
        start += len(rows)
    return within


def nu_of_moments(moments: Moments, view: int, weighting: str = "class") -> float:
    """nu from class-weighted moments whose last view is the one-hot labels.

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
OFTEN = 0.1  # the share of halves of the texts from which on a layer is said to come out as l* too


class SpecialtyCurve(Curve):
    """nu of every layer."""

    def findings(self) -> list[Finding]:
        """The layer with the least nu, whether it shows the labels at all, and which layers may be as good."""
        frame, n = self.frame, self.provenance.get("data", {}).get("n")
        layers = frame[(frame["layer"] >= 1) & frame[self.name].notna()]
        if not len(layers):
            return [Finding("nu has no value in any layer.", "every class or every row is the same", False, ANSWER)]
        best = extreme_row(layers, self.name, most=False)
        p = self.p_best
        if math.isnan(p) and "p" in best:  # where the p-value after the choice is not known, Bonferroni's bound is
            p = min(float(best["p"]) * len(layers), 1.0)
        layer, least = int(best["layer"]), number(best[self.name])
        permuted = f", and {number(best['null'])} with permuted labels" if "null" in frame else ""
        equals = _equals(layers, layer)
        text = f"Layer {layer} separates the classes best: nu is {least}{permuted}."
        if equals:
            text = (
                f"Layers separate the classes, layer {layer} with the least nu, {least}{permuted}; {equals} may be as "
                "good."
            )
        if p >= SIGNIFICANT:
            text = f"No layer is shown to separate the classes: the least nu is {least}, in layer {layer}{permuted}."
        known = not math.isnan(p)
        evidence = f"p = {p:.2g} after allowing for the choice among layers" if known else "no labels were permuted"
        bounds = f"; {interval(best['low'], best['high'])}" if "low" in frame else ""
        sure = bool(p < SIGNIFICANT) if known else None
        findings = [Finding(text, f"{evidence}{bounds}{rows(n)}", sure, ANSWER)]
        if "wins" not in layers:
            return findings
        text = (
            f"Which layer is best depends on the texts: {equals} may be as good as layer {layer}."
            if equals
            else f"That it is layer {layer} and no other does not depend on the texts."
        )
        evidence = f"it comes out best in {best['wins']:.0%} of halves of the texts"
        return [*findings, Finding(text, evidence, not equals, SUPPORT)]


def _equals(layers: pandas.DataFrame, best: int) -> str:
    """The layers that come out best in some halves of the texts, beside the best one; nothing where there are none."""
    if "wins" not in layers:
        return ""
    others = layers[(layers["wins"] >= OFTEN) & (layers["layer"] != best)]
    names = [str(int(layer)) for layer in others["layer"]]
    return f"{'layer' if len(names) == 1 else 'layers'} {listed(names)}" if names else ""


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
        split: The split; `train` where there is one, else the only one, all of it (`ls.recommend` and `ls.tune`, which
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
    """The curve of nu of representations, with intervals and permuted labels where they are asked for."""
    check_finite(reps)
    check_choices(reps, "nu")

    def values(part: Representations) -> np.ndarray:
        return _under(part, class_numbers(part.labels)[None], weighting)[0]

    settings: dict[str, Any] = {"weighting": weighting, "null": null, "undefined": _EQUAL_MEANS}
    settings["within"] = (0.0, math.inf)
    warn_of_single_rows(class_numbers(reps.labels))
    curve = curve_of("nu", values, reps, least=True, ci=ci, seed=seed, words=WORDS, made=SpecialtyCurve, **settings)
    if null:
        labels = permuted_labels(class_numbers(reps.labels), reps.rows.row, null, seed)
        add_null(curve, _under(reps, labels, weighting))
    return curve


def _under(reps: Representations, labellings: np.ndarray, weighting: str) -> np.ndarray:
    """(labellings, layers) nu of every layer of representations under each labelling."""

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
    feed: _RowCollector | _MomentCollector
    if null and _rows_take_less(len(examples), model.width, len(layers), null):
        feed = _RowCollector(examples, model)
    else:
        feed = _MomentCollector(examples, labellings, weighting, model)
    streamer = Streamer([model], None, Reading(pool, max_length=max_length))
    team = Team.current()
    part = examples.take(slice(team.rank, None, team.size))
    tally = streamer.feed(part, [feed], f"{model.name} over {examples.task} ({examples.split})")
    note_unread(tally, examples, [model], max_length)
    feed.reduce(team)
    draws = feed.values(labellings, weighting)
    settings = {"pool": pool, "max_length": max_length, "weighting": weighting, "null": null}
    origin, best = provenance_of([model], examples, settings), extreme(layers, draws[0], least=True)
    curve = SpecialtyCurve("nu", [model.name] * len(layers), layers, draws[0], origin, best, words=WORDS)
    curve.explain_gaps(_EQUAL_MEANS)
    if null:
        add_null(curve, draws[1:])
    return curve


def _rows_take_less(rows: int, width: int, layers: int, null: int) -> bool:
    """Whether rows in float32 take less memory than a moment per labelling in float64, or little enough."""
    return 4 * rows * width * layers <= max(8 * (null + 1) * width**2 * layers, ROOM)


class _Collector:
    """What consumers of batches share: the places of their rows among the examples, which have one row each."""

    def __init__(self, examples: Examples) -> None:
        self._place = {row: k for k, row in enumerate(examples.rows.tolist())}

    def _places(self, batch: Batch) -> Tensor:
        """The place of every row of a batch."""
        return torch.tensor([self._place[row] for row in batch.rows.row.tolist()])


class _RowCollector(_Collector):
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

    def values(self, labellings: np.ndarray, weighting: str) -> np.ndarray:
        """(labellings, layers) nu."""
        seen = self._seen.numpy()  # a text without a row is left out
        labels = labellings if seen.all() else labellings[:, seen]
        states = self._states if seen.all() else [state[self._seen] for state in self._states]
        return np.stack([nu_of_rows(state.split, labels, weighting) for state in states], axis=1)


class _MomentCollector(_Collector):
    """A consumer that keeps no row: for each labelling, class-weighted moments of every layer with one-hot labels."""

    def __init__(self, examples: Examples, labellings: np.ndarray, weighting: str, model: Model) -> None:
        super().__init__(examples)
        self._labels = torch.from_numpy(np.ascontiguousarray(labellings))
        self._weights = torch.from_numpy(np.stack([class_weights(each, weighting) for each in labellings]))
        self._classes, self._layers = int(labellings.max()) + 1, model.depth + 1
        widths, pairs = [*model.widths, self._classes], [(k, self._layers) for k in range(self._layers)]
        options: dict[str, Any] = {"pairs": pairs, "exact": True, "device": model.device}
        if len(labellings) > 1:
            options["block"] = max(64, model.width // 4)  # waiting rows must not take more than the products
        self.moments = [Moments(widths, **options) for _ in labellings]

    def update(self, batch: Batch) -> None:
        states, at = batch.states[0], self._places(batch)
        for moments, labels, weights in zip(self.moments, self._labels, self._weights, strict=True):
            one_hot = torch.nn.functional.one_hot(labels[at], self._classes).double().to(moments.device)
            moments.update([*(states[layer] for layer in sorted(states)), one_hot], weights[at])

    def reduce(self, team: Team) -> None:
        """Add the moments of all processes."""
        self.moments = [moments.reduce(team) for moments in self.moments]

    def values(self, labellings: np.ndarray, weighting: str) -> np.ndarray:
        """(labellings, layers) nu."""
        layers = range(self._layers)
        return np.asarray([[nu_of_moments(each, layer, weighting) for layer in layers] for each in self.moments])


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
