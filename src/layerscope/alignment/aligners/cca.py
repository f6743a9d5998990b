"""The map through canonical coordinates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.alignment.aligner import folds
from layerscope.alignment.linear_maps import Affine, Factors, canonical_map
from layerscope.errors import InputError, log

_RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)  # shares of a side's mean variance
_FOLDS = 5  # the first of which is held out


class CCA(Affine):
    """The canonical map. `ridge` adds a share of each side's mean variance to its covariance.

    "auto" is none where there are more rows than directions on both sides together, so that the correlations are
    estimates; with fewer rows every correlation is 1, and the ridge with the least error on a held-out fifth of the
    texts is taken.
    """

    method = "cca"
    place = 40

    def __init__(self, ridge: float | str = "auto", *, seed: int = 0) -> None:
        super().__init__(seed=seed)
        if ridge != "auto" and (isinstance(ridge, str) or not 0 <= ridge < math.inf):
            raise InputError(f"ridge is {ridge!r}; it must be 'auto' or a number of at least 0.")
        self.ridge = ridge

    def _sides(self, x: Tensor, y: Tensor) -> tuple[Factors, Factors]:
        """The factors of both sides."""
        return Factors(x), Factors(y)

    def _fit(self, x: Tensor, y: Tensor, texts: np.ndarray) -> dict[str, Any]:
        source, target = self._sides(x, y)
        ridge = self._chosen(x, y, texts, source, target) if self.ridge == "auto" else float(self.ridge)
        weight, back, correlations = canonical_map(source, target, ridge)
        self._keep(x, y, weight, back)
        self._keep_sides(source, target)
        return {"ridge": ridge, "correlation": float(correlations.mean()), "directions": len(correlations)}

    def _keep_sides(self, source: Factors, target: Factors) -> None:
        """Keep what errors need of the sides; of all directions that is nothing."""

    def _chosen(self, x: Tensor, y: Tensor, texts: np.ndarray, source: Factors, target: Factors) -> float:
        """The ridge of "auto": none with enough rows, else the one with the least error on held-out texts."""
        if len(x) > source.rank + target.rank:
            return 0.0
        held, rest = (torch.from_numpy(part).to(x.device) for part in folds(texts, _FOLDS, self.seed)[0])
        if len(rest) < 2:
            return _RIDGES[-1]
        sides = self._sides(x[rest], y[rest])

        def error(ridge: float) -> float:
            weight = canonical_map(*sides, ridge)[0]
            return float(((x[held] - sides[0].mean) @ weight + sides[1].mean - y[held]).square().sum())

        best = min(_RIDGES, key=error)
        log.info(
            "%d rows are too few for %s of %d and %d directions: ridge %g.",
            len(x),
            self.method,
            source.rank,
            target.rank,
            best,
        )
        return best
