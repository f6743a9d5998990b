"""A rotation, with one scale for all directions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.alignment.linear_maps import Affine


class Procrustes(Affine):
    """The rotation (or reflection) closest to a map from X to Y, with one `scale` for all directions or without.

    Schoenemann 1966: W = U V' of the singular value decomposition of X'Y.
    """

    method = "procrustes"
    place = 20
    same_width = "a rotation keeps the width"

    def __init__(self, scale: bool = True, *, seed: int = 0, pad: bool = False) -> None:
        super().__init__(seed=seed)
        self.scale, self.pad = scale, pad

    def _fit(self, x: Tensor, y: Tensor, texts: np.ndarray) -> dict[str, Any]:
        centred = x - x.mean(dim=0)
        u, s, vt = torch.linalg.svd(centred.T @ (y - y.mean(dim=0)))
        rotation, size = u @ vt, float(centred.square().sum())
        factor = float(s.sum()) / size if self.scale and size > 0 else 1.0
        self._keep(x, y, factor * rotation, rotation.T / factor if factor > 0 else rotation.T)
        return {"factor": factor}
