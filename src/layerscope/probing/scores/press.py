"""PRESS: how well a linear map tells the labels of texts that it was not solved on, exactly and in closed form.

The map is ridge regression from standardised columns, with an intercept that is not shrunk, to one indicator for each
class, or to numbers. With H its hat matrix and r its residuals, the residuals of a text's rows B where the map is
solved without that text are (I - H_BB)^-1 r_B (Allen 1974, for one row at a time). Their squares over those of the mean
without the text, taken from 1, are the value. The strength of the ridge is the one of a grid that leaves the least
squares. The grid goes up to infinity, where the map is that mean itself, so that a layer that says nothing of the
labels has 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.probing.layer_score import LayerRows, LayerScore, column_scales, joined, targets
from layerscope.similarity.moments import Moments

GRID = 10.0 ** np.arange(-3.0, 3.25, 0.5)  # ridge strengths per row, beside columns of variance 1; infinity comes last
_BLOCK = 8192  # rows at a time
_COLUMNS = 512  # columns of labels at a time
_FEW = 64  # classes that are columns in any case
_FEWEST = 256  # rows at a time where classes are many
_NUMBERS = 1 << 25  # of a product that is made in parts


class Press(LayerScore):
    """R2 of ridge regression on class indicators, each text left out in turn, exactly; 0 where nothing is said."""

    name = "press"
    title = "PRESS: how well a linear map tells the labels of texts that were left out"
    shows = "R² of ridge regression on class indicators (or numbers), with every text left out in turn,"
    reading = "Higher is better; 0 is no better than the mean of the labels."
    within = (-np.inf, 1.0)
    zero = 0.0
    unchanged_by = ("shift", "scale", "columns")
    resamples = 200  # nothing is solved again
    source = "Allen 1974"
    moments = "groups"
    settings = MappingProxyType({"form": "each text left out in turn, exactly"})

    def __init__(self, axes: int | None = None) -> None:
        """`axes` keeps so many principal axes of the rows, which sets layers of different widths side by side."""
        self.axes = axes

    def values(self, layer: LayerRows, labellings: np.ndarray) -> np.ndarray:
        if is_sparse(layer, labellings, self.axes):
            return np.asarray([float(r2(squares_of_classes(layer, each, self.axes))) for each in labellings])
        some = max(1, _COLUMNS // len(targets(labellings, 0, 1)[0, 0]))
        parts = (labellings[start : start + some] for start in range(0, len(labellings), some))
        return np.concatenate([r2(left_out_squares(layer, part, self.axes)[0]).numpy() for part in parts])

    def of_halves(self, layer: LayerRows, labels: np.ndarray, halves: np.ndarray) -> np.ndarray:
        """What the value would be over each half, to first order, from what it is without each text.

        The value varies with the texts that are left out and with those that the map is solved on. The squares of the
        halves' texts under one map would vary with the former alone: intervals would be too narrow by a third where
        columns are many.
        """
        value, without = jackknife(layer, labels, self.axes)
        influence = -(len(without) - 1) * (without - without.mean())
        chosen = halves[:, layer.starts[:-1]].astype(float)
        return value + chosen @ influence / chosen.sum(axis=1)

    def of_moments(
        self, parts: Sequence[Moments], labels: int, columns: int, *, intervals: bool
    ) -> tuple[np.ndarray, np.ndarray | None]:
        return of_groups(parts, labels, columns)


def r2(squares: Tensor) -> Tensor:
    """The value of the best ridge strength, from squares (strengths, ..), the last of which are those of the mean."""
    return 1 - squares.min(dim=0).values / squares[-1]


def left_out_squares(
    layer: LayerRows, labellings: np.ndarray, axes: int | None = None, size: int = _BLOCK
) -> tuple[Tensor, Tensor]:
    """The squared errors of every ridge strength, the infinite one last, where every text is left out in turn.

    Returns:
        (strengths, P) their sums under each labelling, and (strengths, texts) those of every text under the first.
    """
    n, values = len(layer), layer.spectrum[0][:axes]
    mean, cross = _means(layer, labellings)
    cross = cross[:axes]
    shrunk = 1 / (values[:, None] + n * torch.from_numpy(GRID))  # (r, strengths)
    totals = torch.zeros(len(GRID) + 1, len(labellings), dtype=torch.float64)
    of_texts = torch.zeros(len(GRID) + 1, len(layer.sizes), dtype=torch.float64)
    for texts, rows in layer.whole_texts(size):
        along = layer.along_axes(rows.start, rows.stop)[:, :axes]
        y = targets(labellings, rows.start, rows.stop)
        shape = y.shape[1:]
        y = y.reshape(len(y), -1) - mean
        text = layer.number[rows] - texts.start
        left_out = _LeftOut(along, text, layer.sizes[texts], n)
        for k in range(len(GRID) + 1):
            if k < len(GRID):
                errors = left_out(y - along @ (cross * shrunk[:, k, None]), shrunk[:, k])
            else:
                errors = left_out.of_mean(y)
            squares = errors.pow(2).reshape(-1, *shape).sum(dim=2)  # (rows, P)
            totals[k] += squares.sum(dim=0)
            of_texts[k, texts].index_add_(0, text, squares[:, 0])
    return totals, of_texts


def is_sparse(layer: LayerRows, labellings: np.ndarray, axes: int | None) -> bool:
    """Whether labels are so many classes that a column for each would be most of the work: more than there are axes."""
    several = labellings.dtype.kind != "f" and len(layer.sizes) == len(layer)
    return several and int(labellings.max()) + 1 > max(len(layer.spectrum[0][:axes]), _FEW)


def squares_of_classes(layer: LayerRows, labels: np.ndarray, axes: int | None = None) -> Tensor:
    """(strengths,) what `left_out_squares` sums under one labelling, without a column for each class.

    For texts of one row. With a the row along the axes, W the map and m the means of the indicators, the squares of
    what a row leaves over are |y - m|^2 - 2 (y - m)'W'a + a'WW'a: the first two need the row's own class alone, and WW'
    is as wide as there are axes.
    """
    n, values = len(layer), layer.spectrum[0][:axes]
    label = torch.from_numpy(np.ascontiguousarray(labels))
    counts = torch.bincount(label).double()
    mean = counts / n
    cross = torch.zeros(len(counts), len(values), dtype=torch.float64)
    for start in range(0, n, _BLOCK):
        cross.index_add_(0, label[start : start + _BLOCK], layer.along_axes(start, min(start + _BLOCK, n))[:, :axes])
    square = cross.T @ cross
    about = 1 - 2 * mean[label] + mean.square().sum()
    totals = torch.zeros(len(GRID) + 1, dtype=torch.float64)
    totals[-1] = (about * (n / (n - 1)) ** 2).sum()
    shrunk = 1 / (values[:, None] + n * torch.from_numpy(GRID))  # (r, strengths)
    toward = cross.T @ mean
    for start in range(0, n, _BLOCK):
        rows = slice(start, min(start + _BLOCK, n))
        along = layer.along_axes(rows.start, rows.stop)[:, :axes]
        own = along * (cross[label[rows]] - toward)
        for k in range(len(GRID)):
            scaled = along * shrunk[:, k]
            left = about[rows] - 2 * own @ shrunk[:, k] + ((scaled @ square) * scaled).sum(dim=1)
            leverage = 1 / n + along.square() @ shrunk[:, k]
            totals[k] += (left / (1 - leverage) ** 2).sum()
    return totals


def _means(layer: LayerRows, labellings: np.ndarray) -> tuple[Tensor, Tensor]:
    """The mean of every column of labels, and (r, columns) their sums along the layer's axes."""
    mean: Any = 0.0
    cross: Any = 0.0
    for start in range(0, len(layer), _BLOCK):
        stop = min(start + _BLOCK, len(layer))
        y = targets(labellings, start, stop).reshape(stop - start, -1)
        mean = mean + y.sum(dim=0)
        cross = cross + layer.along_axes(start, stop).T @ y  # the rows are centred, so y need not be
    return mean / len(layer), cross


def jackknife(layer: LayerRows, labels: np.ndarray, axes: int | None = None) -> tuple[float, np.ndarray]:
    """The value, and (texts,) what it is without each text, the ridge strength being the same.

    Where text j is not there, the residuals of text i are those without i and j. With e the residuals of each text
    where it is left out alone, M = I - H_BB of its rows and G_ij = M_i^-1 H_ij, these are e_i + G_ij e_j, up to terms
    that are smaller by the leverage of one text over another. Summing their squares over i needs nothing of the size
    texts x texts: sum_i e_i' G_ij e_j and sum_i |G_ij e_j|^2 are products with sums over all texts.
    """
    n, (values, _) = len(layer), layer.spectrum
    values = values[:axes]
    size = max(_FEWEST, min(_BLOCK, _NUMBERS // targets(labels[None], 0, 1).numel()))
    totals, of_texts = left_out_squares(layer, labels[None], axes, size)
    best = int(totals[:, 0].argmin())
    value = float(1 - totals[best, 0] / totals[-1, 0])
    if best == len(GRID):  # the map is the mean of the labels, whichever text is not there
        return value, np.full(len(layer.sizes), value)
    mean, cross = _means(layer, labels[None])
    shrunk = 1 / (values + n * GRID[best])
    sums: list[Any] = [0.0] * 4  # over all texts: of the map's residuals and leverages, and of the mean's

    def pieces() -> Iterator[tuple[slice, Tensor, Tensor, list[Tensor]]]:
        for texts, rows in layer.whole_texts(size):
            along = layer.along_axes(rows.start, rows.stop)[:, :axes]
            text, sizes = layer.number[rows] - texts.start, layer.sizes[texts]
            y = targets(labels[None], rows.start, rows.stop)[:, 0] - mean
            wide = torch.cat([along * shrunk.sqrt(), torch.full((len(y), 1), n**-0.5, dtype=y.dtype)], dim=1)
            left_out = _LeftOut(along, text, sizes, n)
            errors = left_out(y - along @ (cross[:axes] * shrunk[:, None]), shrunk)
            of_mean = left_out.of_mean(y)
            # M^-1 of the mean alone: I + 11' / (n - size).
            again = left_out.of_mean(of_mean)
            yield texts, text, wide, [errors, left_out(errors, shrunk), left_out(wide, shrunk), of_mean, again]

    for texts, _, wide, (_, twice, leverage, _, again) in pieces():
        rows_of = torch.from_numpy(layer.sizes[texts]).double()
        more = wide.T @ twice, leverage.T @ leverage, again.sum(dim=0) / n, (rows_of * n / (n - rows_of) ** 2).sum()
        sums = [old + new for old, new in zip(sums, more, strict=True)]
    toward, weight, mean_toward, mean_weight = sums
    without = []
    for texts, text, wide, (errors, twice, _, of_mean, again) in pieces():
        count = len(layer.sizes[texts])

        def by_text(rows: Tensor, text: Tensor = text, count: int = count) -> Tensor:
            return torch.zeros(count, *rows.shape[1:], dtype=rows.dtype).index_add_(0, text, rows)

        own = by_text((twice - errors).pow(2).sum(dim=1))  # what the sums over all texts have of the text itself
        if count == len(text):
            reached = ((wide @ weight) * wide).sum(dim=1) * errors.pow(2).sum(dim=1)
        else:
            reached = torch.zeros(count, dtype=wide.dtype)
            some = max(1, _NUMBERS // wide.numel())
            for part in errors.split(some, dim=1):
                along_text = by_text(wide[:, :, None] * part[:, None])  # (texts, r + 1, columns)
                reached += (along_text * (weight @ along_text)).sum(dim=(1, 2))
        turned = by_text((errors * (wide @ toward - (twice - errors))).sum(dim=1))
        squares = totals[best, 0] - of_texts[best, texts] + 2 * turned + reached - own
        own = by_text((again - of_mean).pow(2).sum(dim=1))
        reached = mean_weight / n * by_text(of_mean).pow(2).sum(dim=1)
        turned = by_text((of_mean * (mean_toward - (again - of_mean))).sum(dim=1))
        of_means = totals[-1, 0] - of_texts[-1, texts] + 2 * turned + reached - own
        without.append(1 - squares / of_means)
    return value, torch.cat(without).numpy()


class _LeftOut:
    """From the residuals of some whole texts to what they are where the map is solved without each text."""

    def __init__(self, along: Tensor, text: Tensor, sizes: np.ndarray, n: int) -> None:
        self.along, self.text, self.n = along, text, n
        self.sizes = torch.from_numpy(sizes)
        self.squares = along.pow(2) if bool((self.sizes == 1).any()) else along
        rows = torch.from_numpy(np.arange(len(text)))
        of_row = self.sizes[text]
        # The rows of all texts of one size, (texts, size): one solution for all of them.
        self.alike = [(int(m), rows[of_row == m].view(-1, int(m))) for m in torch.unique(self.sizes)]

    def __call__(self, residuals: Tensor, shrunk: Tensor) -> Tensor:
        """The residuals under one ridge strength; `shrunk` is 1 / (eigenvalue + strength) for every axis."""
        errors = torch.empty_like(residuals)
        for size, at in self.alike:
            if size == 1:
                leverage = 1 / self.n + self.squares[at[:, 0]] @ shrunk
                errors[at[:, 0]] = residuals[at[:, 0]] / (1 - leverage)[:, None]
                continue
            along, here = self.along[at], residuals[at]  # (texts, size, r), (texts, size, columns)
            if size <= len(shrunk):
                hat = (along * shrunk) @ along.mT + 1 / self.n
                errors[at] = torch.linalg.solve(torch.eye(size, dtype=hat.dtype) - hat, here)
            else:  # a text of more rows than there are axes: the smaller system (Woodbury)
                wide = torch.cat([along, torch.ones(*along.shape[:2], 1, dtype=along.dtype)], dim=2)
                inner = torch.diag(torch.cat([1 / shrunk, shrunk.new_tensor([float(self.n)])])) - wide.mT @ wide
                errors[at] = here + wide @ torch.linalg.solve(inner, wide.mT @ here)
        return errors

    def of_mean(self, centred: Tensor) -> Tensor:
        """What is left of labels, from which their mean has been taken, less their mean without each text."""
        sums = torch.zeros(len(self.sizes), centred.shape[1], dtype=centred.dtype).index_add_(0, self.text, centred)
        return centred + (sums / (self.n - self.sizes)[:, None])[self.text]


def of_groups(groups: Sequence[Moments], labels: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """PRESS from moments alone: a group of texts is left out at a time, exactly.

    Args:
        groups: The moments of every group. The views are layers and, last, the labels of all labellings side by side.
        labels: The number of the view with the labels.
        columns: How many columns of it each labelling has.

    Returns:
        (labellings, layers) the values, and (groups, layers) those under the first labelling without each group.
    """
    total = joined(groups)
    scales = [column_scales(total, layer) for layer in range(labels)]
    squares = []  # (groups, layers, strengths, labellings)
    for group in groups:
        rest = total.without(group)
        squares.append([_of_group(group, rest, layer, labels, columns, scales[layer]) for layer in range(labels)])
    each = torch.stack([torch.stack(of_group) for of_group in squares])
    whole = each.sum(dim=0)
    values = r2(whole.transpose(0, 1)).numpy().T  # (labellings, layers)
    best = whole[:, :, 0].argmin(dim=1)
    without = _without_groups(groups, total, labels, columns, scales, best)
    constant = np.asarray([bool((scale == 0).all()) for scale in scales])
    values[:, constant] = without[:, constant] = np.nan
    return values, without


def _without_groups(
    groups: Sequence[Moments], total: Moments, labels: int, columns: int, scales: Sequence[Tensor], best: Tensor
) -> np.ndarray:
    """(groups, layers) the values under the first labelling without each group.

    The maps are not solved on that group either, so every two groups are left out together once. The ridge strengths
    are the chosen ones.
    """
    count, n = len(groups), total.n
    squares = torch.zeros(2, count, labels, dtype=torch.float64)  # of the maps and of the means, without each group
    for first, second in combinations(range(count), 2):
        rest = total.without(groups[first]).without(groups[second])
        label_mean, first_labels = rest.mean(labels)[:columns], slice(0, columns)
        for layer, scale in enumerate(scales):
            weights = torch.zeros(len(scale), columns, dtype=torch.float64)
            if best[layer] < len(GRID):
                scaled = scale[:, None] * rest.scatter(layer, layer) * scale
                scaled.diagonal().add_(n * GRID[best[layer]])
                cross = scale[:, None] * rest.scatter(layer, labels)[:, first_labels]
                weights = scale[:, None] * torch.linalg.solve(scaled, cross)
            for out, scored in ((first, groups[second]), (second, groups[first])):
                about = scored.scatter(labels, labels).diagonal()[first_labels]
                far = scored.mean(labels)[first_labels] - label_mean
                squares[1, out, layer] += (about + scored.n * far.pow(2)).sum()
                far = far - (scored.mean(layer) - rest.mean(layer)) @ weights
                along = (weights * scored.scatter(layer, labels)[:, first_labels]).sum(dim=0)
                spread = (weights * (scored.scatter(layer, layer) @ weights)).sum(dim=0)
                squares[0, out, layer] += (about - 2 * along + spread + scored.n * far.pow(2)).sum()
    return (1 - squares[0] / squares[1]).numpy()


def _of_group(group: Moments, rest: Moments, layer: int, labels: int, columns: int, scale: Tensor) -> Tensor:
    """(strengths, labellings) the squared errors on a group's rows of maps solved on the rest."""
    scaled = scale[:, None] * rest.scatter(layer, layer) * scale
    values, vectors = torch.linalg.eigh(scaled)
    axes = scale[:, None] * vectors
    cross = axes.T @ rest.scatter(layer, labels)
    spread = axes.T @ group.scatter(layer, layer) @ axes
    own = axes.T @ group.scatter(layer, labels)
    far = axes.T @ (group.mean(layer) - rest.mean(layer))
    label_far = group.mean(labels) - rest.mean(labels)
    about = group.scatter(labels, labels).diagonal()
    found = []
    n = group.n + rest.n
    for strength in [*(n * GRID), np.inf]:
        weights = cross / (values.clamp_min(0)[:, None] + strength)
        squares = about - 2 * (weights * own).sum(dim=0) + (weights * (spread @ weights)).sum(dim=0)
        squares = squares + group.n * (label_far - far @ weights).pow(2)
        found.append(squares.view(-1, columns).sum(dim=1))
    return torch.stack(found)
