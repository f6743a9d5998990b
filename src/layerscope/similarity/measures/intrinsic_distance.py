"""Multi-scale intrinsic distance: how far the shapes of two sets of rows differ, each seen through its neighbours."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from layerscope.similarity.measures.kernels import distances
from layerscope.similarity.measures.neighbours import most_similar
from layerscope.similarity.measures.statistics import CAVEAT, unmoved
from layerscope.similarity.registry import register

_TIMES = torch.logspace(-1, 1, 256, dtype=torch.float64)
_SCALE = 1e6  # the authors' code has it: without it, values are near 1e-5


def _heat(x: Tensor, *, k: int = 5) -> Tensor:
    """(256,) the heat kernel's trace per row at every time, of the normalised Laplacian of the neighbours' graph."""
    apart = distances(x).square_()
    near = most_similar(-apart / apart.max(), k)
    n = len(x)
    joined = torch.zeros(n, n, dtype=torch.float64, device=x.device)
    joined[torch.arange(n, device=x.device)[:, None], near] = 1.0
    joined = torch.maximum(joined, joined.T)
    root = joined.sum(dim=1).rsqrt()
    # All eigenvalues, exactly: published code estimates the trace from random vectors, and differs from run to run.
    spectrum = 1 - torch.linalg.eigvalsh(root[:, None] * joined * root)
    return torch.exp(-spectrum[None] * _TIMES.to(spectrum)[:, None]).mean(dim=1)


@register(
    "imd",
    family="statistic",
    symmetric=True,
    bounds=(0.0, math.inf),
    invariances=("orthogonal", "scaling", "translation"),
    needs="rows",
    source="Tsitsulin et al. 2020",
    factor=_heat,
    reorder=unmoved,
    distance=True,
    caveat=f"{CAVEAT} It depends on k and on the number of rows.",
)
def imd(a: Tensor, b: Tensor) -> float:
    """A million times the largest difference of two heat traces over times t, weighted by exp(-2 (t + 1/t)).

    Rows are joined where one is among the k nearest of the other; the trace is that of the heat kernel of this graph's
    normalised Laplacian, per row.
    """
    times = _TIMES.to(a)
    return _SCALE * float((torch.exp(-2 * (times + 1 / times)) * (a - b).abs()).max())
