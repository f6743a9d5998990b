"""The map through canonical coordinates of the few directions that carry most of the variance."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from layerscope.alignment.aligners.cca import CCA
from layerscope.alignment.alignment_error import error_of
from layerscope.alignment.linear_maps import Factors
from layerscope.errors import InputError


class SVCCA(CCA):
    """CCA between the fewest principal directions that reach `keep` of each side's variance (Raghu et al. 2017).

    `error` also says how far the kept coordinates of Y are missed (`mse_reduced`, `relative_reduced`), the paper's
    figure; the plain ones count what was cut away too.
    """

    method = "svcca"
    place = 50

    def __init__(self, keep: float = 0.99, ridge: float | str = "auto", *, seed: int = 0) -> None:
        super().__init__(ridge, seed=seed)
        if not 0 < keep <= 1:
            raise InputError(f"keep is {keep}; it must be above 0 and at most 1, such as 0.99.")
        self.keep = keep

    def _sides(self, x: Tensor, y: Tensor) -> tuple[Factors, Factors]:
        return Factors(x, self.keep), Factors(y, self.keep)

    def _keep_sides(self, source: Factors, target: Factors) -> None:
        self.tensors_["kept"] = target.vt.T.contiguous()  # (d', k) the directions of Y

    def _errors(self, x: Tensor, y: Tensor, texts: np.ndarray, ci: float) -> dict[str, float]:
        mapped, kept = self(x), self.tensors_["kept"]
        reduced = error_of(mapped @ kept, y @ kept, ci, texts)
        extra = {f"{name}_reduced": reduced[name] for name in ("mse", "relative")}
        return {**error_of(mapped, y, ci, texts), **extra}
