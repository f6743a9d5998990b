"""Canonical directions (Ren et al. 2023, section 3.3): the factors of a side, and the map between two of them.

The map is W_X W_Y^-1: rows of X in canonical coordinates are taken for rows of Y in theirs, so on exactly linear data
it is that map. (Least squares would shrink each coordinate by its correlation.) PWCCA weights the correlations of CCA
and has no map of its own; `ls.measure("pwcca")` gives its similarity.
"""

from __future__ import annotations

import torch
from torch import Tensor

from layerscope.alignment.affine import svd


class Factors:
    """One side: its mean, U, s and V' of the centred rows, of the fewest directions that reach `keep`."""

    def __init__(self, rows: Tensor, keep: float = 1.0) -> None:
        self.mean = rows.mean(dim=0)
        u, s, vt = svd(rows - self.mean)
        if keep < 1:
            shares = s.square().cumsum(dim=0) / s.square().sum().clamp_min(1e-300)
            count = min(len(s), int((shares < keep).sum()) + 1)
            u, s, vt = u[:, :count], s[:count], vt[:count]
        self.u, self.s, self.vt = u, s, vt

    @property
    def rank(self) -> int:
        """How many directions are kept."""
        return len(self.s)


def canonical_map(source: Factors, target: Factors, ridge: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """W_X W_Y^-1 (d, d'), the way back W_Y W_X^-1 (d', d), and the canonical correlations."""
    scales = [(side.s.square() + ridge * side.s.square().mean()).sqrt() for side in (source, target)]
    whitening = [torch.where(scale > 0, 1 / scale, 0.0) for scale in scales]  # a constant side has no directions
    cosine = (source.s * whitening[0])[:, None] * (source.u.T @ target.u) * (target.s * whitening[1])
    p, correlations, qt = torch.linalg.svd(cosine, full_matrices=False)
    turn = p @ qt  # (r, r') between the whitened coordinates
    there = source.vt.T @ (whitening[0][:, None] * turn * scales[1]) @ target.vt
    back = target.vt.T @ (whitening[1][:, None] * turn.T * scales[0]) @ source.vt
    return there, back, correlations.clamp(0.0, 1.0)
