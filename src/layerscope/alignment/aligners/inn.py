"""An invertible network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from layerscope.alignment.neural_maps import Couplings, Network
from layerscope.errors import InputError

_LEAST = 1e-4  # of the largest singular value: far below any error of a map, far above rounding on the way back


class INN(Network):
    """An invertible network (RealNVP, Dinh et al. 2017): affine couplings of alternating halves, scales clamped.

    `couplings` blocks of FrEIA, each two half-couplings, with fixed random rotations between them; a last rotation
    undoes the others, so an untrained network changes nothing. It stands behind the solved linear map, whose least
    singular values are kept from 0 so that there is a way back. With `start="plain"` there is no map before it; since
    couplings keep the orientation of space, one feature is then mirrored where the linear solution has a negative
    determinant.
    """

    method = "inn"
    place = 60
    same_width = "an invertible network keeps the width"

    def __init__(
        self,
        couplings: int = 4,
        hidden: int | None = None,
        clamp: float = 2.0,
        steps: int = 1500,
        batch: int = 256,
        learning_rate: float = 3e-3,
        weight_decay: float = 1e-2,
        patience: int = 12,
        start: str = "linear",
        *,
        seed: int = 0,
        pad: bool = False,
    ) -> None:
        super().__init__(hidden, steps, batch, learning_rate, weight_decay, patience, start, seed=seed)
        if couplings < 1 or clamp <= 0:
            raise InputError(f"couplings is {couplings} and clamp {clamp}; couplings start at 1, clamp is above 0.")
        self.couplings, self.clamp, self.pad = couplings, clamp, pad

    def _start(self, x: Tensor, y: Tensor) -> None:
        super()._start(x, y)
        if max(x.shape[1], y.shape[1]) < 2:
            raise InputError("inn splits the features into two halves; these have one. Use linear or mlp.")

    def _prepare(self, x: Tensor, y: Tensor) -> None:
        linear = self._solved(x, y)
        mirror = torch.ones(x.shape[1], device=x.device)
        if self.start == "linear":
            # Directions that ridge has shrunk to nothing are kept a little, or there is no way back.
            u, s, vt = torch.linalg.svd(linear)
            first = (u * s.clamp_min(_LEAST * (float(s[0]) or 1.0))) @ vt
            self.tensors_["first"] = first.float().contiguous()
            self.tensors_["first_back"] = torch.linalg.inv(first).float().contiguous()
        elif float(torch.linalg.slogdet(linear)[0]) < 0:
            mirror[0] = -1.0
        self.tensors_["mirror"] = mirror

    def _sides(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return self._enter(x), y

    def _through_network(self, x: Tensor) -> Tensor:
        return self._run(self._enter(x))

    def _enter(self, x: Tensor) -> Tensor:
        """Standardised rows of the source after the map that stands before the network."""
        mirrored = x * self.tensors_["mirror"]
        return mirrored @ self.tensors_["first"] if "first" in self.tensors_ else mirrored

    def _back(self, y: Tensor) -> Tensor:
        x = self._run(self._standard(y, "y"), back=True)
        x = x @ self.tensors_["first_back"] if "first_back" in self.tensors_ else x
        return self._restored(x * self.tensors_["mirror"], "x")

    def _network(self) -> nn.Module:
        assert self.widths_ is not None
        width = max(self.widths_)
        return Couplings(width, self.couplings, self.hidden or min(max(width, 64), 256), self.clamp, self.seed)
