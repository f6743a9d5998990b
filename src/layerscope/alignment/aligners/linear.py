"""Ridge regression."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.alignment.linear_maps import Affine, Ridge, strength_of
from layerscope.errors import InputError


class Linear(Affine):
    """Ridge regression; `strength` is a share of the mean variance of X, "cv" to choose it by folds of texts.

    `strength=0` is plain least squares, of least norm where several solve it. The inverse is W's pseudo-inverse.
    """

    method = "linear"
    place = 30

    def __init__(self, strength: float | str = "cv", *, seed: int = 0) -> None:
        super().__init__(seed=seed)
        if strength != "cv" and (isinstance(strength, str) or not 0 <= strength < math.inf):
            raise InputError(f"strength is {strength!r}; it must be 'cv' or a number of at least 0.")
        self.strength = strength

    def _fit(self, x: Tensor, y: Tensor, texts: np.ndarray) -> dict[str, Any]:
        strength = strength_of(x, y, self.seed, texts) if self.strength == "cv" else float(self.strength)
        weight = Ridge(x, y).weight(strength)
        self._keep(x, y, weight, torch.linalg.pinv(weight, rtol=1e-7))
        return {"strength": strength}
