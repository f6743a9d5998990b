"""Maps with a closed form: the affine map, its ridge solutions, and the map through canonical directions.

The canonical map (Ren et al. 2023, section 3.3) is W_X W_Y^-1: rows of X in canonical coordinates are taken for rows of
Y in theirs, so on exactly linear data it is that map. (Least squares would shrink each coordinate by its correlation.)
PWCCA weights the correlations of CCA and has no map of its own; `ls.measure("pwcca")` gives its similarity, and
`held_out_pwcca` that on rows which its directions and weights were not found on.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from layerscope.alignment.aligner import Aligner, folds

STRENGTHS = tuple(10.0**k for k in range(-8, 4))  # ridge, as shares of the mean variance of X
_FOLDS = 5
_RANK = 1e-10  # singular values below this share of the largest are rounding


class Affine(Aligner):
    """y = (x - x_mean) W + y_mean."""

    def _map(self, x: Tensor) -> Tensor:
        return (x - self.tensors_["x_mean"]) @ self.tensors_["weight"] + self.tensors_["y_mean"]

    def _back(self, y: Tensor) -> Tensor:
        return (y - self.tensors_["y_mean"]) @ self.tensors_["back"] + self.tensors_["x_mean"]

    def _keep(self, x: Tensor, y: Tensor, weight: Tensor, back: Tensor) -> None:
        """Keep the map, the way back, and the means of both sides."""
        self.tensors_ = {"weight": weight, "back": back, "x_mean": x.mean(dim=0), "y_mean": y.mean(dim=0)}


class Ridge:
    """Ridge solutions of one centred problem for any strength, from one factorisation of the smaller side."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.means = x.mean(dim=0), y.mean(dim=0)
        u, self.s, self.vt = svd(x - self.means[0])
        self.target = u.T @ (y - self.means[1])
        self.scale = float(self.s.square().sum()) / x.shape[1]  # the mean variance of X, times n

    def weight(self, strength: float) -> Tensor:
        """(d, d') the ridge solution of a strength, which is a share of the mean variance of X."""
        return self.vt.T @ (self._shrunk(strength)[:, None] * self.target)

    def errors(self, x: Tensor, y: Tensor) -> Tensor:
        """The summed squared error on other rows under each of `STRENGTHS`."""
        rows, wanted = (x - self.means[0]) @ self.vt.T, y - self.means[1]
        sums = [((rows * self._shrunk(share)) @ self.target - wanted).square().sum() for share in STRENGTHS]
        return torch.stack(sums).cpu()

    def _shrunk(self, strength: float) -> Tensor:
        """(r,) the factors of the singular directions under a ridge strength."""
        return self.s / (self.s.square() + strength * self.scale).clamp_min(1e-300)


def strength_of(x: Tensor, y: Tensor, seed: int, texts: np.ndarray | None = None) -> float:
    """The ridge strength with the least error over folds of texts; of equal ones the strongest."""
    errors = torch.zeros(len(STRENGTHS), dtype=x.dtype)
    for parts in folds(np.arange(len(x)) if texts is None else texts, _FOLDS, seed):
        held, rest = (torch.from_numpy(part).to(x.device) for part in parts)
        errors += Ridge(x[rest], y[rest]).errors(x[held], y[held])
    return STRENGTHS[len(STRENGTHS) - 1 - int(errors.flip(0).argmin())]


def svd(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U (n, r), s (r,), V' (r, d) of centred rows, r their rank; by QR first where there are many rows."""
    if len(x) > 2 * x.shape[1]:
        q, triangle = torch.linalg.qr(x)
        u, s, vt = torch.linalg.svd(triangle, full_matrices=False)
        u = q @ u
    else:
        u, s, vt = torch.linalg.svd(x, full_matrices=False)
    rank = max(1, int((s > _RANK * s[0]).sum()))
    return u[:, :rank], s[:rank], vt[:rank]


class Factors:
    """The factors of one side: its mean, and U, s and V' of the centred rows.

    They are of the fewest directions that reach the share `keep` of the variance.
    """

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


def held_out_pwcca(learned: tuple[Tensor, Tensor], scored: tuple[Tensor, Tensor], keep: float = 0.99) -> float:
    """PWCCA on other rows: along the canonical directions of `learned`, with its weights, the correlations of `scored`.

    On the rows that were learned from it is `ls.measure("pwcca")`.
    """
    sides = [Factors(rows.double(), keep) for rows in learned]
    p, _, qt = torch.linalg.svd(sides[0].u.T @ sides[1].u, full_matrices=False)
    # Weights: how much of the centred columns of X lies along each direction, h = U p.
    weights = (p.T @ (sides[0].s[:, None] * sides[0].vt)).abs().sum(dim=1)
    along = [
        (rows.double() - rows.double().mean(dim=0)) @ (side.vt.T / side.s) @ turn
        for rows, side, turn in zip(scored, sides, (p, qt.T), strict=True)
    ]
    norms = along[0].norm(dim=0) * along[1].norm(dim=0)
    correlations = (along[0] * along[1]).sum(dim=0) / norms.clamp_min(1e-300)
    return float((weights * correlations).sum() / weights.sum())
