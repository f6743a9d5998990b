"""nu: variability within classes over that between them, nu = 1/C trace(S_w S_b^+) (Xie et al. 2022, equation 3).

It is computed from moments, or from rows under many labellings at once. The between-class scatter S_b has a rank below
the number of classes, so all is done in the small space of class means: no matrix of width x width is inverted, and
from rows none is made. nu depends on how many rows there are beside the width: of noise with two classes it is about
n / (2 d), and further columns of noise bring it down.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from layerscope.drawing.captions import listed
from layerscope.errors import InputError, LayerscopeWarning
from layerscope.probing.labelled_rows import several_classes
from layerscope.probing.layer_score import LayerRows, LayerScore
from layerscope.results import Curve, Finding
from layerscope.results.finding import ANSWER, SIGNIFICANT, SUPPORT, interval, number, rows
from layerscope.results.finding import extreme as extreme_row
from layerscope.similarity.moments import Moments

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure

WEIGHTINGS = ("class", "rows")
_CELLS = 1 << 22  # numbers that one product of a block with all labellings makes
_MEANS = 1 << 24  # numbers that the class means of labellings which are looked at together have
_BLOCK = 8192
_TINY = 1e-300  # in place of 0, which has no logarithm
EQUAL_MEANS = "the means of all classes are the same there up to rounding"

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
            stacklevel=5,
        )


def class_weights(labels: np.ndarray, weighting: str) -> np.ndarray:
    """One weight per row, summing to 1: classes count equally, or rows do."""
    if weighting == "rows":
        return np.full(len(labels), 1 / len(labels))
    counts = np.bincount(labels)
    return 1 / (len(counts) * counts[labels])


def nu_of_rows(blocks: Blocks, labellings: np.ndarray, weighting: str = "class") -> np.ndarray:
    """nu of one layer under each of several labellings, in two passes over its rows, or more if classes are many.

    Args:
        blocks: Gives the layer's rows, so many at a time.
        labellings: (P, n), numbers 0..C-1; each has rows of every class.
        weighting: `class`, or `rows`.

    Returns:
        (P,) values, each with class weights of its own; NaN where all class means are the same.
    """
    classes, width = int(labellings.max()) + 1, next(iter(blocks(_BLOCK))).shape[1]
    some = max(1, _MEANS // (classes * width))
    groups = [labellings[start : start + some] for start in range(0, len(labellings), some)]
    return np.concatenate([_nu_under(blocks, group, classes, weighting) for group in groups])


def _nu_under(blocks: Blocks, labellings: np.ndarray, classes: int, weighting: str) -> np.ndarray:
    """nu under so many labellings that the means of all their classes fit into memory."""
    labels = torch.from_numpy(np.ascontiguousarray(labellings))
    shift, sums, squares = _class_sums(blocks, labels, classes)
    sizes = torch.stack([torch.bincount(each, minlength=classes) for each in labels]).double()  # (P, C)
    means = sums / sizes[..., None]  # (P, C, d), about the shift
    share = torch.full_like(sizes, 1 / classes) if weighting == "class" else sizes / sizes.sum(dim=1, keepdim=True)
    offset = means - (share[..., None] * means).sum(dim=1, keepdim=True)
    # The directions of many class means are those of the small triangle of their QR decomposition.
    spread = torch.linalg.qr(offset, mode="r").R if classes > offset.shape[2] else offset
    directions, lengths, _ = torch.linalg.svd(spread.transpose(1, 2) / classes**0.5, full_matrices=False)
    real = _real(lengths, shift, sums[0].sum(dim=0) / labels.shape[1], float(squares) / labels.shape[1])
    within = _within(blocks, labels, means, directions, share / sizes, shift)
    each = torch.where(real, within / lengths.clamp_min(1e-300).pow(2), torch.zeros_like(within)).sum(dim=1) / classes
    return torch.where(real.any(dim=1), each, torch.full_like(each, math.nan)).numpy()


def _class_sums(blocks: Blocks, labels: Tensor, classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """A shift near the mean, the sums (P, C, d) about it of the rows of every class of every labelling, and the sum of
    squares about it of all rows."""
    shift, sums, squares, start = None, None, torch.zeros((), dtype=torch.float64), 0
    for block in blocks(_BLOCK):
        rows = block.double()
        if shift is None or sums is None:
            shift = rows.mean(dim=0)
            sums = torch.zeros(len(labels), classes, rows.shape[1], dtype=torch.float64)
        rows = rows - shift
        for of_one, here in zip(sums, labels[:, start : start + len(rows)], strict=True):
            of_one.index_add_(0, here, rows)
        squares += rows.pow(2).sum()
        start += len(rows)
    assert shift is not None
    assert sums is not None
    return shift, sums, squares


def _real(lengths: Tensor, shift: Tensor, mean: Tensor, square: float) -> Tensor:
    """(P, C) whether a direction between class means is more than rounding, beside the scale of the layer itself."""
    scale = max(float((shift + mean).pow(2).sum()), square - float(mean @ mean))
    first = lengths[:, :1]
    return (lengths > 1e-7 * first) & (first.pow(2) > 1e-12 * scale)


def _within(
    blocks: Blocks, labels: Tensor, means: Tensor, directions: Tensor, weights: Tensor, shift: Tensor
) -> Tensor:
    """(P, directions) the weighted variance of rows about the mean of their class, along every direction."""
    count = len(weights)
    joined = directions.permute(1, 0, 2).reshape(len(shift), -1)  # (d, P x directions)
    centres = means @ directions  # (P, C, directions)
    within, start = torch.zeros(count, directions.shape[2], dtype=torch.float64), 0
    each = torch.arange(count)[:, None]
    for block in blocks(max(64, min(_BLOCK, _CELLS // joined.shape[1]))):
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
    "caveat": "Intervals come from halves of the texts; a rough or flat curve is no ground to choose on. nu depends on "
    "how many rows there are beside the width: do not compare it across widths or numbers of rows.",
}


class SpecialtyCurve(Curve):
    """nu of every layer, with PRESS beside it in `press`, where that was measured."""

    press: Curve | None = None

    @property
    def ties(self) -> list[int] | None:
        """As of other curves, by ratios: nu varies by as much as it is large, so that differences tell little."""
        logs = [None if each is None else np.log(np.maximum(each, _TINY)) for each in (self.values, self.draws)]
        values, draws = logs
        assert values is not None
        return Curve(self.name, self.models, self.layers, values, best=self.best, draws=draws).ties

    @property
    def frame(self) -> pandas.DataFrame:
        """As of other curves; with `press`, and its low, high, null and p where they are known, beside nu."""
        frame = super().frame
        if self.press is not None:
            frame["press"] = self.press.values
            for name in ("low", "high", "null", "p"):
                if (extra := getattr(self.press, name)) is not None:
                    frame[f"press_{name}"] = extra
        return frame

    def figures(self) -> list[Figure]:
        return [*super().figures(), *([] if self.press is None else self.press.figures())]

    def findings(self) -> list[Finding]:
        """The layer with the least nu, whether it shows the labels, and which layers may be as good; then PRESS's."""
        return [*self._of_nu(), *([] if self.press is None else self.press.findings())]

    def _of_nu(self) -> list[Finding]:
        """The findings of nu alone."""
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
        text = f"The classes show in layer {layer}, where nu is {least}{permuted}."
        if p >= SIGNIFICANT:
            text = f"No layer is shown to separate the classes: the least nu is {least}, in layer {layer}{permuted}."
        known = not math.isnan(p)
        evidence = f"p = {p:.2g} after allowing for the choice among layers" if known else "no labels were permuted"
        bounds = f"; {interval(best['low'], best['high'])}" if "low" in frame else ""
        sure = bool(p < SIGNIFICANT) if known else None
        findings = [Finding(text, f"{evidence}{bounds}{rows(n)}", sure, ANSWER)]
        if p >= SIGNIFICANT or len(layers) < 2 or self.ties is None:
            return findings
        others = [str(each) for each in self.ties if each != layer]
        text = f"Layer {layer} separates the classes best: nu is higher in every other layer."
        if others:
            noun = "layer" if len(others) == 1 else "layers"
            text = f"Layer {layer} has the least nu, and cannot be told apart from {noun} {listed(others)}."
        evidence = f"95% intervals of {len(layers) - 1} ratios, over halves of the texts, widened for so many"
        return [*findings, Finding(text, evidence, not others, SUPPORT)]


class Nu(LayerScore):
    """Variability within classes over that between them; low is good. It falls with the width, whatever the labels."""

    name = "nu"
    title = WORDS["title"]
    shows = WORDS["shows"]
    numbers = False
    least = True
    within = (0.0, math.inf)
    unchanged_by = ("shift", "scale", "rotation")
    resamples = 40
    source = "Xie et al. 2022"
    undefined = EQUAL_MEANS
    moments = "classes"
    fewest = 1

    def __init__(self, weighting: str = "class") -> None:
        self.settings = {"weighting": weighting}

    @property
    def words(self) -> Mapping[str, str]:
        return WORDS

    def made(self, *args: Any, **more: Any) -> Curve:
        return SpecialtyCurve(*args, **more)

    def warn(self, labels: np.ndarray) -> None:
        warn_of_single_rows(labels)

    def values(self, layer: LayerRows, labellings: np.ndarray) -> np.ndarray:
        return nu_of_rows(layer.blocks, labellings, self.settings["weighting"])

    def of_moments(
        self, parts: Sequence[Moments], labels: int, columns: int, *, intervals: bool
    ) -> tuple[np.ndarray, np.ndarray | None]:
        weighting = self.settings["weighting"]
        values = [[nu_of_moments(each, layer, weighting) for layer in range(labels)] for each in parts]
        return np.asarray(values), None
