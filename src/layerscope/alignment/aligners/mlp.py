"""A plain network: what a map can do that need not be bijective."""

from __future__ import annotations

from torch import Tensor, nn

from layerscope.alignment.neural_maps import Network, silent


class MLP(Network):
    """Two hidden layers, any widths, no inverse: what a map can do that need not be bijective.

    With the linear start it reads X itself and gives what the linear map leaves, which is added to it.
    """

    method = "mlp"
    place = 70
    no_inverse = "a plain network need not be bijective"

    def _network(self) -> nn.Module:
        assert self.widths_ is not None
        width = self.hidden or min(max(*self.widths_, 128), 1024)
        last = silent(width, self.widths_[1]) if self.start == "linear" else nn.Linear(width, self.widths_[1])
        return nn.Sequential(nn.Linear(self.widths_[0], width), nn.GELU(), nn.Linear(width, width), nn.GELU(), last)

    def _sides(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x, y - self._start_of(x)

    def _through_network(self, x: Tensor) -> Tensor:
        return self._run(x) + self._start_of(x)

    def _start_of(self, x: Tensor) -> Tensor | float:
        """What the linear start gives for standardised rows; 0 without one."""
        return x @ self.tensors_["first"] if "first" in self.tensors_ else 0.0
