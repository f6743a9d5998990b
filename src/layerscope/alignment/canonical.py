"""Maps through canonical directions (Ren et al. 2023, section 3.3): CCA, and SVCCA after a cut to few directions.

The map is W_X W_Y^-1: rows of X in canonical coordinates are taken for rows of Y in theirs, so on exactly linear data
it is that map. (Least squares would shrink each coordinate by its correlation.) PWCCA weights the correlations of CCA
and has no map of its own; `ls.measure("pwcca")` gives its similarity.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.alignment.aligner import error_of
from layerscope.alignment.linear import Affine, svd
from layerscope.errors import InputError, log

_RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)  # shares of a side's mean variance
_HELD = 0.2


class CCA(Affine):
    """The canonical map. `ridge` adds a share of each side's mean variance to its covariance.

    "auto" is none where there are more rows than directions on both sides together, so that the correlations are
    estimates; with fewer rows every correlation is 1, and the ridge with the least error on a held-out fifth is taken.
    """

    method = "cca"

    def __init__(self, ridge: float | str = "auto", *, seed: int = 0, pad: bool = False) -> None:
        super().__init__(seed=seed, pad=pad)
        if ridge != "auto" and (isinstance(ridge, str) or not 0 <= ridge < math.inf):
            raise InputError(f"ridge is {ridge!r}; it must be 'auto' or a number from 0 on.")
        self.ridge = ridge

    def _sides(self, x: Tensor, y: Tensor) -> tuple[Factors, Factors]:
        return Factors(x), Factors(y)

    def _fit(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        one, two = self._sides(x, y)
        ridge = self._chosen(x, y, one, two) if self.ridge == "auto" else float(self.ridge)
        weight, back, correlations = canonical_map(one, two, ridge)
        self._keep(x, y, weight, back)
        self._keep_sides(one, two)
        return {"ridge": ridge, "correlation": float(correlations.mean()), "directions": len(correlations)}

    def _keep_sides(self, one: Factors, two: Factors) -> None:
        pass

    def _chosen(self, x: Tensor, y: Tensor, one: Factors, two: Factors) -> float:
        if len(x) > one.rank + two.rank:
            return 0.0
        order = torch.from_numpy(np.random.default_rng(self.seed).permutation(len(x))).to(x.device)
        held, rest = order[: max(1, int(_HELD * len(x)))], order[max(1, int(_HELD * len(x))) :]
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
            one.rank,
            two.rank,
            best,
        )
        return best


class SVCCA(CCA):
    """CCA between the fewest principal directions that reach `keep` of each side's variance (Raghu et al. 2017).

    `error` also says how far the kept coordinates of Y are missed (`mse_reduced`, `relative_reduced`), the paper's
    figure; the plain ones count what was cut away too.
    """

    method = "svcca"

    def __init__(self, keep: float = 0.99, ridge: float | str = "auto", *, seed: int = 0, pad: bool = False) -> None:
        super().__init__(ridge, seed=seed, pad=pad)
        if not 0 < keep <= 1:
            raise InputError(f"keep is {keep}; it must be above 0 and at most 1, such as 0.99.")
        self.keep = keep

    def _sides(self, x: Tensor, y: Tensor) -> tuple[Factors, Factors]:
        return Factors(x, self.keep), Factors(y, self.keep)

    def _keep_sides(self, one: Factors, two: Factors) -> None:
        self.tensors_["kept"] = two.vt.T.contiguous()  # (d', k) the directions of Y

    def _errors(self, x: Tensor, y: Tensor, level: float) -> dict[str, float]:
        found, kept = self(x), self.tensors_["kept"]
        reduced = error_of(found @ kept, y @ kept, level)
        extra = {f"{name}_reduced": reduced[name] for name in ("mse", "relative")}
        return {**error_of(found, y, level), **extra}


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
        return len(self.s)


def canonical_map(one: Factors, two: Factors, ridge: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """W_X W_Y^-1 (d, d'), the way back W_Y W_X^-1 (d', d), and the canonical correlations."""
    scales = [(side.s.square() + ridge * side.s.square().mean()).sqrt() for side in (one, two)]
    whitening = [torch.where(scale > 0, 1 / scale, 0.0) for scale in scales]  # a constant side has no directions
    cosine = (one.s * whitening[0])[:, None] * (one.u.T @ two.u) * (two.s * whitening[1])
    p, correlations, qt = torch.linalg.svd(cosine, full_matrices=False)
    turn = p @ qt  # (r, r') between the whitened coordinates
    there = one.vt.T @ (whitening[0][:, None] * turn * scales[1]) @ two.vt
    back = two.vt.T @ (whitening[1][:, None] * turn.T * scales[0]) @ one.vt
    return there, back, correlations.clamp(0.0, 1.0)
