"""A plain network: what a map can do that need not be bijective."""

from __future__ import annotations

from torch import Tensor, nn

from layerscope.alignment.networks import Network, silent


class MLP(Network):
    """Two hidden layers, any widths, no inverse: what a map can do that need not be bijective."""

    method = "mlp"
    place = 70
    no_inverse = "a plain network need not be bijective"

    def _network(self) -> nn.Module:
        assert self.widths_ is not None
        width = self.hidden or min(max(*self.widths_, 128), 1024)
        inputs = self.widths_[1] if self.start == "linear" else self.widths_[0]
        return Plain(inputs, width, self.widths_[1], residual=self.start == "linear")


class Plain(nn.Module):
    """inputs -> hidden -> hidden -> outputs; with `residual` added to its input."""

    def __init__(self, inputs: int, hidden: int, outputs: int, residual: bool) -> None:
        super().__init__()
        last = silent(hidden, outputs) if residual else nn.Linear(hidden, outputs)
        self.layers = nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), last)
        self.residual = residual

    def forward(self, rows: Tensor) -> Tensor:
        return self.layers(rows) + rows if self.residual else self.layers(rows)
