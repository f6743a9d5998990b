"""What every other method must beat: nothing done, and the mean."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from layerscope.alignment.aligner import Aligner


class Identity(Aligner):
    """g(x) = x."""

    method = "identity"
    same_width = "it hands rows on as they are"

    def _fit(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        return {}

    def _map(self, x: Tensor) -> Tensor:
        return x

    def _back(self, y: Tensor) -> Tensor:
        return y


class Mean(Aligner):
    """g(x) = mean of Y: relative error 1 on the rows it was fitted on."""

    method = "mean"
    no_inverse = "it maps every row to the same one"

    def _fit(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        self.tensors_ = {"mean": y.mean(dim=0)}
        return {}

    def _map(self, x: Tensor) -> Tensor:
        return self.tensors_["mean"].expand(len(x), -1)
