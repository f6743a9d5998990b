"""Least squares from moments, drawn towards the weights that are there: what a patch is solved by, in float64.

A weight is (out, in) and maps rows x to W x + b. The moments have x as their first view and y as another one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from layerscope.similarity.moments import Moments

_ROUNDING = 1e-12


def solve(
    moments: Moments, old: Tensor, ridge: float, *, constant: bool, target: int = 1
) -> tuple[Tensor, Tensor | None]:
    """Return the W, and the b where there is a constant, of weighted least squares with ridge towards an old weight.

    Args:
        moments: Of x (view 0) and y (view `target`), in float64.
        old: (out, in) the weight that W is drawn towards.
        ridge: How strongly; r is this share of the summed mean square of x.
        constant: Whether there is a b, which nothing draws.
        target: The view that is y.
    """
    old = old.to(moments.device, torch.float64)
    square, cross = moments.scatter(0, 0), moments.scatter(target, 0)
    x, y = moments.mean(0), moments.mean(target)
    # Where all rows are the same, as summary tokens are at layer 0, only rounding is left about their mean.
    least = _ROUNDING * (float(square.diagonal().mean()) + moments.weight * float(x.square().mean())) or 1.0
    if not constant:
        square = square + moments.weight * torch.outer(x, x)
        cross = cross + moments.weight * torch.outer(y, x)
    strength = max(ridge * float(square.diagonal().mean()), least)
    system = square + strength * torch.eye(len(square), dtype=torch.float64, device=square.device)
    change = torch.cholesky_solve((cross - old @ square).T, torch.linalg.cholesky(system)).T
    weight = old + change
    return weight, y - weight @ x if constant else None


@dataclass
class ElementMoments:
    """The sums of x, y, x^2 and x y, each element by itself: all that a scale and a shift are solved from."""

    width: int
    device: torch.device | str = "cpu"

    def __post_init__(self) -> None:
        self.sums = torch.zeros(4, self.width, dtype=torch.float64, device=self.device)
        self.weight = 0.0

    def update(self, views: list[Tensor], weights: Tensor | None = None) -> None:
        """Add rows (k, width) of x and of y, each row weighted."""
        x, y = (view.to(self.sums.device, torch.float64) for view in views)
        w = torch.ones(len(x), device=x.device).double() if weights is None else weights.to(x)
        self.sums += torch.stack([w @ x, w @ y, w @ x.square(), w @ (x * y)])
        self.weight += float(w.sum())

    def settle(self) -> None:
        """Do nothing: no rows wait."""


def solve_elements(
    moments: ElementMoments, old: Tensor, ridge: float, *, constant: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the scale, and the shift where there is a constant, of the same least squares entry by entry."""
    x, y, square, cross = moments.sums
    old = old.to(x.device, torch.float64)
    if constant:
        square, cross = square - x * x / moments.weight, cross - x * y / moments.weight
    strength = ridge * float(square.mean())
    scale = old + (cross - old * square) / (square + strength).clamp_min(1e-300)
    return scale, (y - scale * x) / moments.weight if constant else None
