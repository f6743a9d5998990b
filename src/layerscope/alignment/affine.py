"""What maps with a closed form share: the affine map itself, ridge solutions, one factorisation of rows."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from layerscope.alignment.aligner import Aligner
from layerscope.alignment.texts import folds

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
        self.tensors_ = {"weight": weight, "back": back, "x_mean": x.mean(dim=0), "y_mean": y.mean(dim=0)}


class Ridge:
    """Ridge solutions of one centred problem for any strength, from one factorisation of the smaller side."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.means = x.mean(dim=0), y.mean(dim=0)
        u, self.s, self.vt = svd(x - self.means[0])
        self.target = u.T @ (y - self.means[1])
        self.scale = float(self.s.square().sum()) / x.shape[1]  # the mean variance of X, times n

    def weight(self, strength: float) -> Tensor:
        """(d, d')"""
        return self.vt.T @ (self._shrunk(strength)[:, None] * self.target)

    def errors(self, x: Tensor, y: Tensor) -> Tensor:
        """The summed squared error on other rows under each of `STRENGTHS`."""
        rows, wanted = (x - self.means[0]) @ self.vt.T, y - self.means[1]
        sums = [((rows * self._shrunk(share)) @ self.target - wanted).square().sum() for share in STRENGTHS]
        return torch.stack(sums).cpu()

    def _shrunk(self, strength: float) -> Tensor:
        return self.s / (self.s.square() + strength * self.scale).clamp_min(1e-300)


def strength_of(x: Tensor, y: Tensor, seed: int, texts: np.ndarray | None = None) -> float:
    """The ridge strength with the least error over folds of texts; the strongest of equals."""
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
