"""Correlations of single columns, each with the column of the other layer that it is matched to."""

from __future__ import annotations

from torch import Tensor

from layerscope.similarity.layer_statistics import LayerStatistics
from layerscope.similarity.registry import register

_SOURCE = "Li et al. 2015"
_CAVEAT = (
    "Tied to the axes: a rotated copy of a layer scores low. The best of many is high by chance where rows are few."
)


def _correlations(x: LayerStatistics, y: LayerStatistics, cross: Tensor) -> Tensor:
    """The Pearson correlations of all columns of X with all of Y, constant ones left out."""
    correlations = cross * x.scale[:, None] * y.scale
    return correlations[x.spread > 0][:, y.spread > 0].clamp(-1.0, 1.0)


@register(
    "hard_correlation_match",
    family="neuron",
    symmetric=True,
    bounds=(-1.0, 1.0),
    invariances=("scaling", "translation"),
    needs="moments",
    source=_SOURCE,
    caveat=_CAVEAT,
)
def hard_correlation_match(x: LayerStatistics, y: LayerStatistics, cross: Tensor) -> float:
    """Mean correlation of matched columns, each used once, where the matching makes it largest."""
    from scipy.optimize import linear_sum_assignment

    correlations = _correlations(x, y, cross).double().cpu().numpy()
    return float(correlations[linear_sum_assignment(correlations, maximize=True)].mean())


@register(
    "soft_correlation_match",
    family="neuron",
    symmetric=True,
    bounds=(-1.0, 1.0),
    invariances=("scaling", "translation"),
    needs="moments",
    source=_SOURCE,
    caveat=_CAVEAT,
)
def soft_correlation_match(x: LayerStatistics, y: LayerStatistics, cross: Tensor) -> float:
    """Mean over the columns of both layers of the highest correlation with a column of the other one."""
    correlations = _correlations(x, y, cross)
    return float(correlations.amax(dim=1).mean() + correlations.amax(dim=0).mean()) / 2
