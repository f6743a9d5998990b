"""Linear maps with a closed form: ridge regression and Procrustes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.alignment.aligner import Aligner
from layerscope.errors import InputError

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


class Linear(Affine):
    """Ridge regression; `strength` is a share of the mean variance of X, "cv" to choose it by cross-validation.

    `strength=0` is plain least squares, of least norm where several solve it. The inverse is W's pseudo-inverse.
    """

    method = "linear"

    def __init__(self, strength: float | str = "cv", *, seed: int = 0, pad: bool = False) -> None:
        super().__init__(seed=seed, pad=pad)
        if strength != "cv" and (isinstance(strength, str) or not 0 <= strength < math.inf):
            raise InputError(f"strength is {strength!r}; it must be 'cv' or a number from 0 on.")
        self.strength = strength

    def _fit(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        strength = strength_of(x, y, self.seed) if self.strength == "cv" else float(self.strength)
        weight = Ridge(x, y).weight(strength)
        self._keep(x, y, weight, torch.linalg.pinv(weight, rtol=1e-7))
        return {"strength": strength}


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
        found = [((rows * self._shrunk(share)) @ self.target - wanted).square().sum() for share in STRENGTHS]
        return torch.stack(found).cpu()

    def _shrunk(self, strength: float) -> Tensor:
        return self.s / (self.s.square() + strength * self.scale).clamp_min(1e-300)


def strength_of(x: Tensor, y: Tensor, seed: int) -> float:
    """The ridge strength with the least error over folds; the strongest of equals."""
    order = np.random.default_rng(seed).permutation(len(x))
    parts = [torch.from_numpy(part).to(x.device) for part in np.array_split(order, min(_FOLDS, len(x)))]
    errors = torch.zeros(len(STRENGTHS), dtype=x.dtype)
    for k, held in enumerate(parts):
        rest = torch.cat([part for j, part in enumerate(parts) if j != k])
        errors += Ridge(x[rest], y[rest]).errors(x[held], y[held])
    return STRENGTHS[len(STRENGTHS) - 1 - int(errors.flip(0).argmin())]


class Procrustes(Affine):
    """The rotation (or reflection) closest to a map from X to Y, with one `scale` for all directions or without.

    Schoenemann 1966: W = U V' of the singular value decomposition of X'Y.
    """

    method = "procrustes"
    same_width = "a rotation keeps the width"

    def __init__(self, scale: bool = True, *, seed: int = 0, pad: bool = False) -> None:
        super().__init__(seed=seed, pad=pad)
        self.scale = scale

    def _fit(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        centred = x - x.mean(dim=0)
        u, s, vt = torch.linalg.svd(centred.T @ (y - y.mean(dim=0)))
        rotation, size = u @ vt, float(centred.square().sum())
        factor = float(s.sum()) / size if self.scale and size > 0 else 1.0
        self._keep(x, y, factor * rotation, rotation.T / factor if factor > 0 else rotation.T)
        return {"factor": factor}


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
