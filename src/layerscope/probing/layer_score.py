"""What a layer score is, and the rows of a layer as the scores read them. The scores are in `scores/`, one per file."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from layerscope.drawing.captions import listed
from layerscope.probing.labelled_rows import ALIKE
from layerscope.results import Curve, Finding
from layerscope.results.finding import ANSWER, DETAIL, SIGNIFICANT, SUPPORT, interval, number, rows
from layerscope.similarity.moments import Moments
from layerscope.similarity.registry import CONSTANT, varies

_BLOCK = 8192  # rows at a time
_KEPT = 1 << 25  # numbers of a layer whose rows along the axes are kept: 256 MiB
_RANK = 1e-12  # of the greatest eigenvalue of second moments: below it there is only rounding


class LayerRows:
    """The rows of one layer and the text of each, with what several scores make of them, made once.

    Args:
        x: (n, d) the rows; those of one text follow one another.
        texts: (n,) the number of each row's text.
    """

    def __init__(self, x: Tensor, texts: np.ndarray) -> None:
        self.x, self.texts = x, np.asarray(texts)
        first = np.flatnonzero(np.r_[True, self.texts[1:] != self.texts[:-1]])
        self.starts = np.r_[first, len(x)]  # text k has the rows starts[k]..starts[k + 1] - 1
        if len(np.unique(self.texts)) != len(first):
            raise ValueError("the rows of one text must follow one another")

    def __len__(self) -> int:
        return len(self.x)

    @property
    def sizes(self) -> np.ndarray:
        """(texts,) how many rows every text has."""
        return np.diff(self.starts)

    def select(self, rows: np.ndarray) -> LayerRows:
        """Some of the rows, by a mask or by positions in order."""
        return LayerRows(self.x[torch.from_numpy(rows)], self.texts[rows])

    @cached_property
    def number(self) -> Tensor:
        """(n,) the number of each row's text, counted 0, 1, .. as they come."""
        return torch.from_numpy(np.repeat(np.arange(len(self.sizes)), self.sizes))

    def whole_texts(self, size: int = _BLOCK) -> Iterator[tuple[slice, slice]]:
        """Pieces of whole texts, about `size` rows in each and at least one text: which texts, and which rows."""
        first = 0
        while first < len(self.sizes):
            last = int(np.searchsorted(self.starts, self.starts[first] + size, side="right")) - 1
            last = max(first + 1, last)
            yield slice(first, last), slice(int(self.starts[first]), int(self.starts[last]))
            first = last

    @cached_property
    def varies(self) -> bool:
        """Whether the rows differ by more than rounding."""
        return varies(self.x)

    def blocks(self, size: int = _BLOCK) -> Iterator[Tensor]:
        """The rows as they are, so many at a time."""
        return iter(self.x.split(size))

    @cached_property
    def _columns(self) -> tuple[Tensor, Tensor]:
        """The mean of every column, and one over its standard deviation; 0 for a column that is constant."""
        mean = torch.zeros(self.x.shape[1], dtype=torch.float64)
        for block in self.blocks():
            mean += block.double().sum(dim=0)
        mean /= len(self)
        square = torch.zeros_like(mean)
        for block in self.blocks():
            square += (block.double() - mean).pow(2).sum(dim=0)
        square /= len(self)
        real = square > CONSTANT * mean**2
        return mean, torch.where(real, square.clamp_min(1e-300).rsqrt(), torch.zeros_like(square))

    def standardised(self, start: int, stop: int) -> Tensor:
        """Rows start..stop-1 in float64 with columns of mean 0 and variance 1; constant columns are 0."""
        mean, scale = self._columns
        return (self.x[start:stop].double() - mean) * scale

    @cached_property
    def spectrum(self) -> tuple[Tensor, Tensor]:
        """The eigenvalues (r,) of the scatter of the standardised rows, falling, and what turns rows to their axes.

        The second is (d, r), eigenvectors of the scatter; where there are fewer rows than columns it is (n, r), the
        rows along the axes themselves, from the smaller Gram matrix.
        """
        n, width = self.x.shape
        if n < width:
            rows = self.standardised(0, n)
            values, vectors = torch.linalg.eigh(rows @ rows.T)
        else:
            scatter = torch.zeros(width, width, dtype=torch.float64)
            for start in range(0, n, _BLOCK):
                rows = self.standardised(start, start + _BLOCK)
                scatter += rows.T @ rows
            values, vectors = torch.linalg.eigh(scatter)
        values, vectors = values.flip(0), vectors.flip(1)
        kept = values > _RANK * max(n, width) * values[0].clamp_min(0)
        values, vectors = values[kept], vectors[:, kept]
        return values, vectors * values.sqrt() if n < width else vectors

    def along_axes(self, start: int, stop: int) -> Tensor:
        """(stop - start, r) standardised rows along the axes of the spectrum."""
        if len(self) < self.x.shape[1]:
            return self.spectrum[1][start:stop]
        if self.x.numel() <= _KEPT:
            return self._all_along_axes[start:stop]
        return self.standardised(start, stop) @ self.spectrum[1]

    @cached_property
    def _all_along_axes(self) -> Tensor:
        """What `along_axes` gives for all rows, where it is small enough to be kept: several passes go over it."""
        return self.standardised(0, len(self)) @ self.spectrum[1]


def targets(labellings: np.ndarray, start: int = 0, stop: int | None = None) -> Tensor:
    """(rows, P, C) the labels as columns of numbers: one indicator for each class, or numbers with mean 0, variance 1.

    Args:
        labellings: (P, n) class numbers 0..C-1, or numbers as floats.
        start: The first row that is wanted.
        stop: The row after the last one.
    """
    here = torch.from_numpy(np.ascontiguousarray(labellings[:, start:stop].T))
    if labellings.dtype.kind != "f":
        return torch.nn.functional.one_hot(here, int(labellings.max()) + 1).double()
    mean, spread = labellings.mean(axis=1), labellings.std(axis=1)
    return ((here - torch.from_numpy(mean)) / torch.from_numpy(np.where(spread > 0, spread, 1.0)))[..., None]


class LayerScoreCurve(Curve):
    """A layer score over layers: which layer is best, whether it shows the labels, and which layers may be as good."""

    @property
    def shown(self) -> bool | None:
        """Whether the best layer tells the labels, after allowing for the choice among layers; None if not tested."""
        return None if math.isnan(self.p_best) else self.p_best < SIGNIFICANT

    def findings(self) -> list[Finding]:
        """The best layer, whether it tells the labels at all, and which layers cannot be told apart from it."""
        if self.best is None:
            return [Finding(f"{self.name} has no value in any layer.", "every row is the same", False, ANSWER)]
        at, n = self.layers.index(self.best), self.provenance.get("data", {}).get("n")
        value = number(float(self.values[at]))
        permuted = "" if self.null is None else f", and {number(float(self.null[at]))} with permuted labels"
        text = f"The labels show in layer {self.best}: {self.name} is {value}{permuted}."
        if self.shown is False:
            text = (
                f"No layer is shown to tell the labels: {self.name} is {value} at best, in layer {self.best}{permuted}."
            )
        known = "no labels were permuted"
        if self.shown is not None:
            known = f"p = {self.p_best:.2g} after allowing for the choice among layers"
        bounds = "" if self.low is None or self.high is None else f"; {interval(self.low[at], self.high[at])}"
        findings = [Finding(text, f"{known}{bounds}{rows(n)}", self.shown, ANSWER)]
        count = sum(layer >= 1 and not math.isnan(value) for layer, value in zip(self.layers, self.values, strict=True))
        if self.ties is not None and count > 1:
            tied = self.ties
            text = f"Layer {self.best} is better than every other layer."
            if len(tied) > 1:
                text = f"These layers cannot be told apart with these rows: {listed([str(each) for each in tied])}."
            evidence = f"95% intervals of {count - 1} differences, over the same texts, widened for so many"
            findings.append(Finding(text, evidence, len(tied) == 1, SUPPORT))
        if form := self.provenance.get("settings", {}).get("form"):
            findings.append(Finding(f"{self.name} was measured with {form}.", "", None, DETAIL))
        return findings


def joined(parts: Sequence[Moments]) -> Moments:
    """The moments of all parts together, in new ones."""
    total = parts[0].without(parts[0])
    for part in parts:
        total.merge(part)
    return total


def column_scales(moments: Moments, view: int) -> Tensor:
    """(width,) one over the standard deviation of every column of a view; 0 for a column that is constant."""
    mean, square = moments.mean(view), moments.cov(view, view).diagonal()
    return torch.where(square > CONSTANT * mean**2, square.clamp_min(1e-300).rsqrt(), 0.0)


class LayerScore(ABC):
    """A number that says how well the rows of a layer fit labels, without a training that one would notice.

    Attributes:
        name: Its name, which is that of its file.
        title: The title of its figure.
        shows: What the figure shows.
        reading: How the figure is read.
        numbers: Whether labels may be numbers.
        least: Whether the best layer has the least value, or the greatest.
        within: The least and the greatest value that there can be.
        zero: What labels at random give in the mean; None where that depends on the rows.
        unchanged_by: What leaves it as it is: `shift` of the columns, one `scale` for all, a scale for each of the
            `columns`, `rotation`.
        settings: What provenance says of how it was measured; `form` is what is left out at a time.
        moments: Which moments it can be made from where no rows are kept: of ten `groups` of texts with the labels, or
            of `classes` that weigh alike; empty where it needs the rows.
        fewest: The texts that it needs.
        undefined: Why a layer has no value.
        resamples: How many halves of the texts are drawn for an interval.
        source: Where it comes from.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    shows: ClassVar[str]
    reading: ClassVar[str] = "Higher is better."
    numbers: ClassVar[bool] = True
    least: ClassVar[bool] = False
    within: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    zero: ClassVar[float | None] = None
    unchanged_by: ClassVar[tuple[str, ...]]
    resamples: ClassVar[int] = 20
    source: ClassVar[str]
    moments: ClassVar[str] = ""
    fewest: ClassVar[int] = 4  # two in every half
    settings: Mapping[str, Any] = MappingProxyType({})
    undefined: ClassVar[str] = ALIKE

    @property
    def words(self) -> Mapping[str, str]:
        """The words of its figure."""
        return {"title": self.title, "shows": f"{self.shows} in each layer.", "reading": self.reading}

    def made(self, *args: Any, **more: Any) -> Curve:
        """The curve of the score over layers, from the arguments of a `Curve`."""
        return LayerScoreCurve(*args, **more)

    def warn(self, labels: np.ndarray) -> None:  # noqa: B027  (most have nothing to warn of)
        """Warn of class numbers that the score is not made for."""

    @abstractmethod
    def values(self, layer: LayerRows, labellings: np.ndarray) -> np.ndarray:
        """(P,) the score of a layer, whose rows vary, under each of several labellings (P, n); NaN where undefined."""

    def of_moments(
        self, parts: Sequence[Moments], labels: int, columns: int, *, intervals: bool
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """The score of every layer from moments of the kind that it says.

        Args:
            parts: The moments; their views are the layers and, last, columns of labels.
            labels: The number of the view with labels.
            columns: How many columns each labelling has.
            intervals: Whether the values without each part are wanted.

        Returns:
            (labellings, layers) the values, and (parts, layers) those of the first one without each part, or None.
        """
        raise NotImplementedError(f"{self.name} needs the rows.")

    def of_halves(self, layer: LayerRows, labels: np.ndarray, halves: np.ndarray) -> np.ndarray:
        """(halves,) the score over halves of the texts; `halves` (halves, n) are masks of rows."""
        values = []
        for mask in halves:
            part, own = layer.select(mask), labels[mask]
            if labels.dtype.kind != "f":
                own = np.unique(own, return_inverse=True)[1]
            values.append(self.values(part, own[None])[0] if part.varies else math.nan)
        return np.asarray(values)
